"""Fallback titles: what a prompt's text becomes, when the row is written, and when it is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins import session, session_title
from dsh.plugins.session_title.text import fallback_title, normalise_title, visible_text
from dsh.session.message import user_message
from tests.agent.kit import data_of, loop, settled, short, text
from tests.aio import aio
from tests.session.build import IMAGE

CONFIG = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
ROWS = [(session_title, CONFIG)]


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        ("plain words", "plain words"),
        ("  a \t b\n\nc\u3000d ", "a b c d"),
        ("\x1b]0;window\x07after", "after"),
        ("\x1b]0;window\x1b\\after", "after"),
        ("\x9d0;to the end", ""),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b1;2Hthere", "there"),
        ("\x1bMup", "up"),
        ("a\x00b\x08c\x0bd\x0ce\x1ff\x7fg\x9fh", "abcdefgh"),
        ("a\u200bb\u200ec\u200fd\u202ee\u2060f\u2066g\ufeffh", "abcdefgh"),
        ("zwj\u200dand\u200cjoin", "zwj\u200dand\u200cjoin"),
        ("tab\tand\rreturn", "tab and return"),
        ("half \ud83d pair", "half \ufffd pair"),
    ],
)
def test_the_table_of_what_is_taken_out(raw: str, title: str) -> None:
    assert normalise_title(raw, 200) == title


def test_a_title_is_cut_between_characters_and_trimmed() -> None:
    assert normalise_title("日本語", 7) == "日本"
    assert normalise_title("ab cd", 3) == "ab"


@given(st.text(), st.integers(1, 100))
def test_a_title_is_one_clean_line_within_its_bytes(raw: str, limit: int) -> None:
    title = normalise_title(raw, limit)
    assert len(title.encode()) <= limit
    assert title == title.strip()
    assert normalise_title(title, limit) == title
    assert not any(ch < " " or ch in "\x7f\x9b\u200b\ufeff" for ch in title)


def test_a_fallback_is_the_first_words_within_its_bytes() -> None:
    assert (
        fallback_title("one two three four five six", max_words=5, max_bytes=40) == "one two three four five"
    )
    assert fallback_title("word " * 9, max_words=9, max_bytes=11) == "word word w"
    assert fallback_title("\u200b \x1b[31m", max_words=5, max_bytes=40) == ""


def test_a_person_is_visible_where_there_is_text_of_theirs() -> None:
    words, nothing = ({"type": "text", "text": text} for text in ("a", ""))
    assert visible_text(user_message([words, nothing, IMAGE, words])) == "a\n\na"
    assert visible_text(user_message([nothing, nothing])) is None
    assert visible_text(user_message([IMAGE])) is None
    assert visible_text(user_message([words], {"kind": "plugin", "plugin": "x"})) is None


@aio
async def test_the_row_stands_between_the_entering_messages_and_the_header() -> None:
    from dsh.agent.prompt import SYSTEM_PROMPT

    async with loop(text("done"), rows=ROWS) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        agent = await it.agent()
        await it.prompt(agent, "Fix the tests of module seven please")
        assert "step/start user/message user/message session/title request/header" in short(agent.session)
        (row,) = data_of(agent.session, "session/title")
        prompt = next(e.seq for e in agent.session.events() if e.type == "user/message")
        assert row == {
            "title": "Fix the tests of module",
            "messageSeqs": (prompt,),
            "source": {"kind": "fallback"},
        }
        assert list(row) == ["title", "messageSeqs", "source"]


@aio
async def test_a_title_is_written_once() -> None:
    async with loop(text("done"), rows=ROWS) as it:
        agent = await it.agent()
        await it.prompt(agent, "first")
        await it.prompt(agent, "second")
        assert [d["title"] for d in data_of(agent.session, "session/title")] == ["first"]


@aio
async def test_only_a_persons_visible_words_count_and_the_first_that_do_win() -> None:
    async with loop(text("done"), rows=ROWS) as it:
        agent = await it.agent()
        agent.inject(user_message("from a plugin", {"kind": "plugin", "plugin": "x"}))
        agent.inject(user_message([IMAGE]))
        agent.inject(user_message([{"type": "text", "text": "two"}, {"type": "text", "text": "blocks"}]))
        await it.prompt(agent, "the prompt")
        assert [d["title"] for d in data_of(agent.session, "session/title")] == ["two blocks"]


@aio
async def test_nothing_is_written_where_nothing_can_be_shown() -> None:
    async with loop(text("done"), rows=ROWS) as it:
        agent = await it.agent()
        await it.prompt(agent, "\x1b[31m\u200b")
        assert data_of(agent.session, "session/title") == []


@aio
async def test_a_session_that_has_a_title_keeps_it() -> None:
    async with loop(text("done"), rows=ROWS) as it:
        agent = await it.agent()
        chosen = {"title": "mine", "messageSeqs": [], "source": {"kind": "user"}}
        agent.session.append("session/title", chosen)
        await it.prompt(agent, "first")
        assert [d["title"] for d in data_of(agent.session, "session/title")] == ["mine"]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {**CONFIG, "fallbackMaxBytes": 81},
        {**CONFIG, "fallbackMaxWords": 0},
        {**CONFIG, "targetWords": 5},
    ],
)
@aio
async def test_a_config_that_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    ctx = Context()
    await ctx.plugin(session, {})
    with pytest.raises((CompositionError, ValidationError)):
        await settled(ctx.plugin(session_title, config))
    await ctx.dispose()
