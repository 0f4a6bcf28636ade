"""Both storages' rows over a real kernel and a real store: live sessions are stored, flush means durable."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.kernel import Context, Fiber
from dsh.persistence.backend import Backend
from dsh.persistence.error import SessionBusy, SessionCollision
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.plugins import session as session_row
from dsh.plugins import session_persistence_jsonl, session_persistence_sqlite
from dsh.session.chunk import TextDelta
from dsh.session.store import SESSIONS, SessionStore
from tests.aio import aio

JOURNALS = ("wal", "delete", "truncate", "persist")


class Place:
    """Where one row keeps its sessions: `kind` is `jsonl`, or the journal mode of a database."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        self._database = root / "s.db"

    async def mount(self, ctx: Context) -> Fiber:
        if self.kind == "jsonl":
            return await ctx.plugin(session_persistence_jsonl, {"root": str(self.root), **WRITES})
        config = {"path": str(self._database), "journalMode": self.kind, **WRITES}
        return await ctx.plugin(session_persistence_sqlite, config)

    async def mounted(self) -> tuple[Context, SessionStore, Fiber]:
        ctx = Context()
        await ctx.plugin(session_row)
        fiber = await self.mount(ctx)
        return ctx, ctx.use(SESSIONS), fiber

    def backend(self) -> Backend[Any]:
        return JsonlBackend(self.root) if self.kind == "jsonl" else SqliteBackend(self._database)

    def view(self) -> LogView:
        """Session `one`, as another process finds it."""
        backend = self.backend()
        found = backend.load("one")
        assert found is not None
        backend.close()
        return build_view(found)

    def types(self) -> list[str]:
        view = self.view()
        return [event.type for event in view.events(0, view.stored_length)]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.root.rglob("*") if path.is_file())


WRITES = {"writeBatchMaxDelayMs": 1}


@pytest.fixture(params=["jsonl", "wal"], ids=["jsonl", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "sessions")


@aio
async def test_after_a_flush_everything_is_stored(place: Place) -> None:
    ctx, store, _ = await place.mounted()
    session, _ = store.create("one", cwd="/srv/app")
    await store.flush(session)
    assert not place.root.exists()

    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for number in range(1000):
        session.append_chunk(1, 1, TextDelta(0, f"t{number}"))
    assert await store.flush(session)

    assert len(place.types()) == 1002
    await ctx.dispose()
    log = {"jsonl": "session.jsonl.zstd", "wal": "s.db"}[place.kind]
    assert [name for name in place.files() if not name.endswith(".lock")] == [log]


@aio
async def test_a_session_whose_id_is_stored_is_vetoed(place: Place) -> None:
    ctx, store, _ = await place.mounted()
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await ctx.dispose()

    ctx, store, _ = await place.mounted()
    with pytest.raises(SessionCollision):
        store.create("one")
    assert store.list() == ()
    await ctx.dispose()


@aio
async def test_mounting_again_over_an_open_turn_goes_on_where_it_was(place: Place) -> None:
    ctx, store, fiber = await place.mounted()
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await fiber.dispose()
    session.append("step/start", {"turn": 1, "step": 1})

    await place.mount(ctx)
    await store.flush(session)

    assert place.types() == ["turn/start", "step/start"]
    await ctx.dispose()


@aio
async def test_a_stored_session_is_resumed_and_busy_for_others(place: Place) -> None:
    ctx, store, _ = await place.mounted()
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await ctx.dispose()

    ctx, store, _ = await place.mounted()
    reservation = await ctx.use(PERSISTENCE).prepare("one")
    store.enter(reservation.session)
    store.announce(reservation.session)
    await store.flush(reservation.session)
    assert place.types() == ["turn/start", "turn/end", "session/end-seed"]

    other, _, _ = await place.mounted()
    second = other.use(PERSISTENCE)
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        await second.prepare("one")
    await ctx.dispose()
    await (await second.prepare("one")).release()
    await other.dispose()


WRITER = """
import asyncio, sys
from pathlib import Path
from dsh.session.chunk import TextDelta
from tests.plugins.test_session_persistence_rows import Place
async def main():
    ctx, store, _ = await Place(sys.argv[1], Path(sys.argv[2])).mounted()
    log, _ = store.create("one", cwd="/srv/app")
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    while True:
        for number in range(50):
            log.append_chunk(1, 1, TextDelta(0, f"t{number}"))
            await asyncio.sleep(0)
        length = log.length
        await store.flush(log)
        print(length, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["jsonl", *JOURNALS])
@pytest.mark.parametrize("flushes", [1, 8])
def test_what_was_flushed_survives_a_kill(tmp_path: Path, flushes: int, kind: str) -> None:
    place = Place(kind, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        promised = 0
        for _ in range(flushes):
            promised = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        told = writer.stdout.read().split("\n")[:-1]  # what stands behind the last line end is cut off
        promised = max([promised, *map(int, told)])

    view = place.view()

    assert view.stored_length >= promised
    assert [event.seq for event in view.events()] == list(range(view.length))
    assert view.event(view.length - 1).data["reason"] == {"kind": "interrupted"}

    backend = place.backend()  # the lock went with the process
    found = backend.open("one")
    assert found is not None
    backend.repair(found, view.closers, view.recovered)
    backend.close()
    assert not place.view().needs_repair
