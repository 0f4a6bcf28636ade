"""The changes of a session database, each within a transaction that somebody else opened and ends."""

import base64
import sqlite3
import uuid
from collections.abc import Sequence

from dsh.persistence.error import SessionFileChanged
from dsh.persistence.sqlite.reader import RowState, TornRows, next_seq, read_state
from dsh.persistence.sqlite.record import COLUMNS, INSERT, Row, utf8
from dsh.persistence.sqlite.schema import Text
from dsh.session.header import SessionHeader
from dsh.session.value import encode

_INSERT_SESSION = (
    "INSERT INTO sessions VALUES (CAST(? AS TEXT), ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?,"
    " CAST(? AS TEXT), ?, CAST(? AS TEXT), ?, ?)"
)


def insert_session(db: sqlite3.Connection, header: SessionHeader) -> RowState:
    """Store a session that is not there yet, without events."""
    state = RowState(str(uuid.uuid4()), 1)
    texts = (header.id, header.cwd, header.parent_session, header.origin, header.agent_preset)
    session_id, cwd, parent, origin, preset = (None if text is None else utf8(text) for text in texts)
    numbers = header.seed_length, header.delegation_depth
    db.execute(
        _INSERT_SESSION,
        (
            session_id,
            header.version,
            header.created_at,
            cwd,
            parent,
            numbers[0],
            origin,
            numbers[1],
            preset,
            *state,
        ),
    )
    return state


def count_write(
    db: sqlite3.Connection, session_id: str, seen: RowState, *, stored: int, first: int, place: str
) -> RowState:
    """Check that nobody has written a session since it was `seen`, and count the write that comes now.

    Args:
        stored: how many events it had then.
        first: the seq that is written next.

    Raises:
        SessionFileChanged: somebody has written it or deleted it.
        SessionCorruption: its last row does not decode.
    """
    state = read_state(db, session_id)
    if state is None or state.incarnation != seen.incarnation:
        raise SessionFileChanged(place, "the session was deleted")
    if state != seen:
        stored = next_seq(db, session_id, place)
    if stored != first:
        raise SessionFileChanged(place, f"the session changed ({stored} events are there, not {first})")
    state = RowState(state.incarnation, state.revision + 1)
    db.execute(
        "UPDATE sessions SET revision = ? WHERE id = CAST(? AS TEXT)", (state.revision, utf8(session_id))
    )
    return state


def take_back(db: sqlite3.Connection, session_id: str, start: int) -> None:
    """Remove the rows from a seq on."""
    db.execute(
        "DELETE FROM events WHERE session_id = CAST(? AS TEXT) AND seq >= ?", (utf8(session_id), start)
    )


def insert_rows(db: sqlite3.Connection, session_id: str, rows: Sequence[Row]) -> None:
    """Store the rows of one batch."""
    key = utf8(session_id)
    db.executemany(INSERT, ((key, *row) for row in rows))


def remove_tail(db: sqlite3.Connection, session_id: str, torn: TornRows, place: str) -> bytes:
    """Remove the torn rows of a session.

    Returns:
        What they held, as JSON lines: a list of the columns each, a blob as an object with its base64.

    Raises:
        SessionFileChanged: they are not there, or not they alone.
    """
    tail = "FROM events WHERE session_id = CAST(? AS TEXT) AND seq >= ?"
    where = (utf8(session_id), torn.seq)
    rows = db.execute(f"SELECT {COLUMNS} {tail} ORDER BY seq", where).fetchall()
    if len(rows) != torn.rows:
        raise SessionFileChanged(place, "the torn end of the session changed")
    db.execute(f"DELETE {tail}", where)
    return b"".join(encode([_as_json(value) for value in row]) + b"\n" for row in rows)


def delete_session(db: sqlite3.Connection, session_id: str) -> bool:
    """Remove a session and its events; False when there is none."""
    return db.execute("DELETE FROM sessions WHERE id = CAST(? AS TEXT)", (utf8(session_id),)).rowcount > 0


def _as_json(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    if isinstance(value, Text):
        return value.decode("utf-8", "surrogateescape")
    return {"base64": base64.b64encode(value).decode()}
