"""From the decoded lines of a stored log to a session, in the order that decides which error wins.

Retired vocabulary over the whole log; for each event the conversion of old shapes and the shape of its
message; known types; header, envelopes, sequence and surface by building the session, closers last
(`spec/session-log.md` §13, `spec/persistence.md` §4). Each entry passes once and none is kept as it came:
a log may be as long as it likes. Nothing is written before all of it has passed.
"""

from collections.abc import Iterable
from enum import IntEnum

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.error import CorruptLog, InvalidEvent, InvalidHeader, JsonError, UnsupportedLog
from dsh.session.event import RepairEvent
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.legacy import LegacyReader
from dsh.session.log import Clock, Session, now_ms
from dsh.session.repair import OpenEnds
from dsh.session.value import JsonObject
from dsh.session.vocabulary import check_retired, check_stored_message, is_known


class Restored:
    """A stored log that passed every check: its repaired view, and what repair added to it."""

    __slots__ = ("_clock", "closers", "view")

    def __init__(self, view: Session, added: tuple[RepairEvent, ...], clock: Clock) -> None:
        self.view = view
        """The stored events and the closers, without `session/end-seed`; for reading only."""
        self.closers = added
        """The last events of the view that are not stored yet."""
        self._clock = clock

    @property
    def entries(self) -> list[Entry]:
        """The repaired view, packed runs left packed."""
        return self.view.entries()

    def open(self) -> Session:
        """The session to continue with: the view, then `session/end-seed` unless it ends with one."""
        session = self.view.copy(clock=self._clock)
        session.end_seed()
        return session


class _Stage(IntEnum):
    """The checks of an entry, in the order in which their errors win over each other's."""

    RETIRED = 0
    SHAPE = 1
    TYPE = 2
    HEADER = 3
    RULE = 4
    PASSED = 5


class Restorer:
    """Checks and repairs one stored log. State: the session so far, and the error that wins so far."""

    def __init__(self, header: SessionHeader | JsonObject, *, clock: Clock = now_ms) -> None:
        """`header` is from `header_from_line`, or in its in-memory shape."""
        self._clock = clock
        self._stage = _Stage.PASSED
        self._error: CorruptLog | UnsupportedLog | InvalidHeader | None = None
        self._count = 0
        session_id = header.id if isinstance(header, SessionHeader) else str(header.get("id"))
        self._legacy = LegacyReader(session_id)
        self._ends = OpenEnds()
        try:
            checked = header if isinstance(header, SessionHeader) else header_from_json(header)
        except (InvalidHeader, UnsupportedLog) as error:
            self._stage, self._error = _Stage.HEADER, error
            checked = SessionHeader(id=session_id, created_at=0)
        self._session = Session(checked, clock=clock)
        self._restored: Restored | None = None

    @property
    def length(self) -> int:
        """How many events have been taken in without an error."""
        return self._session.length

    def take(self, entry: JsonObject | ChunkRun, line: bytes | None = None) -> None:
        """Take the next entry. What is wrong with it is remembered, for a later one may be worse.

        Args:
            entry: a line as decoded, a packed row through `row_to_run`; it is not changed.
            line: the text of it, where there is one.
        """
        index, self._count = self._count, self._count + 1
        stage = _Stage.RETIRED
        try:
            current = entry
            if not isinstance(entry, ChunkRun):
                check_retired(str(entry.get("type")), entry.get("data"))
                if self._stage <= (stage := _Stage.SHAPE):
                    return
                current = self._legacy.convert(entry)
                check_stored_message(str(current.get("type")), current.get("data"))
                if self._stage <= (stage := _Stage.TYPE):
                    return
                check_known(index, current)
            if self._stage <= (stage := _Stage.RULE):
                return
            self._ends.see(current)
            self._session.load(current, line=line if current is entry else None, has_shape=True)
        except UnsupportedLog as error:
            self._fail(stage, error)
        except (InvalidEvent, JsonError) as error:
            self._fail(stage, _corrupt(index, entry, error))

    def _fail(self, stage: _Stage, error: CorruptLog | UnsupportedLog) -> None:
        if stage < self._stage:
            self._stage, self._error = stage, error

    def finish(self) -> Restored:
        """No more entries: the log with its closers.

        Raises:
            CorruptLog: an entry breaks a rule; `index` says which (closers count on from the last entry).
            UnsupportedLog: an event type that this program does not know and may not pass over.
            InvalidHeader: the header breaks a rule.
        """
        if self._restored is None:
            if self._error is not None:
                raise self._error
            added = self._ends.closers()
            for index, closer in enumerate(added, self._count):
                try:
                    self._session.load(closer)
                except (InvalidEvent, JsonError) as error:
                    raise _corrupt(index, closer, error) from error
            self._session.first_live_seq = self._session.length
            self._restored = Restored(self._session, tuple(added), self._clock)
        return self._restored


def restore(
    header: SessionHeader | JsonObject,
    entries: Iterable[JsonObject | ChunkRun],
    *,
    clock: Clock = now_ms,
) -> Restored:
    """Check and repair a log whose entries are at hand.

    Raises:
        CorruptLog, UnsupportedLog, InvalidHeader: as `Restorer.finish`.
    """
    restorer = Restorer(header, clock=clock)
    for entry in entries:
        restorer.take(entry)
    return restorer.finish()


def check_known(index: int, entry: JsonObject) -> None:
    """Refuse an event type that is unknown and not marked as one to pass over.

    Raises:
        UnsupportedLog: names the type and the seq.
    """
    kind = entry.get("type")
    if type(kind) is str and entry.get("ignorable") is not True and not is_known(kind):
        raise UnsupportedLog(
            f"event type {kind!r} (seq {entry.get('seq')}) is unknown to this program "
            "and not marked ignorable",
            index=index,
            hint="install the plugin or the newer dsh that wrote it",
        )


def _corrupt(index: int, entry: object, error: Exception) -> CorruptLog:
    seq = getattr(entry, "seq", None)
    if isinstance(entry, dict):
        seq = entry.get("seq")
    return CorruptLog(f"event {seq!r:.40}: {error}", index=index)
