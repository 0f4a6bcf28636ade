"""Long tool results are cut to their ends: the first and last code points, one marker, the rest as it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.compaction import TOOL_RESULT_PRUNER
from dsh.kernel import Context
from dsh.kernel.schema import resolve_config
from dsh.plugins import tool_result_pruner
from dsh.plugins.tool_result_pruner import PROMPT_MARKER, RESULT_MARKER, Config, Pruner, cut
from dsh.session.derive import project
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.verify.log import verify
from tests.agent.kit import calls, data_of, text, texts_of
from tests.aio import aio
from tests.plugins.compaction.kit import compacting, is_paired, long, rows_of
from tests.session.talk import Talk

SMALL = {"thresholdChars": 400, "headChars": 100, "tailChars": 50}


def said(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def joined(blocks: Any) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def test_the_ends_stay_and_one_marker_stands_between() -> None:
    assert joined(cut(said("abcdefghij"), 3, 2)) == f"abc{RESULT_MARKER}ij"


@given(
    texts=st.lists(st.text(max_size=12), min_size=1, max_size=8),
    head=st.integers(1, 10),
    tail=st.integers(1, 10),
)
def test_the_cut_goes_across_blocks(texts: list[str], head: int, tail: int) -> None:
    whole = "".join(texts)
    if len(whole) <= head + tail:
        return
    blocks = cut(said(*texts), head, tail)

    assert joined(blocks) == whole[:head] + RESULT_MARKER + whole[-tail:]
    assert all(block["text"] for block in blocks)


def test_what_is_no_text_stays_in_its_place() -> None:
    image = {"type": "image", "attachment": {"id": "a"}}
    blocks: list[Any] = [*said("abcdef"), image, *said("ghijkl"), image]

    assert cut(blocks, 2, 2) == [*said(f"ab{RESULT_MARKER}"), image, *said("kl"), image]


def test_characters_are_code_points() -> None:
    assert joined(cut(said("😀" * 10), 2, 1)) == f"😀😀{RESULT_MARKER}😀"


@aio
async def test_a_result_is_replaced_by_its_ends_and_priced_right_before() -> None:
    replies = [calls(("c1", "note", "{}")), text("one"), text("two")]
    async with compacting(*replies, pruner=SMALL, window=100_000) as c:

        async def note(arguments: object, run: object) -> str:
            return long(300)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, "work")
        session = agent.session
        pruner = c.loop.ctx.use(TOOL_RESULT_PRUNER)
        [before] = session.select("tool/result")
        session.append("turn/start", {"turn": 2})

        assert pruner.prune(session) == 1
        assert pruner.prune(session) == 0
        session.append("turn/end", {"turn": 2, "reason": {"kind": "completed"}})

        priced, after = list(session.events(before.seq))[-3:-1]
        message = project(before)
        assert message is not None
        assert priced.data == {
            "shadowedRange": {"start": before.seq, "end": before.seq},
            "shadowedSeqs": (before.seq,),
            "shadowedTokenCount": log_price(message),
        }
        assert (priced.type, after.type, after.seq) == ("compaction/prune", "tool/result", priced.seq + 1)
        assert after.sources == (before.seq,)
        assert after.surface == {"op": "replace", "start": before.seq, "end": before.seq}
        assert after.data["message"]["id"] == before.data["message"]["id"]
        assert list(after.data) == list(before.data)


@aio
async def test_seen_results_are_cut_and_the_newest_is_not() -> None:
    """A step's own results reach the model whole, unless the window would not hold them."""
    replies = [calls(("c1", "note", "{}")), calls(("c2", "note", "{}")), text("end")]
    async with compacting(*replies, pruner=SMALL, window=2000) as c:

        async def note(arguments: object, run: object) -> str:
            return long(550)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, "work")

        assert rows_of(agent.session, "compaction/") == ["compaction/prune"]
        last = texts_of(c.model.requests[2])
        assert "taken out to save room" in last[2]
        assert last[4] == f"user: result c2: {long(550)}"
        assert is_paired(c.model.requests[2].messages)
        assert c.model.asked == []


@aio
async def test_an_unseen_result_is_cut_where_the_window_would_not_hold_it() -> None:
    async with compacting(calls(("c1", "note", "{}")), text("end"), pruner=SMALL, window=2000) as c:

        async def note(arguments: object, run: object) -> str:
            return long(3000)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, "work")

        assert "taken out to save room" in texts_of(c.model.requests[1])[-1]
        assert len(data_of(agent.session, "tool/result")) == 2
        assert long(3000) in str(data_of(agent.session, "tool/result")[0])


def put(session: Session, words: str, **source: str) -> int:
    message = user_message(words, source or {"kind": "user"})
    return session.append("user/message", message, surface="append").seq


def test_prompts_are_cut_when_they_are_asked_for_and_of_the_past() -> None:
    session, pruner = Talk().log, Pruner(resolve_config(Config, SMALL))
    past = put(session, long(300))
    foreign = put(session, long(300), kind="plugin", plugin="other")
    present = put(session, long(300))

    assert pruner.prune(session) == 0
    assert pruner.prune(session, prompts_before=present) == 1
    assert pruner.prune(session, prompts_before=present) == 0

    first, *rest = session.derive_messages()
    assert joined(first["content"]) == long(300)[:100] + PROMPT_MARKER + long(300)[-50:]
    assert (first["id"], first["source"]) == (session.event(past).data["id"], {"kind": "user"})
    assert rest == [session.event(foreign).data, session.event(present).data]
    assert list(verify(session).findings) == []


@given(words=st.integers(1, 400), share=st.floats(0, 1))
def test_what_was_cut_is_not_cut_again(words: int, share: float) -> None:
    """Whatever part of the budget there is, or a caller that asks until nothing is left to cut never ends."""
    session, pruner = Talk().log, Pruner(resolve_config(Config, SMALL))
    put(session, "x" * words)
    before = len(joined(session.derive_messages()[0]["content"]))

    count = pruner.prune(session, share=share, prompts_before=session.length)

    after = len(joined(session.derive_messages()[0]["content"]))
    assert (after < before) == bool(count)
    assert pruner.prune(session, share=share, prompts_before=session.length) == 0


def test_the_ends_and_the_marker_fit_below_the_threshold() -> None:
    ctx = Context()
    with pytest.raises(Exception, match="thresholdChars 100 is less than"):
        tool_result_pruner.apply(ctx, Config(threshold_chars=100, head_chars=50, tail_chars=50))
