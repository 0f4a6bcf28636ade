"""From the decoded lines of a stored log to a session, in the order that decides which error wins.

Retired vocabulary over the whole log; for each event the conversion of old shapes and the shape of its
message; known types; closers; then header, envelopes, sequence and surface by building the session
(`spec/session-log.md` §13, `spec/persistence.md` §4). Nothing is written before all of it has passed.
"""

from collections.abc import Sequence

from dsh.session.chunk_row import ChunkRun, Entry
from dsh.session.error import CorruptLog, InvalidEvent, JsonError, UnsupportedLog
from dsh.session.event import RepairEvent
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.legacy import LegacyReader
from dsh.session.log import Clock, Session, now_ms
from dsh.session.repair import closers
from dsh.session.value import JsonObject
from dsh.session.vocabulary import check_message_payload, check_retired, is_known


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


def restore(
    header: SessionHeader | JsonObject,
    entries: Sequence[JsonObject | ChunkRun],
    *,
    clock: Clock = now_ms,
) -> Restored:
    """Check and repair a stored log.

    Args:
        header: from `header_from_line`, or in its in-memory shape.
        entries: each line as decoded, packed rows through `row_to_run`; the objects are not changed.

    Raises:
        CorruptLog: an entry breaks a rule; `index` says which (closers count on from the last entry).
        UnsupportedLog: an event type that this program does not know and may not pass over.
        InvalidHeader: the header breaks a rule.
    """
    converted = convert(header.id if isinstance(header, SessionHeader) else str(header.get("id")), entries)
    added = closers(converted)
    checked = header if isinstance(header, SessionHeader) else header_from_json(header)
    session = Session(checked, clock=clock)
    for index, entry in enumerate([*converted, *added]):
        try:
            session.load(entry)
        except (InvalidEvent, JsonError) as error:
            raise _corrupt(index, entry, error) from error
    session.first_live_seq = session.length
    return Restored(session, tuple(added), clock)


def convert(session_id: str, entries: Sequence[JsonObject | ChunkRun]) -> list[JsonObject | ChunkRun]:
    """The entries with old shapes brought up to date, all types known. For readers of a whole log.

    Raises:
        CorruptLog: retired vocabulary, an old shape that is damaged, or a message out of shape.
        UnsupportedLog: an event type that this program does not know and may not pass over.
    """
    for index, entry in enumerate(entries):
        if not isinstance(entry, ChunkRun):
            try:
                check_retired(str(entry.get("type")), entry.get("data"))
            except InvalidEvent as error:
                raise _corrupt(index, entry, error) from error
    reader = LegacyReader(session_id)
    out: list[JsonObject | ChunkRun] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, ChunkRun):
            out.append(entry)
            continue
        try:
            current = reader.convert(entry)
            check_message_payload(str(current.get("type")), current.get("data"))
        except InvalidEvent as error:
            raise _corrupt(index, entry, error) from error
        out.append(current)
    for index, entry in enumerate(out):
        if not isinstance(entry, ChunkRun):
            check_known(index, entry)
    return out


def check_known(index: int, entry: JsonObject) -> None:
    """Refuse an event type that is unknown and not marked as one to pass over.

    Raises:
        UnsupportedLog: names the type and the seq.
    """
    kind = entry.get("type")
    if type(kind) is str and not is_known(kind) and entry.get("ignorable") is not True:
        raise UnsupportedLog(
            f"event type {kind!r} (seq {entry.get('seq')}) is unknown to this program "
            "and not marked ignorable",
            index=index,
            hint="the log was written by a newer program, or by a plugin that is not installed here",
        )


def _corrupt(index: int, entry: object, error: Exception) -> CorruptLog:
    seq = getattr(entry, "seq", None)
    if isinstance(entry, dict):
        seq = entry.get("seq")
    return CorruptLog(f"event {seq!r:.40}: {error}", index=index)
