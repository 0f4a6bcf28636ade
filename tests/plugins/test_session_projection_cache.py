"""The cache of projections: written behind the log and never before it; losing it costs a fold."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.projections import PROJECTION_CACHE, PROJECTIONS, ProjectionCache, Projections
from dsh.kernel import Context
from dsh.persistence.error import SessionNotFound
from dsh.persistence.projections import FILE, read_rows, title_of, write_rows
from dsh.persistence.service import PERSISTENCE
from dsh.plugins import session as session_row
from dsh.plugins import (
    session_persistence_jsonl,
    session_projection,
    session_telemetry_otel,
    session_title,
)
from dsh.plugins import session_projection_cache as row
from dsh.session.chunk import BlockStart, TextDelta
from dsh.session.chunk_run import Entry, entry_start, entry_stop
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.projection.fold import Row
from dsh.session.projection.title import TITLE
from dsh.session.projection.unit import Unit
from dsh.session.store import SESSION_DELTA, SESSION_FLUSH, SESSIONS, SessionStore
from tests.agent.kit import settled, until
from tests.aio import aio, aio_in_virtual_time

LAZY = {"writeEveryEvents": 1000, "writeIntervalMs": 600_000}
EAGER = {"writeEveryEvents": 1, "writeIntervalMs": 1}


class Kept:
    """The rows that matter, mounted over one folder."""

    def __init__(self, ctx: Context, root: Path) -> None:
        self.ctx, self.root = ctx, root

    @property
    def store(self) -> SessionStore:
        return self.ctx.use(SESSIONS)

    @property
    def projections(self) -> Projections:
        return self.ctx.use(PROJECTIONS)

    @property
    def cache(self) -> ProjectionCache:
        return self.ctx.use(PROJECTION_CACHE)

    def create(self, session_id: str = "one") -> Session:
        return self.store.create(session_id, cwd="/ws")[0]

    def path(self, session_id: str = "one") -> Path:
        return self.root / "--ws--" / session_id / FILE

    def rows(self, log: Session) -> dict[str, Row]:
        return read_rows(self.path(log.id), log.header)


@asynccontextmanager
async def mounted(root: Path, config: dict[str, int], *, titles: bool = True) -> AsyncIterator[Kept]:
    ctx = Context()
    try:
        await ctx.plugin(session_row)
        await settled(ctx.plugin(session_persistence_jsonl, {"root": str(root)}))
        await settled(ctx.plugin(session_projection, {}))
        kept = Kept(ctx, root)
        if titles:
            kept.projections.register(TITLE)
        await settled(ctx.plugin(row, config))
        await until(lambda: ctx.get(PROJECTION_CACHE))
        yield kept
    finally:
        await ctx.dispose()


def titled(log: Session, title: str = "t") -> None:
    log.append("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})


def moded(log: Session) -> int:
    """An event that no write is due at; its seq."""
    return log.append("sandbox/mode", {"mode": "read-only"}).seq


def stored_through(kept: Kept, log: Session, seq: int) -> bool:
    return [row.seq for row in kept.rows(log).values()] == [seq, seq]


def turn(log: Session, number: int) -> None:
    log.append("turn/start", {"turn": number})
    log.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


@aio
async def test_the_end_of_a_turn_is_written_and_the_log_is_durable_first(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        order: list[str] = []
        kept.ctx.on(SESSION_FLUSH, lambda _: order.append(f"flush {kept.path().exists()}"))
        titled(log)
        turn(log, 1)
        await until(kept.path().exists)

        assert order[0] == "flush False"
        assert kept.rows(log)["title"] == Row(1, 2, "t")
        assert title_of(kept.rows(log)) == "t"
        stored = await kept.ctx.use(PERSISTENCE).read_from("one", 0)
        assert len(stored) == 3


@aio
async def test_a_log_that_cannot_be_made_durable_leaves_the_cache_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with mounted(tmp_path, EAGER) as kept:
        log = kept.create()
        titled(log, "kept")
        await until(lambda: title_of(kept.rows(log)) == "kept")
        refusals = 0

        def refuse(_: Session) -> None:
            nonlocal refusals
            refusals += 1
            raise OSError("no space left")

        refusing = kept.ctx.on(SESSION_FLUSH, refuse)
        titled(log, "lost")
        await until(lambda: refusals == 1)
        titled(log, "lost too")
        await until(lambda: refusals == 2)
        await asyncio.sleep(0)
        assert title_of(kept.rows(log)) == "kept"
        assert [r for r in caplog.records if r.levelname == "WARNING"] == []  # storage tells it

        refusing()
        titled(log, "back")
        await until(lambda: title_of(kept.rows(log)) == "back")


@aio
async def test_what_is_logged_while_a_write_fails_is_stored_by_the_next_one(tmp_path: Path) -> None:
    async with mounted(tmp_path, EAGER) as kept:
        log = kept.create()
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def refuse_once(_: Session) -> None:
            if not begun.is_set():
                begun.set()
                await goes_on.wait()
                raise OSError("no space left")

        kept.ctx.on(SESSION_FLUSH, refuse_once)
        titled(log, "a")
        await begun.wait()
        titled(log, "b")
        goes_on.set()

        await until(lambda: title_of(kept.rows(log)) == "b")


@aio
async def test_a_cache_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with mounted(tmp_path, EAGER) as kept:
        log = kept.create()
        kept.path().mkdir(parents=True)  # nothing can be put in its place
        for name in ("a", "b", "c"):
            titled(log, name)
            await kept.store.flush(log)
            await asyncio.sleep(0.02)

    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(told) == 1
    assert "projections of session one are not kept" in told[0]
    assert list(kept.path().parent.glob(".*")) == []


@aio
async def test_so_many_events_are_a_reason_to_write(tmp_path: Path) -> None:
    async with mounted(tmp_path, {"writeEveryEvents": 3, "writeIntervalMs": 600_000}) as kept:
        log = kept.create()
        for _ in range(2):
            moded(log)
        await asyncio.sleep(0.02)
        assert not kept.path().exists()

        third = moded(log)
        await until(kept.path().exists)
        assert kept.rows(log)["todos"].seq == third


@aio
async def test_so_much_time_after_the_first_event_is_a_reason_to_write(tmp_path: Path) -> None:
    async with mounted(tmp_path, {"writeEveryEvents": 1000, "writeIntervalMs": 20}) as kept:
        log = kept.create()
        for _ in range(2):
            seq = moded(log)
            await until(partial(stored_through, kept, log, seq))


@aio
async def test_a_title_is_written_with_the_next_barrier_for_whoever_lists_a_running_session(
    tmp_path: Path,
) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        for name in ("first", "renamed"):
            titled(log, name)
            await kept.store.flush(log)
            await until(partial(stored_through, kept, log, log.length - 1))
            assert title_of(kept.rows(log)) == name
        before = kept.path().stat().st_ino
        moded(log)
        await kept.store.flush(log)
        await asyncio.sleep(0.02)
        assert kept.path().stat().st_ino == before  # barriers alone are no reason to write


@aio
async def test_a_session_that_ends_is_written_once_its_log_is(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log, effect = kept.store.create("one", cwd="/ws")
        moded(log)
        effect()
        await until(kept.path().exists)
        assert kept.rows(log)["todos"].seq == 0


@aio
async def test_the_end_of_everything_writes_what_is_still_open(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        moded(log)
        path, header = kept.path(), log.header
    assert read_rows(path, header)["todos"].seq == 0


@aio
async def test_a_session_without_an_event_leaves_nothing(tmp_path: Path) -> None:
    async with mounted(tmp_path, EAGER) as kept:
        _, effect = kept.store.create("one", cwd="/ws")
        effect()
        kept.create("two")
    assert list(tmp_path.rglob("*")) == []


@aio
async def test_a_continued_session_is_not_folded_from_its_first_event(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        titled(log, "stored")
        turn(log, 1)
    cached = read_rows(kept.path(), log.header)
    write_rows(
        kept.path(), log.header, {**cached, "title": Row(1, 2, "from the cache"), "gone": Row(4, 1, 7)}
    )

    async with mounted(tmp_path, LAZY) as again:
        prepared = await again.ctx.use(PERSISTENCE).prepare("one")
        again.store.enter(prepared.session)
        again.store.announce(prepared.session)
        assert again.projections.state_of(prepared.session, "title") == "from the cache"
        turn(prepared.session, 2)
    rows = read_rows(kept.path(), log.header)
    assert rows["title"] == Row(1, 5, "from the cache")
    assert rows["gone"] == Row(4, 1, 7)  # of a unit that is not mounted now


@aio
async def test_deleting_the_cache_at_any_time_costs_nothing_but_a_fold(tmp_path: Path) -> None:
    async with mounted(tmp_path, EAGER) as kept:
        log = kept.create()
        titled(log)
        await until(kept.path().exists)
        kept.path().unlink()
        turn(log, 1)
        await until(kept.path().exists)
        assert kept.rows(log)["title"] == Row(1, 2, "t")


@aio
async def test_a_session_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    import shutil

    async with mounted(tmp_path, LAZY) as kept:
        log, effect = kept.store.create("one", cwd="/ws")
        titled(log)
        turn(log, 1)
        await until(kept.path().exists)
        shutil.rmtree(tmp_path / "--ws--")
        effect()
    assert not kept.path().parent.exists()


# -- stored sessions -------------------------------------------------------------------------------


async def stored(root: Path, *titles: str) -> SessionHeader:
    """A session on disk whose cache is of its last event."""
    async with mounted(root, LAZY) as kept:
        log = kept.create()
        for title in titles:
            titled(log, title)
    return log.header


@aio
async def test_what_is_cached_is_shown_without_reading_the_log(tmp_path: Path) -> None:
    header = await stored(tmp_path, "a", "b")
    for log in tmp_path.rglob("session.jsonl*"):
        log.unlink()

    async with mounted(tmp_path, LAZY) as kept:
        seen = kept.cache.cached_snapshot(header)
        assert seen is not None
        assert (seen.values["title"], seen.as_of_seq) == ("b", 1)
        kept.path().unlink()
        assert kept.cache.cached_snapshot(header) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, header: path.unlink(),
        lambda path, header: path.write_bytes(b"{"),
        lambda path, header: write_rows(path, header, {"title": Row(1, 0, "a")}),
        lambda path, header: write_rows(path, header, {"title": Row(0, 1, "of an earlier version")}),
        lambda path, header: write_rows(path, header, {"title": Row(1, 1, 7)}),
        lambda path, header: write_rows(path, header, {"title": Row(1, 99, "beyond the log")}),
        lambda path, header: write_rows(
            path, SessionHeader(id="one", created_at=7, cwd="/ws"), {"title": Row(1, 1, "another life")}
        ),
    ],
    ids=["lost", "broken", "behind", "version", "state", "shrunk", "recreated"],
)
@aio
async def test_a_cold_reading_says_what_the_log_says_and_mends_the_cache(tmp_path: Path, spoil: Any) -> None:
    header = await stored(tmp_path, "a", "b")
    path = tmp_path / "--ws--" / "one" / FILE
    spoil(path, header)

    async with mounted(tmp_path, LAZY) as kept:
        seen = await kept.cache.cold_snapshot(header)

    assert (seen.values, seen.as_of_seq) == ({"todos": None, "title": "b"}, 1)
    assert read_rows(path, header)["title"] == Row(1, 1, "b")


@aio
async def test_a_long_log_is_folded_packed_and_beside_the_event_loop(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        log.append("turn/start", {"turn": 1})
        log.append("step/start", {"turn": 1, "step": 1})
        log.append_chunk(1, 1, BlockStart(0, "text"))
        for _ in range(500):
            log.append_chunk(1, 1, TextDelta(0, "word "))
    seen: list[tuple[str, int]] = []

    def apply(count: int, entry: Entry) -> int:
        seen.append((type(entry).__name__, threading.get_ident()))
        return count + entry_stop(entry) - entry_start(entry)

    async with mounted(tmp_path, LAZY) as kept:
        unit = Unit(
            key="count", version=1, state_type=int, init=int, apply=apply, view=int,
            types=frozenset({"turn/start", "step/start", "assistant/chunk"}), reads_runs=True,
        )  # fmt: skip
        kept.projections.register(unit)
        cold = await kept.cache.cold_snapshot(log.header)

    assert cold.values["count"] == 503
    assert [kind for kind, _ in seen] == ["SessionEvent"] * 3 + ["ChunkRun"]
    assert threading.get_ident() not in {thread for _, thread in seen}


@aio
async def test_a_reading_in_order_changes_nothing(tmp_path: Path) -> None:
    header = await stored(tmp_path, "a", "b")
    path = tmp_path / "--ws--" / "one" / FILE
    before = path.stat()

    async with mounted(tmp_path, LAZY) as kept:
        assert (await kept.cache.cold_snapshot(header)).values["title"] == "b"

    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@aio
async def test_cold_readings_at_the_same_time_agree(tmp_path: Path) -> None:
    header = await stored(tmp_path, "a", "b")
    path = tmp_path / "--ws--" / "one" / FILE
    path.unlink()

    async with mounted(tmp_path, LAZY) as kept:
        seen = await asyncio.gather(*(kept.cache.cold_snapshot(header) for _ in range(8)))

    assert all(one == seen[0] for one in seen)
    assert title_of(read_rows(path, header)) == "b"
    assert sorted(one.name for one in path.parent.iterdir() if one.name.endswith(".tmp")) == []


@aio
async def test_a_live_session_is_read_as_it_is_now(tmp_path: Path) -> None:
    async with mounted(tmp_path, LAZY) as kept:
        log = kept.create()
        titled(log, "now")
        assert (await kept.cache.cold_snapshot(log.header)).values["title"] == "now"


@pytest.mark.parametrize("units", [True, False])
@aio
async def test_a_session_that_is_not_stored_is_not_found(tmp_path: Path, units: bool) -> None:
    header = SessionHeader(id="nobody", created_at=1, cwd="/ws")
    async with mounted(tmp_path, LAZY, titles=units) as kept:
        with pytest.raises(SessionNotFound):
            await kept.cache.cold_snapshot(header)
        assert kept.cache.cached_snapshot(header) is None


@aio
async def test_where_nothing_stores_sessions_there_is_no_cache(tmp_path: Path) -> None:
    ctx = Context()
    await ctx.plugin(session_row)
    await settled(ctx.plugin(session_projection, {}))
    await settled(ctx.plugin(row, EAGER))
    log, _ = ctx.use(SESSIONS).create("one", cwd=str(tmp_path))
    titled(log)
    await asyncio.sleep(0)

    assert ctx.get(PROJECTION_CACHE) is None
    await ctx.dispose()


@aio_in_virtual_time
async def test_a_session_that_has_no_file_of_its_own_has_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    class NoWhere:
        def locate(self, header: SessionHeader) -> None:
            asked.append(header.id)

    monkeypatch.chdir(tmp_path)

    ctx = Context()
    await ctx.plugin(session_row)
    ctx.provide(PERSISTENCE.name, NoWhere())
    await settled(ctx.plugin(session_projection, {}))
    await settled(ctx.plugin(row, EAGER))
    log, _ = ctx.use(SESSIONS).create("one")
    titled(log)
    await asyncio.sleep(10)
    await ctx.dispose()

    assert set(asked) == {"one"}
    assert not caplog.records
    assert not list(tmp_path.iterdir())


# -- crashes ---------------------------------------------------------------------------------------

CRASH = """
import asyncio, os, signal, sys
from pathlib import Path
import dsh.plugins.session_projection_cache as row
from tests.plugins.test_session_projection_cache import EAGER, mounted, titled

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with mounted(Path(sys.argv[1]), EAGER) as kept:
        log = kept.create()
        titled(log, "in both")
        while not kept.path().exists():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        row.write_rows = killed
        titled(log, "in the log alone")
        await asyncio.sleep(30)

asyncio.run(main())
"""


@aio
async def test_a_crash_between_the_log_and_the_cache_leaves_the_cache_behind(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CRASH, str(tmp_path)],
        cwd=Path(__file__).parent.parent.parent,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL

    async with mounted(tmp_path, LAZY) as kept:
        (listed,) = (await kept.ctx.use(PERSISTENCE).list()).sessions
        cached = kept.cache.cached_snapshot(listed.header)
        assert cached is not None
        assert cached.values["title"] == "in both"
        cold = await kept.cache.cold_snapshot(listed.header)
        assert cold.values["title"] == "in the log alone"
        assert title_of(read_rows(kept.path(), listed.header)) == "in the log alone"


@aio
async def test_a_streamed_piece_is_told_to_storage_alone(tmp_path: Path) -> None:
    """Whoever listens to `session/delta` is called for every piece of every reply."""
    async with mounted(tmp_path, EAGER) as kept:
        title_row = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
        await settled(kept.ctx.plugin(session_title, title_row))
        await settled(kept.ctx.plugin(session_telemetry_otel, {}))

        listeners = kept.ctx.kernel.events.select(SESSION_DELTA.name, None)

        assert len(listeners) == 1
