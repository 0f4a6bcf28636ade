"""Any history, any window, any summariser: what holds of every compaction, and of every request around it."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsh.capabilities.compaction import CompactionError
from dsh.kernel import Cancelled
from dsh.plugins.compaction_basic.instruction import checkpoint
from dsh.plugins.compaction_basic.span import Node, Span, choose, nodes_of
from dsh.plugins.compaction_basic.summary import Summary
from dsh.plugins.compaction_basic.transaction import Transaction
from dsh.plugins.token_meter.fold import MeterFold
from dsh.session.chunk import Finish
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.message import text_block, user_message
from dsh.session.restore import restore
from dsh.session.verify.log import verify
from tests.agent.kit import Reply, calls, ends, failed, text, thought
from tests.aio import aio
from tests.plugins.compaction.kit import Compacting, compacting, is_paired, long, silent
from tests.session.moves import played, plays

LOGGER = logging.getLogger("dsh.test")
LOGGER.disabled = True


def sound(session: Session, start: int = 0) -> bool:
    """Whether the log verifies from an event on, and says the same to another process."""
    again = restore(session.header, [json.loads(json.dumps(e.to_json())) for e in session.events()]).open()
    found = [finding for finding in verify(session).findings if (finding.seq or 0) >= start]
    return found == [] and list(again.derive_messages()) == list(session.derive_messages())


# -- the transaction, on logs of any shape ---------------------------------------------------------


def priced(session: Session) -> tuple[Node, ...]:
    fold = MeterFold()
    fold.catch_up(session)
    return nodes_of(session, fold.measurement().nodes)


def join(session: Session) -> None:
    session.append("user/message", user_message("late"), surface="append")


def replace_first(session: Session) -> None:
    first = session.surface_nodes[0]
    place = {"op": "replace", "start": first, "end": first}
    session.append("user/message", user_message("other"), surface=place, sources=[first])


def close(session: Session) -> None:
    session.append("compaction/end", session.last("compaction/start").data)  # type: ignore[union-attr]


MEANWHILE: dict[str, Callable[[Session], None]] = {
    "nothing": lambda _: None,
    "a message joins": join,
    "the first is replaced": replace_first,
    "the bracket is closed": close,
}
ENDS: dict[str, BaseException | None] = {
    "a summary": None,
    "cancelled": Cancelled("enough"),
    "a failure": RuntimeError("boom"),
    "a leaked cancellation": asyncio.CancelledError(),
    "an exit": SystemExit(3),
}


@settings(deadline=None)
@example(moves=[], retain=0, words=1, meanwhile="a message joins", end="a summary", whole=True)
@example(moves=[], retain=0, words=1, meanwhile="a message joins", end="a summary", whole=False)
@given(
    moves=plays,
    retain=st.integers(0, 120),
    words=st.integers(1, 20),
    meanwhile=st.sampled_from(list(MEANWHILE)),
    end=st.just("a summary") | st.sampled_from(list(ENDS)),
    whole=st.booleans(),
)
def test_a_compaction_replaces_exactly_its_span_or_nothing(
    moves: list[tuple[str, int, int]], retain: int, words: int, meanwhile: str, end: str, whole: bool
) -> None:
    session = played([("user", 1, 40)] * 3 + moves)
    span = choose(priced(session), retain)
    if span is None:
        return
    before, length = session.surface_nodes, session.length
    blocks = (text_block("w " * words),)
    is_long = log_price(checkpoint(blocks, {})) >= span.log_tokens

    async def summarize() -> tuple[Span, Summary]:
        MEANWHILE[meanwhile](session)
        if (raised := ENDS[end]) is not None:
            raise raised
        made = Summary(blocks=blocks, raw_output=blocks, provider="p", model="m", max_tokens=9, usage=None)
        return span, made

    code: str | None = None
    try:
        written = asyncio.run(Transaction(session, LOGGER).run(summarize, whole_surface=whole))
    except CompactionError as error:
        code = error.code
    assert code == expected(end, meanwhile, whole=whole, is_long=is_long)

    late = session.surface_nodes[-1:] if meanwhile == "a message joins" else ()
    if code is None:
        assert session.surface_nodes == (written.seq, *before[len(span.seqs) :], *late)
        told = session.event(written.seq - 1).data
        assert tuple(told["shadowedSeqs"]) == span.seqs
        assert told["shadowedTokenCount"] == span.log_tokens
    else:
        first = session.surface_nodes[:1] if meanwhile == "the first is replaced" else before[:1]
        assert session.surface_nodes == (*first, *before[1:], *late)
    kinds = [e.type for e in session.events() if e.type in ("compaction/start", "compaction/end")]
    assert kinds == ["compaction/start", "compaction/end"] * (len(kinds) // 2)
    assert sound(session, length)


def expected(end: str, meanwhile: str, *, whole: bool, is_long: bool) -> str | None:
    """With which code it fails."""
    if end != "a summary":
        return "cancelled" if end == "cancelled" else "summary"
    if meanwhile == "the first is replaced" or (meanwhile == "a message joins" and whole):
        return "changed"
    if is_long:
        return "summary"
    return "commit" if meanwhile == "the bracket is closed" else None


# -- the rows in a loop, with a model that has a window --------------------------------------------

SUMMARIES: list[Reply] = [
    text("the gist"),
    text(long(40)),
    text(long(4000)),
    silent(),
    text(" "),
    text("half", finish="max-tokens"),
    [*thought("hm"), Finish({"kind": "stop"})],
    calls(("s", "note", "{}")),
    failed("AUTH", "no"),
    failed("SERVER", "oops"),
    failed("CONTEXT_WINDOW_EXCEEDED", "too long"),
]
Step = tuple[int, int]
"""How many calls, and how many words each result has."""
Turn = tuple[int, list[Step]]
"""Words of the prompt, and the steps before the last."""
turns = st.lists(
    st.tuples(
        st.integers(1, 700),
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 900)), max_size=5),
    ),
    min_size=1,
    max_size=5,
)


def script(plan: list[Turn]) -> list[Reply]:
    replies: list[Reply] = []
    for _, steps in plan:
        for count, words in steps:
            number = len(replies)
            replies.append(calls(*((f"c{number}-{n}", "note", json.dumps(words)) for n in range(count))))
        replies.append(text(f"end {len(replies)}"))
    return replies


@settings(deadline=None, max_examples=60)
@given(
    plan=turns,
    window=st.none() | st.integers(300, 6000),
    limit=st.none() | st.integers(300, 6000),
    summaries=st.lists(st.sampled_from(SUMMARIES), min_size=1, max_size=6),
    prunes=st.booleans(),
    asks=st.booleans(),
)
def test_every_run_ends_and_every_request_is_valid(
    plan: list[Turn],
    window: int | None,
    limit: int | None,
    summaries: list[Reply],
    prunes: bool,
    asks: bool,
) -> None:
    pruner = {"thresholdChars": 1000, "headChars": 500, "tailChars": 200} if prunes else None

    @aio
    async def run() -> None:
        async with compacting(*script(plan), window=window, pruner=pruner) as c:
            c.model.limit, c.model.summaries = limit, [*summaries, text("the gist")]
            await play(c)

    async def play(c: Compacting) -> None:
        async def note(arguments: Any, run: object) -> str:
            return long(arguments if isinstance(arguments, int) else 1)

        c.loop.tool("note", note)
        agent = await c.agent()
        for number, (words, _) in enumerate(plan):
            prompt = f"TASK {number} {long(words)}"
            await c.talk(agent, prompt)
            reason = ends(agent.session)[-1]
            assert reason["kind"] == "completed" or reason["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"
            if limit is None:
                assert reason["kind"] == "completed"
            if asks:
                try:
                    await c.service.compact_now(agent)
                except CompactionError as error:
                    assert error.code == "summary"
        assert len(ends(agent.session)) == len(plan)
        for request in (*c.model.requests, *c.model.asked):
            assert is_paired(request.messages)
            assert all(message["content"] for message in request.messages)
        assert sound(agent.session)

    run()
