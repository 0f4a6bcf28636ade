"""The index's file: disposable, never somebody else's database, kept between runs."""

import asyncio
import contextlib
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.session_query import SearchRequest
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins import session as session_row
from dsh.plugins import session_query_sqlite
from dsh.plugins.session_query_sqlite import reconcile
from dsh.plugins.session_query_sqlite.database import APPLICATION_ID, SCHEMA_VERSION
from tests.agent.kit import settled
from tests.aio import aio
from tests.plugins.session_query.kit import Corpus, corpus, turn


async def count(it: Corpus, query: str) -> int:
    return len((await it.query.search_events(SearchRequest(query=query))).hits)


@aio
async def test_the_file_is_marked_private_and_holds_nothing_of_live_sessions(tmp_path: Path) -> None:
    path = tmp_path / "made" / "index.db"
    async with corpus(tmp_path / "s", openAt="startup", path=str(path)) as it:
        await it.stored("kept", "needle")
        turn(it.live("now"), "needle")
        assert await count(it, "needle") == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT DISTINCT session FROM documents").fetchall() == [("kept",)]
    connection.close()


@aio
async def test_what_has_not_changed_is_not_read_again_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"openAt": "startup", "path": str(tmp_path / "index.db")}
    async with corpus(tmp_path / "s", **options) as it:
        await it.stored("one", "needle")
        assert await count(it, "needle") == 1
    monkeypatch.setattr(reconcile, "searchable", lambda event: pytest.fail("read again"))
    async with corpus(tmp_path / "s", **options) as it:
        assert await count(it, "needle") == 1


@pytest.mark.parametrize("damage", ["UPDATE", "version", "table"])
@aio
async def test_an_index_of_another_schema_is_made_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index.db"
    options = {"openAt": "startup", "path": str(path)}
    async with corpus(tmp_path / "s", **options) as it:
        await it.stored("one", "needle")
        assert await count(it, "needle") == 1
    connection = sqlite3.connect(path)
    if damage == "version":
        connection.execute("PRAGMA user_version = 7")
    elif damage == "table":
        connection.execute("ALTER TABLE sessions ADD COLUMN more TEXT")
    else:
        connection.execute("DROP TABLE sessions")
    connection.commit()
    connection.close()
    async with corpus(tmp_path / "s", **options) as it:
        assert await count(it, "needle") == 1


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        foreign_database,
        lambda path: path.write_bytes(b"no database at all" * 100),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path.with_name("elsewhere")),
    ],
)
@aio
async def test_what_is_no_index_is_refused_and_left_alone(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "index.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    ctx = Context()
    await ctx.plugin(session_row)
    with pytest.raises(CompositionError) as told:
        await settled(ctx.plugin(session_query_sqlite, {"openAt": "startup", "path": str(path)}))
    assert told.value.code == "SESSION_QUERY_INDEX_FAILED"
    assert told.value.hint
    assert before is None or path.read_bytes() == before
    await ctx.dispose()


@pytest.mark.parametrize(
    "config",
    [{"defaultLimit": 101}, {"maxLimit": 0}, {"openAt": "later"}, {"path": ""}, {"journalMode": "off"}],
)
@aio
async def test_a_config_that_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    ctx = Context()
    await ctx.plugin(session_row)
    with pytest.raises((CompositionError, ValidationError)):
        await settled(ctx.plugin(session_query_sqlite, {"openAt": "never", **config}))
    await ctx.dispose()


@aio
async def test_an_index_that_breaks_while_it_is_used_is_its_own_failure(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with corpus(tmp_path / "s", openAt="startup", path=str(path), journalMode="delete") as it:
        await it.stored("one", "needle")
        assert await count(it, "needle") == 1
        other = sqlite3.connect(path)
        other.execute("DROP TABLE documents")
        other.commit()
        other.close()
        with pytest.raises(SessionQueryError) as told:
            await count(it, "needle")
        assert told.value.code == "SESSION_QUERY_INDEX_FAILED"
        assert (await it.query.read_log("one")).length == 6


@aio
async def test_a_search_that_waits_while_the_row_goes_is_told() -> None:
    async with corpus(None, openAt="startup") as it:
        turn(it.live("one"), "needle")
        query = it.query
        first = asyncio.ensure_future(query.search_events(SearchRequest(query="needle")))
        late = [asyncio.ensure_future(query.search_events(SearchRequest(query="needle"))) for _ in range(2)]
        await asyncio.sleep(0)
        (index,) = [row for row in it.ctx.registry.values() if row.name == "session-query-sqlite"]
        (fiber,) = index.fibers
        await fiber.dispose()
        assert len((await first).hits) == 1
        for one in late:
            with contextlib.suppress(SessionQueryError):
                assert len((await one).hits) == 1


@aio
async def test_ids_that_sqlite_cannot_hold_are_found_all_the_same() -> None:
    async with corpus(None, openAt="startup") as it:
        for session_id in ("a\0b", "half \ud83d", 'quo"te\\', "🙂"):
            turn(it.live(session_id), "needle")
        page = await it.query.search_events(SearchRequest(query="needle"))
        assert {hit.record.session_id for hit in page.hits} == {"a\0b", "half \ud83d", 'quo"te\\', "🙂"}
