"""Projections as a service: values folded from the logs of sessions, live and stored.

A row registers a unit; whoever shows sessions asks for its value, or is told when it changes. The units that
ship are in `dsh.session.projection`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from dsh.kernel import Effect, ServiceKey
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.projection.fold import Restored, Row, Rows, Snapshot
from dsh.session.projection.unit import Unit
from dsh.session.value import JsonValue


class ProjectionChanged(msgspec.Struct, frozen=True):
    """What watchers are told: a value that clients see is another one now."""

    session: Session
    key: str
    value: JsonValue
    seq: int
    """The event that it goes up to."""


class Projections(Protocol):
    """The registered units, and their states for each session.

    A unit that raises, or whose state is no JSON, is stale for that session: it is named in one warning and
    left out of every answer until it is registered anew; the others go on.
    """

    def register(self, unit: Unit[Any]) -> Effect:
        """Fold a unit for as long as the caller lives. Registered twice it is shared, and goes with the last.

        Raises:
            ProjectionConflict: another unit has the key.
        """

    def watch(self, callback: Callable[[ProjectionChanged], None]) -> Effect:
        """Be told of changes of units with a view, for as long as the caller lives. It may not append."""

    def state_of(self, session: Session, key: str) -> Any:
        """The state of a unit now; None where there is no such unit or it is stale."""

    def snapshot(self, session: Session) -> Snapshot:
        """What clients see of a session now."""

    def checkpoint(self, session: Session) -> dict[str, Row]:
        """The states of all units now, as rows to be stored."""

    def adopt(self, session: Session, rows: Rows) -> None:
        """Begin with these rows of the same log instead of folding it from its first event, where they fit.

        A unit that has begun already, and a row that does not fit, stay as they are.
        """

    def restore_floor(self, rows: Rows) -> int | None:
        """The event to begin reading a stored log at; None where no unit is registered."""

    def view_checkpoint(self, rows: Rows) -> Snapshot:
        """What clients see according to stored rows alone."""

    def restore(self, rows: Rows, entries: Iterable[Entry], base: int) -> Restored:
        """Continue stored rows with the events from `base` on. May be called in any thread.

        Raises:
            UnusableRows: they cannot be continued from there; read from event 0.
        """


class ProjectionCache(Protocol):
    """Rows of stored sessions, kept beside their logs. It may lag behind a log and never leads it."""

    def cached_snapshot(self, header: SessionHeader) -> Snapshot | None:
        """What the stored rows show, without reading the log; None where there are none of this session."""

    async def cold_snapshot(self, header: SessionHeader) -> Snapshot:
        """What clients see of a session: of a live one now, else from its stored rows and the events since.

        Raises:
            SessionNotFound, SessionCorruption, SessionFormatUnsupported
        """


PROJECTIONS: ServiceKey[Projections] = ServiceKey("sessionProjection")
PROJECTION_CACHE: ServiceKey[ProjectionCache] = ServiceKey("sessionProjectionCache")
