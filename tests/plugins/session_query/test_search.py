"""Full text search: one phrase, ranked, in pages, over live and stored sessions, with nothing read twice."""

from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.session_query import Between, Containing, EventPage, OneOf, SearchRequest
from dsh.persistence.service import PERSISTENCE
from dsh.plugins.session_query_sqlite import reconcile
from dsh.plugins.session_query_sqlite.search import snippet
from dsh.plugins.session_query_sqlite.text import WORD_BREAK, indexed, searchable, unindexed
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.aio import aio
from tests.plugins.session_query.kit import Corpus, corpus, refused, said, turn

ON = {"openAt": "startup"}


async def found(it: Corpus, query: str, **options: Any) -> EventPage:
    return await it.query.search_events(SearchRequest(query=query, **options))


async def places(it: Corpus, query: str, **options: Any) -> list[tuple[str, int]]:
    page = await found(it, query, **options)
    return [(hit.record.session_id, hit.record.seq) for hit in page.hits]


@aio
async def test_searching_is_refused_where_the_index_is_never_opened() -> None:
    async with corpus(None) as it:
        with refused("SEARCH_DISABLED") as told:
            await found(it, "x")
        assert "openAt: startup" in told.value.hint
        with refused("SEARCH_DISABLED"):
            await it.query.search_sessions(SearchRequest(query="x"))


@aio
async def test_live_and_stored_sessions_are_found_and_a_hit_holds_the_whole_header(tmp_path: Path) -> None:
    async with corpus(tmp_path, **ON) as it:
        await it.stored("kept", "a needle here", cwd="/srv", origin="subagent", delegation_depth=2)
        session = it.live("now", agent_preset="fast")
        turn(session, "another needle")
        hits = {hit.record.session_id: hit for hit in (await found(it, "needle")).hits}
        assert {name: hit.session.source for name, hit in hits.items()} == {"kept": "stored", "now": "live"}
        header = hits["kept"].session.header
        assert (header.cwd, header.origin, header.delegation_depth) == ("/srv", "subagent", 2)
        assert hits["now"].session.header.agent_preset == "fast"
        assert (hits["now"].record.seq, hits["now"].record.surface) == (2, "current")
        assert hits["now"].snippet == "another needle"


@aio
async def test_a_phrase_is_words_in_order_whatever_case_marks_and_operators() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        turn(session, 'The "Quick" brown-fox, näive café')
        for query in ("quick brown", "QUICK  brown\nFOX", "naive CAFE", '"quick"', "fox, näive"):
            assert await places(it, query) == [("one", 2)], query
        for query in ("brown quick", "quick*", "text:quick x", "quick OR done", "quick NEAR fox", "qui"):
            assert await places(it, query) == ([("one", 2)] if query == "quick*" else []), query
        for query in ("", " \n", '"', "*", "\0", "\ud800"):
            with refused("INVALID_QUERY"):
                await found(it, query)
        assert await places(it, "quick\ud800brown") == [("one", 2)]


@pytest.mark.parametrize("is_stored", [False, True])
@aio
async def test_a_phrase_is_found_inside_writing_without_spaces(tmp_path: Path, is_stored: bool) -> None:
    texts = {
        "今天天气很好，我们去公园 with 熊猫panda": (
            "天气",
            "公园",
            "今天天气很好",
            "好 我们",
            "猫 PANDA",
            "天",
        ),
        "テスト用の文章です": ("文章", "スト", "用の", "テスト用の文章です"),
        "한국어 검색입니다": ("검색", "국어 검색입"),
        "ภาษาไทย ค้นหา": ("ไทย", "ค้น"),
        "𠀀𠀁𠀂": ("𠀁",),
    }
    async with corpus(tmp_path, **ON) as it:
        for number, text in enumerate(texts):
            if is_stored:
                await it.stored(f"{number}", text, created=number)
            else:
                turn(it.live(f"{number}", created=number), text)
        for number, (text, queries) in enumerate(texts.items()):
            for query in queries:
                page = await found(it, query)
                assert [hit.record.session_id for hit in page.hits] == [f"{number}"], query
                assert page.hits[0].snippet == text
                assert await places(it, query, events=(Containing(text),)) == [(f"{number}", 2)]
        assert [(hit.matches, hit.record.seq) for hit in (await found(it, "天")).hits] == [(2, 2)]
        for query in ("气天", "公 文", "pan", "章文"):
            assert await places(it, query) == [], query


