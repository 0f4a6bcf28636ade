"""Recorded logs under the queries: the folds agree with the session's own, and everything can be searched."""

import shutil
from pathlib import Path

import pytest

from dsh.capabilities.session_query import OneOf, SearchRequest
from dsh.persistence.error import LogRefusal
from dsh.persistence.jsonl.layout import Encoding, log_path
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import LogView, build_view
from dsh.plugins import session_persistence_sqlite
from dsh.plugins.session_query_sqlite.predicates import EventTest
from dsh.plugins.session_query_sqlite.records import Records
from dsh.plugins.session_query_sqlite.text import TYPES, folded, searchable
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.session_query.kit import corpus, turn

LOGS = sorted(CORPUS.glob("*/*.jsonl*")) if CORPUS.is_dir() else []


def view_of(path: Path) -> LogView | None:
    """None for a log that is refused."""
    try:
        stored = read_log(path)
        return build_view(stored)
    except LogRefusal:
        return None


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_records_agree_with_the_events_and_the_surface_of_the_log(path: Path) -> None:
    if (view := view_of(path)) is None:
        return
    records = list(Records("x", view.entries(), EventTest([])))
    assert [(one.seq, one.type, one.time) for one in records] == [
        (event.seq, event.type, event.time) for event in view.events()
    ]
    current = [one.seq for one in records if one.surface == "current"]
    assert current == sorted(view.surface_nodes)


def test_literal_texts_are_compared_without_case_and_kind_of_white_space() -> None:
    assert folded(" A\u00a0B\n\tc ") == " a b c "


@needs_corpus
@aio
async def test_a_folder_of_recorded_logs_can_be_searched_whole(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    expected: dict[str, int] = {}
    for path in LOGS:
        view = view_of(path)
        if view is None or view.header.id in expected:
            continue
        encoding: Encoding = "zstd" if path.suffix == ".zstd" else "plain"
        target = log_path(root, view.header.id, view.header.cwd, encoding)
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
        expected[view.header.id] = sum(
            1 for event in view.events() if event.type in TYPES and "the" in folded(searchable(event)).split()
        )
    async with corpus(root, openAt="startup") as it:
        listed = await it.query.list()
        assert {found.header.id for found in listed.sessions} == expected.keys()
        request = SearchRequest(query="the", events=(OneOf("type", TYPES),), limit=100)
        page = await it.query.search_sessions(request)
        assert page.problems == ()
        hits = {hit.session.header.id for hit in page.hits}
        assert {one for one, count in expected.items() if count} <= hits


@aio
async def test_sessions_in_a_database_are_asked_like_those_in_files(tmp_path: Path) -> None:
    database = {"path": str(tmp_path / "private" / "sessions.db")}
    async with corpus((session_persistence_sqlite, database), openAt="startup") as it:
        await it.stored("kept", "a needle", cwd="/srv", origin="subagent")
        turn(it.live("now"), "a needle")
        for _ in range(2):
            page = await it.query.search_events(SearchRequest(query="needle"))
            assert {hit.session.source: hit.session.header.id for hit in page.hits} == {
                "stored": "kept",
                "live": "now",
            }
        assert page.hits[0].session.header.cwd in (None, "/srv")
        assert (await it.query.read_log("kept")).length == 6
        found = await it.query.filter_sessions([OneOf("origin", ("subagent",))])
        assert [one.header.id for one in found.sessions] == ["kept"]
