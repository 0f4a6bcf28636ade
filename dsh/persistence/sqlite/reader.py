"""Reading one session out of an open transaction. Nothing here changes a database."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dsh.persistence.backend import StorageFigures, StoredProblem, StoredSession, Tail
from dsh.persistence.error import OtherVersion, SessionCorruption
from dsh.persistence.jsonl.figures import unpacked_size
from dsh.persistence.sqlite.record import (
    COLUMNS,
    MAX_MEMBERS,
    DamagedRow,
    Record,
    count_of,
    read_row,
    shown,
    utf8,
)
from dsh.persistence.sqlite.scan import DamagedRows, RowScanner
from dsh.persistence.sqlite.schema import Text, is_uuid
from dsh.persistence.stored import Stored, Torn
from dsh.persistence.system import problem_of
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import SessionError, UnsupportedLog
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.projection.unit import text_at
from dsh.session.restore import Restorer
from dsh.session.value import encode

_SESSION = (
    "id, version, created_at, cwd, parent_session, seed_length, origin, delegation_depth, agent_preset, "
    "incarnation, revision"
)
_FIELDS = (
    "id",
    "version",
    "createdAt",
    "cwd",
    "parentSession",
    "seedLength",
    "origin",
    "delegationDepth",
    "agentPreset",
)
"""What the columns are called in a header, up to the incarnation."""
_SIZE = (
    "length(type) + 16 + length(CAST(data AS BLOB))"
    " + coalesce(length(source_event_seqs), 0) + coalesce(length(surface_op), 0)"
)
"""Bytes of one row's values."""


class TornRows(Torn, frozen=True, kw_only=True):
    """The last rows of a session."""

    seq: int
    """Of the first row that is removed."""
    rows: int

    @property
    def extent(self) -> str:
        return f"{self.rows} rows from seq {self.seq} on"


class StoredRows(Stored, frozen=True, kw_only=True):
    """A session as it is in the database."""

    state: "RowState"
    torn: TornRows | None


class RowState(NamedTuple):
    """Which state of which session: a session deleted and made anew has another incarnation."""

    incarnation: str
    revision: int
    """Grows with each write."""


class SessionRow(NamedTuple):
    """One row of table `sessions`."""

    header: SessionHeader
    state: RowState


def read_session(db: sqlite3.Connection, session_id: str, place: str) -> SessionRow | None:
    """The row of a session, or None.

    Raises:
        SessionCorruption, SessionFormatUnsupported: it is none that we understand.
    """
    found = db.execute(
        f"SELECT {_SESSION} FROM sessions WHERE id = CAST(? AS TEXT)", (utf8(session_id),)
    ).fetchone()
    return None if found is None else _session_row(found, place)


def read_state(db: sqlite3.Connection, session_id: str) -> RowState | None:
    """The state of a session alone."""
    found = db.execute(
        "SELECT incarnation, revision FROM sessions WHERE id = CAST(? AS TEXT)", (utf8(session_id),)
    ).fetchone()
    return None if found is None else RowState(shown(found[0]), found[1])


def _session_row(row: Sequence[Any], place: str) -> SessionRow:
    *values, incarnation, revision = row
    try:
        header = header_from_json(
            {
                key: value.decode("utf-8", "surrogatepass") if isinstance(value, Text) else value
                for key, value in zip(_FIELDS, values, strict=True)
                if value is not None
            }
        )
    except UnsupportedLog as error:
        hint = error.hint or "open it with the program that wrote it"  # there is no text to fall back on
        raise OtherVersion(error.message, path=place, hint=hint) from error
    except (SessionError, UnicodeDecodeError) as error:
        raise SessionCorruption(f"header: {error}", path=place) from error
    if not is_uuid(incarnation) or type(revision) is not int:
        raise SessionCorruption("header: the incarnation of the session is no UUID", path=place)
    return SessionRow(header, RowState(incarnation.decode(), revision))


def read_stored(db: sqlite3.Connection, session: SessionRow, place: str, revision: str) -> StoredRows:
    """All of a session.

    Raises:
        SessionCorruption: a finished turn stands on or behind what is wrong.
    """
    content = Restorer(session.header)

    def take(record: Record, line: bytes) -> None:
        content.take(record, line or None)

    scanner = RowScanner(take)
    scan(scanner, _rows(db, session.header.id, 0), place)
    return StoredRows(
        place=place,
        header=session.header,
        content=content,
        next_seq=scanner.next_seq,
        revision=revision,
        state=session.state,
        torn=_torn(db, session.header.id, scanner),
    )


def _torn(db: sqlite3.Connection, session_id: str, scanner: RowScanner) -> TornRows | None:
    if (defect := scanner.defect) is None:
        return None
    count = db.execute(
        "SELECT count(*) FROM events WHERE session_id = CAST(? AS TEXT) AND seq >= ?",
        (utf8(session_id), defect.seq),
    ).fetchone()[0]
    return TornRows(reason=defect.reason, seq=defect.seq, rows=count)


def scan(scanner: RowScanner, rows: Iterable[Sequence[object]], place: str) -> None:
    """Let a scanner take rows; what it raises is told with the place."""
    try:
        scanner.scan(rows)
    except DamagedRows as damaged:
        raise SessionCorruption(damaged.reason, path=place, line=damaged.line) from None


def _rows(db: sqlite3.Connection, session_id: str, start: int) -> sqlite3.Cursor:
    return db.execute(
        f"SELECT {COLUMNS} FROM events WHERE session_id = CAST(? AS TEXT) AND seq >= ? ORDER BY seq",
        (utf8(session_id), start),
    )


