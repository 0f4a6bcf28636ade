"""The row over a real kernel and a real store: live sessions become files, flush means durable."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.errors import CompositionError
from dsh.kernel import Context, Fiber, ValidationError, resolve_config
from dsh.persistence.error import SessionBusy, SessionCollision
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.view import build_view
from dsh.plugins import session as session_row
from dsh.plugins import session_persistence_jsonl as row
from dsh.session.chunk import TextDelta
from dsh.session.store import SESSIONS, SessionStore
from tests.aio import aio

COMPLETED = {"turn": 1, "reason": {"kind": "completed"}}


async def mounted(root: Path, **options: object) -> tuple[Context, SessionStore, Fiber]:
    ctx = Context()
    await ctx.plugin(session_row)
    fiber = await ctx.plugin(row, {"root": str(root), **options})
    store = ctx.get(SESSIONS)
    assert store is not None
    return ctx, store, fiber


def stored(root: Path) -> list[str]:
    (path,) = (path for path in root.rglob("session.jsonl*") if path.suffix != ".tmp")
    view = build_view(read_log(path))
    return [event.type for event in view.events(0, view.stored_length)]


@aio
async def test_after_a_flush_everything_is_in_the_file(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    ctx, store, _ = await mounted(root)
    session, _ = store.create("one", cwd="/srv/app")
    await store.flush(session)
    assert not root.exists()

    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for number in range(1000):
        session.append_chunk(1, 1, TextDelta(0, f"t{number}"))
    assert await store.flush(session)

    assert len(stored(root)) == 1002
    assert (root / "--srv-app--" / "one" / "session.jsonl.zstd").exists()
    await ctx.dispose()


@aio
async def test_the_end_of_the_tree_stores_what_no_barrier_did(tmp_path: Path) -> None:
    ctx, store, _ = await mounted(tmp_path, compression="none", writeBatchMaxDelayMs=60_000)
    session, effect = store.create("one")
    session.append("turn/start", {"turn": 1})
    other, _ = store.create("two")
    other.append("turn/start", {"turn": 1})
    session.append("turn/end", COMPLETED)
    effect()  # detached: its rest is stored on the way out

    await ctx.dispose()

    listing = sorted(path.parent.name for path in tmp_path.rglob("session.jsonl"))
    assert listing == ["one", "two"]


@aio
async def test_a_window_passes_and_the_events_are_written_without_a_barrier(tmp_path: Path) -> None:
    ctx, store, _ = await mounted(tmp_path, writeBatchMaxDelayMs=1)
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    for _ in range(500):
        await asyncio.sleep(0.002)
        if list(tmp_path.rglob("session.jsonl.zstd")):
            break
    assert stored(tmp_path) == ["turn/start"]
    await ctx.dispose()


@aio
async def test_a_session_whose_id_is_stored_is_vetoed(tmp_path: Path) -> None:
    ctx, store, _ = await mounted(tmp_path)
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await store.flush(session)
    await ctx.dispose()

    ctx, store, _ = await mounted(tmp_path)
    with pytest.raises(SessionCollision):
        store.create("one")
    assert store.list() == ()
    await ctx.dispose()


@aio
async def test_mounting_again_over_an_open_turn_goes_on_where_it_was(tmp_path: Path) -> None:
    ctx, store, fiber = await mounted(tmp_path)
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await fiber.dispose()
    session.append("step/start", {"turn": 1, "step": 1})

    await ctx.plugin(row, {"root": str(tmp_path)})
    await store.flush(session)

    assert stored(tmp_path) == ["turn/start", "step/start"]
    await ctx.dispose()


@aio
async def test_a_stored_session_is_resumed_through_the_store(tmp_path: Path) -> None:
    ctx, store, _ = await mounted(tmp_path)
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await ctx.dispose()

    ctx, store, _ = await mounted(tmp_path)
    persistence = ctx.get(PERSISTENCE)
    assert persistence is not None
    reservation = await persistence.prepare("one")
    store.enter(reservation.session)
    store.announce(reservation.session)
    await store.flush(reservation.session)
    assert stored(tmp_path) == ["turn/start", "turn/end", "session/end-seed"]

    other, _, _ = await mounted(tmp_path)
    second = other.get(PERSISTENCE)
    assert second is not None
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        await second.prepare("one")
    await ctx.dispose()
    await (await second.prepare("one")).release()
    await other.dispose()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"root": "/x", "compression": "gzip"},
        {"root": "/x", "preparedSessionCacheSize": 0},
        {"root": "/x", "writeBatchMaxDelayMs": 0},
        {"root": "/x", "writeBatchMaxDelayMs": 2_147_483_648},
        {"root": "/x", "packChunk": True},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(row.Config, options)


def test_the_root_must_be_a_folder_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert row.usable_root(str(tmp_path / "absent")) == tmp_path / "absent"
    for bad in ("", str(tmp_path / "file")):
        with pytest.raises(CompositionError, match="root"):
            row.usable_root(bad)


WRITER = """
import asyncio, sys
from dsh.kernel import Context
from dsh.plugins import session, session_persistence_jsonl
from dsh.session.chunk import TextDelta
from dsh.session.store import SESSIONS
async def main():
    ctx = Context()
    await ctx.plugin(session)
    await ctx.plugin(session_persistence_jsonl, {"root": sys.argv[1], "writeBatchMaxDelayMs": 1})
    store = ctx.get(SESSIONS)
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


@pytest.mark.parametrize("flushes", [1, 3, 8])
def test_what_was_flushed_survives_a_kill(tmp_path: Path, flushes: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        promised = 0
        for _ in range(flushes):
            promised = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        promised = max([promised, *map(int, writer.stdout.read().split())])

    (path,) = tmp_path.rglob("session.jsonl.zstd")
    view = build_view(read_log(path))

    assert view.stored_length >= promised
    assert [event.seq for event in view.events()] == list(range(view.length))
    assert view.event(view.length - 1).data["reason"] == {"kind": "interrupted"}
