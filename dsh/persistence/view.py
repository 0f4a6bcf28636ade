"""A stored log as its readers see it: checked, balanced by closers, immutable.

Pure: what is read becomes a view here, and nothing is written.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from dsh.persistence.error import OtherVersion, SessionCorruption, UnknownType, of_header
from dsh.persistence.stored import Stored, Torn
from dsh.session.chunk_run import Entry, entry_start
from dsh.session.error import CorruptLog, SessionError, UnsupportedLog
from dsh.session.event import SessionEvent
from dsh.session.fork import ForkSeed, boundary_of_turn, fork_of
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import Message
from dsh.session.value import FrozenDict, json_equal


class LogView:
    """The events of a log as they were at one moment, and what is folded from them.

    The view of a stored log holds the closers that repair adds, and no `session/end-seed` for this reading.
    """

    __slots__ = ("_session", "closers", "recovered", "stored_length", "torn")

    def __init__(
        self,
        session: Session,
        *,
        closers: Sequence[Entry] = (),
        recovered: Sequence[Entry] = (),
        torn: Torn | None = None,
    ) -> None:
        """`session` becomes the view's own: nobody else may append to it."""
        self._session = session
        self.closers = tuple(closers)
        """The last events of the view, which are not stored yet."""
        self.recovered = tuple(recovered)
        """Events read out of a torn tail; repair stores them again."""
        self.torn = torn
        """The tail that repair cuts off."""
        self.stored_length = session.length - len(self.closers)
        """How many events are stored; the closers come after them."""

    @property
    def header(self) -> SessionHeader:
        return self._session.header

    @property
    def length(self) -> int:
        """The number of events."""
        return self._session.length

    @property
    def needs_repair(self) -> bool:
        """The stored file would be changed by opening the session for writing."""
        return self.torn is not None or bool(self.closers)

    def entries(self, start: int = 0) -> list[Entry]:
        """Events from `start` on, packed runs left packed."""
        return self._session.entries(start)

    def walk(self) -> Iterator[Entry]:
        """All events one entry at a time, packed runs left packed; costs no memory beyond one of them."""
        return self._session.walk()

    def stored(self) -> Iterator[Entry]:
        """The same of the stored events alone, without the closers."""
        return takewhile(lambda entry: entry_start(entry) < self.stored_length, self.walk())

    def select(self, *types: str) -> Iterator[SessionEvent]:
        """The events of some types; packed deltas are passed over unseen."""
        return self._session.select(*types)

    def last(self, kind: str) -> SessionEvent | None:
        """The last event of a type, packed deltas not counted."""
        return self._session.last(kind)

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[SessionEvent]:
        """Events from `start` up to `stop`, packed runs expanded one by one."""
        return self._session.events(start, stop)

    def event(self, seq: int) -> SessionEvent:
        return self._session.event(seq)

    def derive_messages(self) -> tuple[Message, ...]:
        """What the model would be shown."""
        return self._session.derive_messages()

    @property
    def irregularities(self) -> Sequence[tuple[int, str]]:
        """Seqs of events that are odd where they stand, and why; such a log opens all the same."""
        return self._session.irregularities

    @property
    def surface_nodes(self) -> tuple[int, ...]:
        """The seqs the messages come from."""
        return self._session.surface_nodes

    @property
    def request_header(self) -> FrozenDict | None:
        """The last request header in canonical form."""
        return self._session.request_header

    @property
    def open_turn(self) -> int | None:
        """Number of the turn that has no end; only a live session's view has one."""
        return self._session.open_turn

    def fork(self, *, boundary: int | None = None, turn: int | None = None) -> ForkSeed:
        """What a fork of this log begins with: all of it, or up to an event, or up to the end of a turn.

        Raises:
            SessionForkError: no such event or turn, or inside a turn that has not ended.
        """
        if turn is not None:
            boundary = boundary_of_turn(self._session, turn)
        return fork_of(self._session, boundary)

    def to_session(self) -> Session:
        """A session that continues this log: the view, then `session/end-seed` unless it ends with one."""
        session = self._session.copy()
        session.end_seed()
        return session


def build_view(stored: Stored) -> LogView:
    """Check what was read, closers included.

    Raises:
        SessionCorruption: an event breaks a rule, or the closers would; the error holds the line.
        SessionFormatUnsupported: an event type that this program may neither interpret nor pass over.
    """
    path = stored.place
    try:
        restored = stored.content.finish()
    except UnsupportedLog as error:
        kind = OtherVersion if error.index is None else UnknownType
        raise kind(f"{error} (raw log: {path})", path=path, line=_line(error), hint=error.hint) from error
    except CorruptLog as error:
        raise SessionCorruption(error.message, path=path, line=_line(error), hint=error.hint) from error
    except SessionError as error:
        raise SessionCorruption(of_header(error), path=path, line=1) from error
    added = len(restored.closers)
    recovered: list[Entry] = []
    if stored.torn is not None and stored.torn.recovered:
        recovered = restored.view.entries(stored.next_seq - stored.torn.recovered)
        recovered = recovered[: len(recovered) - added]
    return LogView(restored.view, closers=restored.closers, recovered=recovered, torn=stored.torn)


def _line(error: CorruptLog | UnsupportedLog) -> int:
    """The 1-based line of the entry at fault: entries are the lines behind the header's."""
    return 0 if error.index is None else error.index + 2


def same_prefix(view: LogView, session: Session) -> bool:
    """Whether a live session begins with exactly the stored events."""
    if view.stored_length > session.length:
        return False
    stored, live = view.events(0, view.stored_length), session.events(0, view.stored_length)
    return all(json_equal(a.to_json(), b.to_json()) for a, b in zip(stored, live, strict=True))
