"""A coordinator over plain logs, and sessions for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dsh.persistence.coordinator import Coordinator
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.persistence.clock import ManualClock
from tests.persistence.faults import FaultyFiles

HEAD = SessionHeader(id="demo.1", created_at=1_700_000_000_000, cwd="/srv/app", delegation_depth=0)


@asynccontextmanager
async def opened(
    root: Path, *, files: FaultyFiles | None = None, clock: ManualClock | None = None
) -> AsyncIterator[Coordinator]:
    coordinator = Coordinator(JsonlBackend(root, encoding="plain", files=files), schedule=clock)
    try:
        yield coordinator
    finally:
        await coordinator.close()


def store_text(root: Path, text: bytes) -> Path:
    path = root / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def event(seq: int, kind: str = "session/title", turn: int = 1) -> SessionEvent:
    return SessionEvent(kind, seq, 1, {"turn": turn})


def live(session_id: str = "demo.1", cwd: str = "/srv/app") -> Session:
    return Session(SessionHeader(id=session_id, created_at=1, cwd=cwd, delegation_depth=0))


async def lines_of(root: Path) -> list[bytes]:
    (path,) = root.rglob("session.jsonl")
    return path.read_bytes().splitlines()[1:]
