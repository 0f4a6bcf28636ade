"""Every operation with arguments of every kind: an answer or a refusal with a code, whatever lies beside."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.session_query import Between, Containing, OneOf, SearchRequest, SessionQuery
from dsh.capabilities.session_query_error import PREFIX, SessionQueryError
from dsh.plugins import session_persistence_sqlite
from tests.aio import aio
from tests.plugins.session_query.kit import Corpus, corpus, turn

ON = {"openAt": "startup"}
JUNK: list[Any] = [
    None, "", "nobody", "live", "kept", "bad", "../x", "a/b", "\0", "\ud800", "x" * 10_000, -1, 0, 1, 2**70,
    1.5, float("nan"), True, b"x", [], {}, (), object(), ["x"], [None], Containing("x"),
    OneOf("cwd", (None,)), OneOf("cwd", ()), OneOf("type", ("\ud800",)), OneOf("sessionId", ("\ud800",)),
    Between("seq", 2**70, 2**80), Between("time", -(2**70)), Containing("\ud800"), Containing("\0"),
    OneOf([], ("x",)), OneOf("cwd", "text"), OneOf("cwd", [1]), Between({}, 1), Between("seq", 1.5),  # type: ignore[arg-type]
]  # fmt: skip


def operations(query: SessionQuery, junk: Any) -> list[Callable[[], Awaitable[Any]]]:
    """Calls with the junk in each place, alone and as a predicate among others."""
    search = [
        junk,
        SearchRequest(query=junk),
        SearchRequest(query="needle", limit=junk),
        SearchRequest(query="needle", cursor=junk),
        SearchRequest(query="needle", sessions=junk),
        SearchRequest(query="needle", sessions=(junk,)),
        SearchRequest(query="needle", events=junk),
        SearchRequest(query="needle", events=(junk,)),
    ]
    return [
        lambda: query.read_event(junk, 2),
        lambda: query.read_log(junk),
        lambda: query.list_events(junk),
        lambda: query.list_events("live", (junk,)),
        lambda: query.read_surface(junk),
        lambda: query.trace_lineage(junk),
        lambda: query.trace_event(junk, 2),
        lambda: query.trace_event("kept", junk),
        lambda: query.read_event("kept", junk),
        lambda: query.read_event("live", 2, before=junk),
        lambda: query.read_event("live", 2, after=junk),
        lambda: query.titles(junk),
        lambda: query.titles(["kept", junk, "live", "bad"]),
        lambda: query.filter_sessions(junk),
        lambda: query.filter_sessions((junk,)),
        lambda: query.filter_events((), (), limit=junk),
        lambda: query.filter_events(junk, ()),
        lambda: query.filter_events((), junk),
        lambda: query.filter_events((), (junk,)),
        *(lambda one=one: query.search_events(one) for one in search),
        *(lambda one=one: query.search_sessions(one) for one in search),
    ]


async def filled(it: Corpus, *, is_stored: bool) -> None:
    turn(it.live("live", cwd="/ws"), "a live needle", chunks=3)
    if is_stored:
        await it.stored("kept", "a needle", cwd="/ws")
        await it.stored("bad", "a broken needle", cwd="/ws")


@asynccontextmanager
async def jsonl(root: Path) -> AsyncIterator[Corpus]:
    async with corpus(root, **ON) as it:
        await filled(it, is_stored=True)
        (log,) = root.glob("*/bad/session.*")
        log.write_bytes(b"junk")
        (root / "--x--" / "folder" / "session.jsonl").mkdir(parents=True)
        yield it


@asynccontextmanager
async def sqlite(root: Path) -> AsyncIterator[Corpus]:
    path = root / "sessions.db"
    async with corpus((session_persistence_sqlite, {"path": str(path)})) as it:
        await filled(it, is_stored=True)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET data = x'00ff' WHERE session_id = 'bad' AND seq = 2")
    database.close()
    async with corpus((session_persistence_sqlite, {"path": str(path)}), **ON) as it:
        turn(it.live("now", cwd="/ws"), "another live needle", chunks=3)
        yield it


@asynccontextmanager
async def nothing(root: Path) -> AsyncIterator[Corpus]:
    async with corpus(None, **ON) as it:
        await filled(it, is_stored=False)
        yield it


@pytest.mark.parametrize("storage", [jsonl, sqlite, nothing])
@aio
async def test_junk_is_answered_or_refused_by_a_code(tmp_path: Path, storage: Any) -> None:
    refusals = answers = 0
    async with storage(tmp_path) as it:
        before = (await it.query.search_events(SearchRequest(query="needle"))).hits
        for junk in JUNK:
            for operation in operations(it.query, junk):
                try:
                    await operation()
                    answers += 1
                except SessionQueryError as error:
                    assert error.code.startswith(PREFIX) and len(error.message) < 21_000
                    refusals += 1
        assert (await it.query.search_events(SearchRequest(query="needle"))).hits == before
    assert before and refusals > 900 and answers > 50


@pytest.mark.parametrize("storage", [jsonl, sqlite])
@aio
async def test_a_broken_neighbour_is_told_and_hides_nothing(tmp_path: Path, storage: Any) -> None:
    async with storage(tmp_path) as it:
        page = await it.query.search_events(SearchRequest(query="needle"))
        assert {hit.record.session_id for hit in page.hits} >= {"kept"}
        assert {problem.code for problem in page.problems} == {"CORRUPT_SESSION"}
        passed, problems = await it.query.filter_events((), (Containing("needle"),))
        assert {record.session_id for record in passed} == {hit.record.session_id for hit in page.hits}
        assert {problem.code for problem in problems} == {"CORRUPT_SESSION"}
