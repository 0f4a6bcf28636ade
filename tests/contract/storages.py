"""The storages that are interchangeable: the same tests run over each of them."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsh.persistence.backend import Backend
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader


class Storage:
    """One storage under a folder of its own. Each backend that it opens stands for a process."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Backend[Any]],
        tear: Callable[[SessionHeader], None] | None = None,
    ) -> None:
        self.name = name
        self._make = make
        self.tear = tear
        """Leave the beginning of another record behind a stored log, as a crash does."""

    def open(self) -> Backend[Any]:
        return self._make()


def event(seq: int, kind: str = "turn/start", turn: int = 1, **more: Any) -> SessionEvent:
    """An event of a turn."""
    return SessionEvent(kind, seq, 1, {"turn": turn, **more})


def storage(name: str, root: Path) -> Storage:
    """The storage with this name."""
    return _STORAGES[name](root)


def _jsonl(name: str, **options: Any) -> Callable[[Path], Storage]:
    def make(root: Path) -> Storage:
        def tear(header: SessionHeader) -> None:
            path = JsonlBackend(root, **options).locate(header)
            tail = b'{"type":"user/mess' if path.suffix == ".jsonl" else b"\x28\xb5\x2f\xfd\x04"
            with path.open("ab") as file:
                file.write(tail)

        return Storage(name, lambda: JsonlBackend(root, **options), tear)

    return make


def _sqlite(root: Path) -> Storage:
    path = root / "private" / "sessions.db"

    def tear(header: SessionHeader) -> None:
        with sqlite3.connect(path) as database:
            (last,) = database.execute(
                "SELECT max(seq) FROM events WHERE session_id = ?", (header.id,)
            ).fetchone()
            database.execute(
                "INSERT INTO events (session_id, seq, type, time, data) VALUES (?, ?, 'todo/write', 1, '{')",
                (header.id, last + 50),
            )
        database.close()

    return Storage("sqlite", lambda: SqliteBackend(path), tear)


def _memory(root: Path) -> Storage:
    only = SqliteBackend(":memory:")
    return Storage("sqlite-memory", lambda: only)


_STORAGES: dict[str, Callable[[Path], Storage]] = {
    "jsonl-plain": _jsonl("jsonl-plain", encoding="plain"),
    "jsonl-zstd": _jsonl("jsonl-zstd"),
    "jsonl-unpacked": _jsonl("jsonl-unpacked", pack_chunks=False),
    "sqlite": _sqlite,
    "sqlite-memory": _memory,
}
ALL = tuple(_STORAGES)
SHARED = tuple(name for name in ALL if name != "sqlite-memory")
"""Those that two processes can have open."""
