"""In process: stored sessions opened, listed and written. Prints one figure a line, by name.

The logs are those a job writes, as the real backends write them. Run by `python -m benchmarks`, or alone:
`python -m benchmarks.sessions`.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import kept_kib
from dsh.persistence.backend import Backend
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.value import freeze

FEW_CHUNKS, MANY_CHUNKS = 250_000, 1_000_000
"""A log of fewer fits the caches of the processor, which says nothing about growth."""
RUN = 6_250
"""Deltas of one packed row."""
FEW_SESSIONS, MANY_SESSIONS = 500, 5_000
FEW_FLUSHES, MANY_FLUSHES = 1_000, 5_000
"""Either takes SQLite through several checkpoints of its write-ahead log, each some 300 appends long."""


def header(number: int = 0) -> SessionHeader:
    return SessionHeader(id=f"bench-{number:05}", created_at=1_700_000_000_000 + number, cwd="/srv/app")


def events(*rows: tuple[str, Any]) -> list[Entry]:
    return [SessionEvent(kind, seq, seq, freeze(data, kind)) for seq, (kind, data) in enumerate(rows)]


def chunks(count: int) -> Iterator[Entry]:
    """One step whose reply has that many text deltas."""
    yield from events(("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1}))
    for start in range(0, count, RUN):
        size = min(RUN, count - start)
        texts = [f" tok{n % 997}" for n in range(start, start + size)]
        yield ChunkRun("text", 2 + start, (0, 0), (1, 1, 0), [0] * (size - 1), texts)


def opened(folder: Path, count: int) -> tuple[float, float]:
    """Seconds to open a log of so many deltas and derive its messages; KiB kept for each."""
    backend = JsonlBackend(folder)
    backend.append(header(), list(chunks(count)))
    path = backend.locate(header())
    backend.close()
    open_view(path)
    spent = min(timed(lambda: open_view(path)) for _ in range(3))
    gc.collect()
    before = kept_kib()
    view = open_view(path)
    after = kept_kib()
    assert view.length >= count
    return spent, (after - before) / count


def open_view(path: Path) -> LogView:
    view = build_view(read_log(path))
    view.derive_messages()
    return view


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def listed(folder: Path, count: int) -> float:
    """Seconds to list that many stored sessions."""
    backend = JsonlBackend(folder)
    for number in range(count):
        backend.append(header(number), events(("turn/start", {"turn": 1})))
        backend.release(header(number).id)
    found = backend.list()
    assert len(found.sessions) == count and not found.problems
    return min(timed(backend.list) for _ in range(3))


async def flushed(backend: Backend[Any], count: int) -> float:
    """Seconds of that many appends to a live session, each waited for until it is durable."""
    session = Session(header())
    coordinator = Coordinator(backend)
    session.on_append = lambda seq, event: coordinator.appended(session)
    coordinator.attach(session, is_new=True)
    session.append("feedback/record", {"text": "warm"})
    await coordinator.flush(session)
    begin = time.perf_counter()
    for number in range(count):
        session.append("feedback/record", {"text": f"note {number}"})
        await coordinator.flush(session)
    spent = time.perf_counter() - begin
    await coordinator.close()
    return spent


def figures(root: Path) -> Iterator[tuple[str, float]]:
    few_s, _ = opened(root / "few", FEW_CHUNKS)
    many_s, kib = opened(root / "many", MANY_CHUNKS)
    yield "open_s", many_s
    yield "open_growth", many_s / few_s / (MANY_CHUNKS / FEW_CHUNKS)
    yield "kept_kib", kib
    few_s = listed(root / "list-few", FEW_SESSIONS)
    many_s = listed(root / "list-many", MANY_SESSIONS)
    yield "list_s", many_s
    yield "list_growth", many_s / few_s / (MANY_SESSIONS / FEW_SESSIONS)
    for name, make in (
        ("jsonl", lambda folder: JsonlBackend(folder)),
        ("sqlite", lambda folder: SqliteBackend(folder / "sessions.db")),
    ):
        times = []
        for count in (FEW_FLUSHES, MANY_FLUSHES):
            folder = root / f"{name}-{count}"
            folder.mkdir(mode=0o700)
            times.append(asyncio.run(flushed(make(folder), count)) / count)
        yield f"flush_{name}_us", times[1] * 1e6
        yield f"flush_{name}_growth", times[1] / times[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, value in figures(Path(folder)):
            sys.stdout.write(f"{name} {value:.6g}\n")


if __name__ == "__main__":
    main()
