"""Predicates on sessions and events: checked once, then asked often."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dsh.capabilities.session_query import (
    Between,
    Containing,
    EventPredicate,
    FoundSession,
    OneOf,
    SessionPredicate,
)
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.plugins.session_query_sqlite.text import folded, searchable
from dsh.session.event import SessionEvent

T = TypeVar("T")

MAX_OUTER = 14
"""Predicates of one search."""

_OF_SESSION: dict[str, Callable[[FoundSession], str | None]] = {
    "id": lambda found: found.header.id,
    "cwd": lambda found: found.header.cwd,
    "parentSession": lambda found: found.header.parent_session,
    "origin": lambda found: found.header.origin,
    "agentPreset": lambda found: found.header.agent_preset,
    "source": lambda found: found.source,
}
_NUMBER_OF_SESSION: dict[str, Callable[[FoundSession], int]] = {
    "createdAt": lambda found: found.header.created_at,
    "delegationDepth": lambda found: found.header.delegation_depth or 0,
}
_CHOICES: dict[str, frozenset[str]] = {
    "surface": frozenset({"current", "shadowed", "log-only"}),
    "source": frozenset({"live", "stored"}),
}
_OF_EVENT = ("sessionId", "type", "surface")
_NUMBER_OF_EVENT = ("seq", "time")


class SessionTest:
    """Whether a session passes all predicates."""

    def __init__(self, predicates: Sequence[SessionPredicate]) -> None:
        """Raises SessionQueryError INVALID_FILTER where one makes no sense."""
        self._values: list[tuple[Callable[[FoundSession], str | None], frozenset[str | None]]] = []
        self._ranges: list[tuple[Callable[[FoundSession], int], Between]] = []
        for predicate in checked_list(predicates, "predicates on sessions"):
            if type(predicate) is OneOf:
                self._values.append((_OF_SESSION[_known(predicate, _OF_SESSION)], values_of(predicate)))
            elif type(predicate) is Between:
                self._ranges.append(
                    (_NUMBER_OF_SESSION[_known(predicate, _NUMBER_OF_SESSION)], _range(predicate))
                )
            else:
                raise _invalid(f"no predicate on sessions: {predicate!r:.100}")

    def __call__(self, found: FoundSession) -> bool:
        return all(read(found) in values for read, values in self._values) and all(
            _within(read(found), bounds) for read, bounds in self._ranges
        )


class EventTest:
    """Whether an event passes all predicates, asked in parts: what all of a packed run share comes first."""

    def __init__(self, predicates: Sequence[EventPredicate]) -> None:
        """Raises SessionQueryError INVALID_FILTER where one makes no sense."""
        self.values: list[tuple[str, frozenset[str | None]]] = []
        """Field and accepted values."""
        self.ranges: list[Between] = []
        self.texts: list[str] = []
        """Folded texts that must be held."""
        for predicate in checked_list(predicates, "predicates on events"):
            if type(predicate) is OneOf:
                self.values.append((_known(predicate, _OF_EVENT), values_of(predicate)))
            elif type(predicate) is Between:
                _known(predicate, _NUMBER_OF_EVENT)
                self.ranges.append(_range(predicate))
            elif type(predicate) is Containing:
                if type(predicate.text) is not str or not predicate.text:
                    raise _invalid("a predicate on text needs a text that is not empty")
                self.texts.append(folded(predicate.text))
            else:
                raise _invalid(f"no predicate on events: {predicate!r:.100}")

    def fits_kind(self, session_id: str, kind: str, surface: str) -> bool:
        found = {"sessionId": session_id, "type": kind, "surface": surface}
        return all(found[field] in values for field, values in self.values)

    def fits_numbers(self, seq: int, time: int) -> bool:
        return all(_within(seq if bounds.field == "seq" else time, bounds) for bounds in self.ranges)

    def fits_text(self, event: SessionEvent | None) -> bool:
        """None stands for a packed delta, which has no searchable text."""
        if not self.texts:
            return True
        text = "" if event is None else folded(searchable(event))
        return all(wanted in text for wanted in self.texts)


def checked_list(values: Sequence[T], what: str) -> Sequence[T]:
    """The values, which are a list or a tuple.

    Raises:
        SessionQueryError: INVALID_FILTER.
    """
    if type(values) not in (tuple, list):
        raise _invalid(f"{what} are a list, found {type(values).__name__}")
    return values


def check_outer(*groups: Sequence[Any]) -> None:
    """Refuse a search with too many predicates.

    Raises:
        SessionQueryError: INVALID_FILTER.
    """
    if (count := sum(map(len, groups))) > MAX_OUTER:
        raise _invalid(f"a search has at most {MAX_OUTER} predicates, found {count}")


def values_of(predicate: OneOf) -> frozenset[str | None]:
    values = checked_list(predicate.values, f"{predicate.field}: values")
    for value in values:
        if value is not None and type(value) is not str:
            raise _invalid(f"{predicate.field}: a value is a text or None, found {value!r:.60}")
        if predicate.field in _CHOICES and value not in _CHOICES[predicate.field]:
            choices = ", ".join(sorted(_CHOICES[predicate.field]))
            raise _invalid(f"{predicate.field} is one of {choices}, found {value!r:.60}")
    return frozenset(values)


def _range(bounds: Between) -> Between:
    for value in (bounds.low, bounds.high):
        if value is not None and type(value) is not int:
            raise _invalid(f"{bounds.field}: a bound is an integer or None, found {value!r:.60}")
    if bounds.low is not None and bounds.high is not None and bounds.low > bounds.high:
        raise _invalid(f"{bounds.field}: the lower bound {bounds.low} is above the upper one {bounds.high}")
    return bounds


def _within(value: int, bounds: Between) -> bool:
    return (bounds.low is None or value >= bounds.low) and (bounds.high is None or value <= bounds.high)


def _known(predicate: OneOf | Between, fields: Any) -> str:
    field: Any = predicate.field
    if type(field) is not str or field not in fields:
        raise _invalid(f"no field {field!r:.60} here; there are {', '.join(fields)}")
    return field


def _invalid(message: str) -> SessionQueryError:
    return SessionQueryError("INVALID_FILTER", message)
