"""One logical entry of a session log: the envelope around a payload."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dsh.session.value import FrozenDict

Surface: TypeAlias = Literal["append"] | FrozenDict
"""How an event joins the surface: at its end, or as `{op: "replace", start, end}`."""

SURFACE_TYPES = frozenset({"user/message", "assistant/message", "tool/result"})
"""The event types that the model sees; all others are log-only."""


class SessionEvent(Struct, frozen=True):
    """An event. `data` is deeply immutable and shared by everybody who reads it."""

    type: str
    seq: int
    """Position in the log, from 0 without gaps."""
    time: int
    """Wall clock in epoch milliseconds; may go backwards."""
    data: Any
    sources: tuple[int, ...] | None = None
    """`sourceEventSeqs`: the earlier events this one was made from; surface types only."""
    surface: Surface | None = None
    """`surfaceOp`; mandatory on surface types, absent on the others."""
    ignorable: bool = False
    """A reader that does not know the type may pass over the event."""

    def to_json(self) -> dict[str, Any]:
        """The envelope with its keys in the order a live append writes them."""
        out: dict[str, Any] = {"type": self.type, "seq": self.seq, "time": self.time, "data": self.data}
        if self.sources is not None:
            out["sourceEventSeqs"] = self.sources
        if self.surface is not None:
            out["surfaceOp"] = self.surface
        if self.ignorable:
            out["ignorable"] = True
        return out


class RepairEvent(SessionEvent, frozen=True):
    """An event that crash repair adds. It is written with `surfaceOp` before `sourceEventSeqs`."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": self.type, "seq": self.seq, "time": self.time, "data": self.data}
        if self.surface is not None:
            out["surfaceOp"] = self.surface
        if self.sources is not None:
            out["sourceEventSeqs"] = self.sources
        return out