def test_the_breaks_of_words_can_be_taken_out_again() -> None:
    text = "a\x01b\x02c\x03d\0e 熊猫panda，x猫"
    assert indexed(text).count(WORD_BREAK) == 4
    assert unindexed(indexed(text)) == "a b c d e 熊猫panda，x猫"
    assert indexed("plain words") == "plain words"


@aio
async def test_what_is_searched_is_what_was_said_and_done_without_the_reasoning() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        at = {"turn": 1, "step": 1}
        session.append("turn/start", {"turn": 1})
        session.append("step/start", at)
        said(session, "prompt word")
        message = {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "hidden word"},
                {"type": "text", "text": "answer word"},
                {"type": "tool-call", "id": "c", "name": "bash", "arguments": '{"command": "ls word"}'},
            ],
            "source": {"kind": "model", "provider": "p", "model": "m"},
            "id": "m1",
        }
        session.append("assistant/message", {**at, "message": message}, surface="append", sources=[])
        call = {**at, "callId": "c", "name": "bash", "arguments": '{"command": "ls word"}'}
        called = session.append("tool/call", call).seq
        block = {"type": "tool-result", "toolCallId": "c", "content": [{"type": "text", "text": "out word"}]}
        result = {"source": {"kind": "tool", "callId": "c"}, "content": [block], "role": "user", "id": "r"}
        data = {**at, "message": result, "error": {"name": "BashError", "code": "EXIT_word"}}
        session.append("tool/result", data, surface="append", sources=[called])
        session.append("todo/write", {"todos": [{"content": "todo word", "status": "pending"}]})
        session.append("step/end", at)
        failure = {"message": "failed word", "code": "UNKNOWN"}
        session.append("turn/end", {"turn": 1, "reason": {"kind": "error", "error": failure}})
        types = {hit.record.type for hit in (await found(it, "word")).hits}
        assert types == {
            "user/message", "assistant/message", "tool/call", "tool/result", "todo/write", "turn/end",
        }  # fmt: skip
        assert await places(it, "hidden") == []
        assert await places(it, "BashError") == [("one", 5)]
        assert await places(it, "bash") == [("one", 4)]


@aio
async def test_more_matches_come_first_then_the_shorter_then_the_later_text() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        seqs = [
            said(session, words)
            for words in ("cat and a long tail", "cat", "cat cat and a very long tail", "dog", "cat")
        ]
        page = await found(it, "cat")
        assert [hit.record.seq for hit in page.hits] == [seqs[2], seqs[4], seqs[1], seqs[0]]
        assert [hit.matches for hit in page.hits] == [2, 1, 1, 1]


@aio
async def test_sessions_are_ranked_by_all_their_matches_then_the_newer_one(tmp_path: Path) -> None:
    async with corpus(tmp_path, **ON) as it:
        await it.stored("old", "cat", created=1)
        await it.stored("new", "cat", created=2)
        await it.stored("many", "cat cat", "cat", created=0)
        await it.stored("none", "dog", created=3)
        page = await it.query.search_sessions(SearchRequest(query="cat"))
        assert [(hit.session.header.id, hit.matches) for hit in page.hits] == [
            ("many", 3), ("new", 1), ("old", 1),
        ]  # fmt: skip
        assert (page.hits[0].best.matches, page.hits[0].best.record.seq) == (2, 2)
        first = await it.query.search_sessions(SearchRequest(query="cat", limit=2))
        assert first.next_cursor is not None
        rest = await it.query.search_sessions(SearchRequest(query="cat", cursor=first.next_cursor))
        assert [hit.session.header.id for hit in rest.hits] == ["old"]
        assert rest.next_cursor is None


