"""The row over a real kernel and a real store: live sessions become rows, flush means durable."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from dsh.errors import CompositionError
from dsh.kernel import Context, Fiber, ValidationError, resolve_config
from dsh.persistence.error import SessionCollision
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.plugins import session as session_row
from dsh.plugins import session_persistence_sqlite as row
from dsh.session.header import SessionHeader
from dsh.session.store import SESSIONS, SessionStore
from tests.aio import aio

COMPLETED = {"turn": 1, "reason": {"kind": "completed"}}


async def mounted(path: Path | str, **options: object) -> tuple[Context, SessionStore, Fiber]:
    ctx = Context()
    await ctx.plugin(session_row)
    fiber = await ctx.plugin(row, {"path": str(path), **options})
    store = ctx.get(SESSIONS)
    assert store is not None
    return ctx, store, fiber


def stored(path: Path, session_id: str = "one") -> LogView:
    backend = SqliteBackend(path)
    found = backend.load(session_id)
    assert found is not None
    backend.close()
    return build_view(found)


def types_of(path: Path) -> list[str]:
    view = stored(path)
    return [event.type for event in view.events(0, view.stored_length)]


@aio
async def test_a_database_in_memory_serves_its_process_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ctx, store, _ = await mounted(":memory:")
    session, effect = store.create("one")
    session.append("turn/start", {"turn": 1})
    await store.flush(session)
    persistence = ctx.get(PERSISTENCE)
    assert persistence is not None
    effect()
    view = await persistence.load("one")
    assert [event.type for event in view.events()] == ["turn/start", "turn/end"]
    with pytest.raises(SessionCollision):
        store.create("one")
    assert persistence.locate(session.header) is None

    await ctx.dispose()
    assert list(tmp_path.iterdir()) == []


@aio
async def test_a_database_that_is_locked_never_holds_up_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    ctx, store, _ = await mounted(path, busyTimeoutMs=20_000, writeBatchMaxDelayMs=1)
    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    await store.flush(session)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    session.append("turn/end", COMPLETED)
    flushing = asyncio.create_task(store.flush(session))
    beats = 0
    for _ in range(20):
        await asyncio.sleep(0.002)
        beats += 1
    store.create("two")  # asks the database whether the id is stored, and does not wait either
    assert beats == 20 and not flushing.done()

    holder.execute("COMMIT")
    holder.close()
    assert await flushing
    assert types_of(path) == ["turn/start", "turn/end"]
    await ctx.dispose()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "/x", "journalMode": "off"},
        {"path": "/x", "journalMode": "memory"},
        {"path": "/x", "busyTimeoutMs": -1},
        {"path": "/x", "busyTimeoutMs": 2_147_483_648},
        {"path": "/x", "preparedSessionCacheSize": 0},
        {"path": "/x", "writeBatchMaxDelayMs": 0},
        {"path": "/x", "compression": "none"},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(row.Config, options)


@pytest.mark.parametrize("options", [{"busyTimeoutMs": 0}, {"busyTimeoutMs": 2_147_483_647}])
def test_the_ends_of_a_range_are_in_it(options: dict[str, object]) -> None:
    config = resolve_config(row.Config, {"path": "/x", **options})
    assert isinstance(config, row.Config)
    assert (config.journal_mode, config.pack_chunks) == ("wal", True)


def test_a_path_that_cannot_serve_is_refused(tmp_path: Path) -> None:
    assert row.usable_path(":memory:") == ":memory:"
    assert row.usable_path(str(tmp_path / "a" / "b" / "s.db")) == str(tmp_path / "a" / "b" / "s.db")
    (tmp_path / "text").touch(mode=0o600)
    (tmp_path / "open").touch(mode=0o644)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "text")
    for name, match in [
        ("open", "open to others"),
        ("folder", "no regular file"),
        ("link", "no regular file"),
        ("text/s.db", "no folder of its own"),
        ("text/a/s.db", "cannot be"),
    ]:
        with pytest.raises(CompositionError, match=match) as caught:
            row.usable_path(str(tmp_path / name))
        assert str(tmp_path / name.partition("/")[0]) in str(caught.value) and caught.value.hint
    with pytest.raises(CompositionError, match="empty"):
        row.usable_path("")


@aio
async def test_a_database_of_something_else_stops_the_start_and_stays(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("PRAGMA application_id = 77")
    other.execute("CREATE TABLE x (y)")
    other.close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, match in [("text", "no SQLite database"), ("other", "another program's")]:
        (tmp_path / name).chmod(0o600)
        ctx = Context()
        await ctx.plugin(session_row)
        with pytest.raises(CompositionError, match=match) as caught:
            await ctx.plugin(row, {"path": str(tmp_path / name)})
        assert str(tmp_path / name) in str(caught.value) and caught.value.hint
        await ctx.dispose()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@aio
async def test_a_database_that_is_locked_at_the_start_is_waited_for_later(tmp_path: Path) -> None:
    old = SqliteBackend(tmp_path / "s.db")
    old.append(SessionHeader(id="old", created_at=0), ())
    old.close()
    holder = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    holder.execute("PRAGMA journal_mode = delete")
    holder.execute("BEGIN EXCLUSIVE")
    ctx, store, _ = await mounted(tmp_path / "s.db", busyTimeoutMs=2_147_483_647, journalMode="delete")
    holder.execute("COMMIT")
    holder.close()

    session, _ = store.create("one")
    session.append("turn/start", {"turn": 1})
    assert await store.flush(session)
    await ctx.dispose()
    assert types_of(tmp_path / "s.db") == ["turn/start"]
