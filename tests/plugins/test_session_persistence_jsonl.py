"""The row over a real kernel and a real store: live sessions become files, flush means durable."""

import asyncio
from pathlib import Path

import pytest

from dsh.errors import CompositionError
from dsh.kernel import Context, Fiber, ValidationError, resolve_config
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.plugins import session as session_row
from dsh.plugins import session_persistence_jsonl as row
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
