"""Logs and databases that the tests of this folder start from."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.session.chunk import TextDelta
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.persistence.golden import TEXT
from tests.persistence.golden import view_of as view_of_file

T0 = 1_700_000_000_000
COMPLETED = {"turn": 1, "reason": {"kind": "completed"}}


def golden(folder: Path) -> tuple[SessionHeader, list[Entry]]:
    """The golden log of the specification: 17 events, one packed run of three."""
    path = folder / "golden.jsonl"
    path.write_bytes(TEXT)
    view = view_of_file(path)
    return view.header, view.entries()


def log(
    session_id: str = "s", *, cwd: str | None = "/srv/app", deltas: int = 0, ends: bool = True
) -> Session:
    """A turn of one step, perhaps with a run of deltas."""
    times = iter(range(T0, T0 + 10_000_000))
    header = SessionHeader(id=session_id, created_at=T0, cwd=cwd)
    session = Session(header, clock=lambda: next(times))
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for number in range(deltas):
        session.append_chunk(1, 1, TextDelta(0, f"t{number}"))
    if ends:
        session.append("step/end", {"turn": 1, "step": 1})
        session.append("turn/end", COMPLETED)
    return session


def titled(session: Session, count: int, title: str = "a title " * 100) -> Session:
    """The session with so many titles behind its last turn, each of 800 bytes where nothing else is said."""
    for _ in range(count):
        session.append("session/title", {"title": title, "source": {"kind": "user"}, "messageSeqs": []})
    return session


def stored(path: Path, *sessions: Session) -> Path:
    """A database with these sessions in it, closed."""
    backend = SqliteBackend(path)
    for session in sessions:
        backend.append(session.header, session.entries())
    backend.close()
    return path


def view_of(backend: SqliteBackend, session_id: str) -> LogView:
    """What `inspect` makes of a session."""
    found = backend.load(session_id)
    assert found is not None
    return build_view(found)


def events_of(view: LogView | Session) -> list[dict[str, Any]]:
    return [event.to_json() for event in view.events()]


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, committed at the end and without any of our checks."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def rows_by_hand(path: Path) -> list[tuple[Any, ...]]:
    """The rows of table `events`, without the session."""
    with by_hand(path) as db:
        return db.execute(
            "SELECT seq, type, time, data, source_event_seqs, surface_op, ignorable FROM events"
            " ORDER BY session_id, seq"
        ).fetchall()