@aio
async def test_predicates_narrow_a_search(tmp_path: Path) -> None:
    async with corpus(tmp_path, **ON) as it:
        await it.stored("a", "needle one", cwd="/a")
        await it.stored("b", "needle two", cwd="/b")
        session = it.live("c")
        turn(session, "needle three", "needle four")
        assert await places(it, "needle", sessions=(OneOf("cwd", ("/b",)),)) == [("b", 2)]
        assert await places(it, "needle", sessions=(OneOf("source", ("live",)),)) == [("c", 3), ("c", 2)]
        only = (OneOf("type", ("assistant/message",)),)
        assert await places(it, "needle", events=only) == [("c", 3)]
        assert await places(it, "needle", events=(Between("seq", 3, None),)) == [("c", 3)]
        assert await places(it, "needle", events=(Between("time", None, -(10**30)),)) == []
        assert await places(it, "needle", events=(OneOf("sessionId", ("a", "b")), Containing("E T"))) == [
            ("b", 2)
        ]
        assert await places(it, "needle", events=(OneOf("type", ()),)) == []
        assert await places(it, "needle", events=(OneOf("surface", ("shadowed",)),)) == []


@aio
async def test_a_search_has_at_most_fourteen_predicates() -> None:
    async with corpus(None, **ON) as it:
        one = (Between("seq", 0, None),)
        await found(it, "x", events=one * 14)
        with refused("INVALID_FILTER"):
            await found(it, "x", events=one * 14, sessions=(OneOf("cwd", (None,)),))


@aio
async def test_limits_are_those_of_the_row() -> None:
    async with corpus(None, **ON, defaultLimit=2, maxLimit=3) as it:
        session = it.live("one")
        for _ in range(5):
            turn(session, "word", "other")
        assert len((await found(it, "word")).hits) == 2
        assert len((await found(it, "word", limit=3)).hits) == 3
        for limit in (0, 4, True):
            with refused("INVALID_LIMIT"):
                await found(it, "word", limit=limit)


@aio
async def test_pages_join_to_the_whole_and_a_cursor_fits_one_search_only() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        for _ in range(5):
            turn(session, "word", "other")
        whole = await places(it, "word")
        seen: list[tuple[str, int]] = []
        cursor: str | None = None
        first: str | None = None
        while True:
            page = await found(it, "word", limit=2, cursor=cursor)
            seen += [(hit.record.session_id, hit.record.seq) for hit in page.hits]
            cursor = page.next_cursor
            first = first or cursor
            if cursor is None:
                break
        assert seen == whole
        assert first is not None
        for wrong in ("", "x", "%%%", first[:-4], "e30=", "é"):
            with refused("INVALID_CURSOR"):
                await found(it, "word", cursor=wrong)
        with refused("INVALID_CURSOR"):
            await found(it, "other", cursor=first)
        with refused("INVALID_CURSOR"):
            await it.query.search_sessions(SearchRequest(query="word", cursor=first))
        turn(session, "word")
        with refused("STALE_CURSOR"):
            await found(it, "word", cursor=first)


@aio
async def test_a_cursor_of_another_index_is_stale() -> None:
    cursors: list[str] = []
    for _ in range(2):
        async with corpus(None, **ON) as it:
            session = it.live("one")
            for _ in range(3):
                turn(session, "word")
            if cursors:
                with refused("STALE_CURSOR"):
                    await found(it, "word", cursor=cursors[0])
            page = await found(it, "word", limit=1)
            assert page.next_cursor is not None
            cursors.append(page.next_cursor)