def read_tail(db: sqlite3.Connection, session: SessionRow, seq: int, place: str) -> Tail:
    """The events of a session from `seq` on. Of a packed row that holds it, the rest."""
    session_id = session.header.id
    start = _covering(db, session_id, seq)
    entries: list[Record] = []
    scanner = RowScanner(lambda record, _: entries.append(record), start)
    scan(scanner, _rows(db, session_id, start), place)
    if entries and start < seq:
        first = entries[0]
        assert isinstance(first, ChunkRun)
        entries[0] = first.slice(seq - start)
    return Tail(session.header, tuple(entries))


def _covering(db: sqlite3.Connection, session_id: str, seq: int) -> int:
    """The seq of the earliest packed row that holds the event `seq`, else `seq` itself."""
    before = db.execute(
        f"SELECT {COLUMNS} FROM events WHERE session_id = CAST(? AS TEXT) AND ignorable = 0"
        " AND seq BETWEEN ? AND ? ORDER BY seq",
        (utf8(session_id), seq - MAX_MEMBERS + 1, seq - 1),
    )
    for row in before:
        try:
            record, _ = read_row(row)
        except (DamagedRow, SessionError):
            continue
        first: int = row[0]
        if first + count_of(record) > seq:
            return first
    return seq


def next_seq(db: sqlite3.Connection, session_id: str, place: str) -> int:
    """The seq behind the last row of a session.

    Raises:
        SessionCorruption: that row does not decode.
    """
    last = db.execute(
        f"SELECT {COLUMNS} FROM events WHERE session_id = CAST(? AS TEXT) ORDER BY seq DESC LIMIT 1",
        (utf8(session_id),),
    ).fetchone()
    if last is None:
        return 0
    try:
        record, _ = read_row(last)
    except (DamagedRow, SessionError) as error:
        raise SessionCorruption(f"the last row does not decode ({error})", path=place) from None
    stop: int = last[0] + count_of(record)
    return stop


def read_figures(db: sqlite3.Connection, session: SessionRow, place: str) -> StorageFigures:
    """What the storage of a session consists of. A torn tail counts as stored bytes alone."""
    rows = packed_rows = packed_events = 0
    text = unpacked = len(encode(session.header.to_line())) + 1

    def take(record: Record, line: bytes) -> None:
        nonlocal rows, packed_rows, packed_events, text, unpacked
        rows += 1
        if isinstance(record, ChunkRun):
            packed_rows += 1
            packed_events += len(record)
            text += len(encode(record.to_row())) + 1
            unpacked += unpacked_size(record)
        else:
            text += len(line) + 1
            unpacked += len(line) + 1

    scanner = RowScanner(take)
    scan(scanner, _rows(db, session.header.id, 0), place)
    stored = db.execute(
        f"SELECT total({_SIZE}) FROM events WHERE session_id = CAST(? AS TEXT)", (utf8(session.header.id),)
    ).fetchone()[0]
    return StorageFigures(
        encoding="sqlite",
        rows=rows,
        events=scanner.next_seq,
        packed_rows=packed_rows,
        packed_events=packed_events,
        text_bytes=text,
        unpacked_bytes=unpacked,
        stored_bytes=int(stored) + _header_size(session.header),
    )


def _header_size(header: SessionHeader) -> int:
    """Bytes of the values of a session's own row, nearly."""
    return sum(len(str(value)) for value in header.to_json().values())


def list_sessions(
    db: sqlite3.Connection, database: str, token: str
) -> tuple[list[StoredSession], list[StoredProblem]]:
    """One entry a session, and what could not be understood."""
    sessions: list[StoredSession] = []
    problems: list[StoredProblem] = []
    sizes = dict(
        db.execute(f"SELECT session_id, CAST(total({_SIZE}) AS INTEGER) FROM events GROUP BY session_id")
    )
    titles = _titles(db)
    latest = "SELECT time FROM events WHERE session_id = id ORDER BY seq DESC LIMIT 1"
    for *row, written in db.execute(f"SELECT {_SESSION}, ({latest}) FROM sessions"):
        place = place_of(database, shown(row[0]))
        try:
            found = _session_row(row, place)
        except (SessionCorruption, OtherVersion) as error:
            problems.append(problem_of(place, error))
            continue
        sessions.append(
            StoredSession(
                header=found.header,
                place=place,
                path=None,
                revision=revision_of(token, found.state),
                size=sizes.get(row[0], 0) + _header_size(found.header),
                modified_ms=written if type(written) is int else found.header.created_at,
                title=titles.get(row[0]),
            )
        )
    return sessions, problems


def _titles(db: sqlite3.Connection) -> dict[bytes, str]:
    """The last title of each session, by its id as it is stored; a row that does not decode has none."""
    last = (
        f"SELECT session_id, {COLUMNS}, max(seq) FROM events WHERE type = 'session/title' GROUP BY session_id"
    )
    titles: dict[bytes, str] = {}
    for session_id, *row, _ in db.execute(last):
        try:
            record, _ = read_row(row)
        except (DamagedRow, SessionError):
            continue
        if isinstance(record, dict) and (title := text_at(record["data"], "title")) is not None:
            titles[session_id] = title
    return titles


def place_of(database: str, session_id: str) -> str:
    """A session in a database, for messages."""
    return f"{database}#{session_id}"


def revision_of(token: str, state: RowState) -> str:
    """The token of one state of a session."""
    return f"{token}:incarnation:{state.incarnation}:revision:{state.revision}"
