"""One call of a model as a script knows it: what is answered, and where it was recorded."""

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import msgspec

from dsh.llm.adapter import ModelInfo
from dsh.llm.request import Purpose
from dsh.llm.script.entry import ScriptEntry
from dsh.llm.script.error import UNFINISHED_CALL, ScriptError

Cut: TypeAlias = Literal["cancelled", "crashed", "raised"]
"""Why a stream has no end in the log: the caller cancelled, the process died, or the stream raised."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. What a script file says has only an entry; the rest comes from a log."""

    entry: ScriptEntry
    seq: int | None = None
    """Of the log's row it begins with: its first chunk, else the row that says that it was made."""
    turn: int | None = None
    step: int | None = None
    attempt: int | None = None
    """Which attempt of its step it is, from 1."""
    purpose: Purpose | Literal["turn"] | None = None
    """What the call was for; None fits every request."""
    model: ModelInfo | None = None
    """Route and model it was made on, and what the adapter of that time knew of it."""
    cut: Cut | None = None
    """Set where its stream has no end in the log; the entry then hangs after what had come."""
    is_needed: bool = True
    """False: the log does not tell whether this call was made at all; it is passed over where nobody makes
    it."""
    is_refused: bool = False
    """The adapter refused it before there was a request: the log holds the failure alone, as the end of the
    turn."""

    @property
    def is_counted(self) -> bool:
        """Whether an override counts it: it was surely made, and titles have an order of their own."""
        return self.is_needed and self.purpose != "session-title"


_PLAYABLE: tuple[Cut, ...] = ("cancelled",)


def check_whole(calls: Sequence[Call], *, allowed: Collection[Cut] = _PLAYABLE) -> None:
    """Check that it is known of every call what the model did.

    Args:
        allowed: the cuts that the caller can play.

    Raises:
        ScriptError: `SCRIPT_UNFINISHED_CALL`.
    """
    for at, call in enumerate(calls):
        if call.cut is not None and call.cut not in allowed:
            why = "the process died" if call.cut == "crashed" else "nobody cancelled it: the stream raised"
            raise ScriptError(
                UNFINISHED_CALL,
                f"the model's reply at seq {call.seq} (turn {call.turn}, step {call.step}) has no finish, "
                f"and {why}",
                hint=f"give an override for call {sum(one.is_counted for one in calls[:at])}",
            )
