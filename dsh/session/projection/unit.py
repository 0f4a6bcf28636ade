"""A unit of projection: a value folded from a log, entry by entry (`spec/persistence.md` §8).

A unit is pure: its functions read what they are given and change nothing of it. Its value is the same however
a log is cut into pieces and wherever packed runs are split.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dsh.session.chunk_run import ChunkRun, Entry, entry_start, entry_stop
from dsh.session.projection.error import InvalidState
from dsh.session.value import JsonValue, freeze

S = TypeVar("S")


class Unit(Struct, Generic[S], frozen=True, eq=False, kw_only=True):
    """What is folded, and how. Two units are the same where `same_fold` says so."""

    key: str
    """The name its value is asked for by, and stored under."""
    version: int
    """Counts from 0. A stored state of another version is not used."""
    state_type: Any
    """What msgspec makes of a stored state: plain JSON types, a TypedDict or a frozen struct."""
    init: Callable[[], S]
    """The state before the first event."""
    apply: Callable[[S, Entry], S]
    """The state after an entry. The very same object where the entry is not its business: that is how a
    change is told. A payload may be of any shape, since logs are opened that others wrote."""
    types: frozenset[str]
    """The types of the events that `apply` is given."""
    reads_runs: bool = False
    """`apply` is given packed runs too, in as many pieces as they come."""
    view: Callable[[S], JsonValue] | None = None
    """The value that clients are shown; a unit without it is for the program alone."""

    def __post_init__(self) -> None:
        if not self.key or self.version < 0:
            raise ValueError(f"a unit has a key and a version from 0, found {self.key!r}, {self.version}")

    def same_fold(self, other: "Unit[Any]") -> bool:
        """Whether both make the same states of the same log; their views may differ."""
        return (
            self.key == other.key
            and self.version == other.version
            and self.init is other.init
            and self.apply is other.apply
            and self.types == other.types
            and self.reads_runs == other.reads_runs
        )

    def dump(self, state: S) -> JsonValue:
        """A state as frozen JSON.

        Raises:
            InvalidState: it is none.
        """
        return self._json(state, "state")

    def load(self, value: JsonValue) -> S:
        """The state behind its JSON.

        Raises:
            InvalidState: it does not fit the state's type.
        """
        try:
            state: S = msgspec.convert(value, self.state_type)
        except (msgspec.ValidationError, ValueError) as error:
            raise InvalidState(self.key, str(error)) from None
        return state

    def show(self, state: S) -> JsonValue:
        """What clients see of a state, as frozen JSON; None for a unit without a view.

        Raises:
            InvalidState: the view is no JSON.
        """
        if self.view is None:
            return None
        return self._json(self.view(state), "view")

    def _json(self, value: object, what: str) -> JsonValue:
        try:
            return freeze(msgspec.to_builtins(value), what)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidState(self.key, f"{what} is no JSON: {error}") from None


def fold(unit: Unit[S], entries: Iterable[Entry], state: S | UnsetType = UNSET, *, start: int = 0) -> S:
    """The state after these entries.

    Args:
        state: the state before them; left out, the unit's first one.
        start: entries and parts of runs before this seq are passed over: `state` holds them already.
    """
    now = unit.init() if state is UNSET else state
    types, apply, reads_runs = unit.types, unit.apply, unit.reads_runs
    for entry in entries:
        if isinstance(entry, ChunkRun):
            if not reads_runs or entry.stop <= start:
                continue
            piece = entry if entry.seq0 >= start else entry.slice(start - entry.seq0)
            now = apply(now, piece)
        elif entry.type in types and entry.seq >= start:
            now = apply(now, entry)
    return now


def span(entries: Iterable[Entry]) -> tuple[int, int] | None:
    """The seq of the first event of contiguous entries, and the one after the last; None for no entries."""
    first: int | None = None
    stop = 0
    for entry in entries:
        first = entry_start(entry) if first is None else first
        stop = entry_stop(entry)
    return None if first is None else (first, stop)


def text_at(data: object, key: str) -> str | None:
    """The text under a key of a payload that may be of any shape."""
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def object_at(data: object, key: str) -> dict[str, Any] | None:
    """The object under a key of a payload that may be of any shape."""
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else None