@aio
async def test_of_a_live_session_only_what_is_new_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def watched(event: SessionEvent) -> str:
        looked.append(event.seq)
        return searchable(event)

    monkeypatch.setattr(reconcile, "searchable", watched)
    async with corpus(None, **ON) as it:
        session = it.live("one")
        for _ in range(20):
            turn(session, "needle", chunks=5)
        await found(it, "needle")
        before = len(looked)
        await found(it, "needle")
        assert len(looked) == before
        turn(session, "needle")
        assert len((await found(it, "needle", limit=100)).hits) == 21
        assert [seq for seq in looked[before:] if seq < session.length - 6] == []


@aio
async def test_a_replacement_shadows_what_was_indexed_before() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        first = said(session, "needle")
        assert (await found(it, "needle")).hits[0].record.surface == "current"
        session.append(
            "user/message",
            user_message("summary"),
            surface={"op": "replace", "start": first, "end": first},
            sources=[first],
        )
        assert (await found(it, "needle")).hits[0].record.surface == "shadowed"
        assert (await found(it, "summary")).hits[0].record.surface == "current"


@aio
async def test_a_session_is_found_once_through_its_whole_life(tmp_path: Path) -> None:
    async with corpus(tmp_path, **ON) as it:
        session = it.live("one")
        turn(session, "needle")
        assert await places(it, "needle") == [("one", 2)]
        await it.store_away(session)
        assert await places(it, "needle") == [("one", 2)]
        assert (await found(it, "needle")).hits[0].session.source == "stored"
        prepared = await it.ctx.use(PERSISTENCE).prepare("one")
        again: Session = prepared.session
        undo = it.store.enter(again)
        it.store.announce(again)
        turn(again, "needle")
        assert {seq for _, seq in await places(it, "needle")} == {2, again.length - 4}
        undo()
        await it.ctx.use(PERSISTENCE).inspect("one")
        assert len(await places(it, "needle")) == 2


@aio
async def test_a_session_that_went_live_under_another_object_is_indexed_anew() -> None:
    async with corpus(None, **ON) as it:
        session = it.live("one")
        turn(session, "needle")
        assert len(await places(it, "needle")) == 1
        it._undo.pop("one")()
        assert await places(it, "needle") == []
        turn(it.live("one"), "thread")
        assert await places(it, "needle") == []
        assert len(await places(it, "thread")) == 1


@aio
async def test_a_broken_log_is_told_and_hides_no_other(tmp_path: Path) -> None:
    async with corpus(tmp_path, **ON) as it:
        await it.stored("broken", "needle")
        await it.stored("whole", "needle")
        assert len(await places(it, "needle")) == 2
        (path,) = (path for path in tmp_path.rglob("session.jsonl*") if path.parent.name == "broken")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data + b"garbage")
        for _ in range(2):
            page = await found(it, "needle")
            assert [hit.record.session_id for hit in page.hits] == ["whole"]
            assert [(one.place, one.code) for one in page.problems] == [("broken", "CORRUPT_SESSION")]
        path.unlink()
        page = await found(it, "needle")
        assert (len(page.hits), page.problems) == (1, ())


@pytest.mark.parametrize(
    ("marked", "chars", "shown"),
    [
        ("a \x02cat\x03 b", 20, "a cat b"),
        ("  a\n\n\x02cat\x03\tb ", 20, "a cat b"),
        ("x" * 50 + " \x02cat\x03", 10, "…xxxxx cat"),
        ("\x02cat\x03 " + "x" * 50, 10, "cat xxxxx…"),
        ("x" * 50 + " \x02cat\x03 " + "y" * 50, 13, "…xx cat yyyy…"),
        ("", 10, ""),
    ],
)
def test_a_snippet_shows_the_first_match_on_one_line(marked: str, chars: int, shown: str) -> None:
    assert snippet(marked, chars) == shown
    assert len(shown) <= chars
