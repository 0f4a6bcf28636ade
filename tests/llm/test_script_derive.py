"""What the model answered is read from the log; played again it makes the same log."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dsh.agent.contract import Agent, AgentOptions, CancelCause
from dsh.llm.adapter import EffortInfo, Generation, LlmAdapter, ModelInfo, ReasoningInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.script.call import Call, check_whole
from dsh.llm.script.derive import derived_calls, recorded_calls
from dsh.llm.script.entry import Chunks, Hang, Throw
from dsh.llm.script.error import ScriptError
from dsh.llm.script.player import Script
from dsh.llm.script.route import recorded_models, recorded_policies
from dsh.plugins import llm_retry, session_title, session_title_llm
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, UsageChunk, chunk_to_json
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.projection.price import Price
from dsh.session.value import encode, freeze
from tests.agent.kit import Item, Loop, calls, data_of, ends, failed, loop, text, thought
from tests.aio import aio
from tests.llm.script_kit import adapter_of, masked

TITLE = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
ROWS = [(llm_retry, {}), (session_title, TITLE)]
PRICE = Price(input=1, output=2.5, cache_read=0.1)
QUICK = RetryPolicy(max_retries=2, initial_delay_ms=1, max_delay_ms=1)


class Model(LlmAdapter):
    """Plays replies and keeps what it has yielded, call by call."""

    def __init__(self, *replies: list[Item], policy: RetryPolicy = QUICK) -> None:
        self.replies, self.policy = list(replies), policy
        self.yielded: list[list[Chunk]] = []

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        efforts = (EffortInfo("off", "Off"), EffortInfo("high", "High"))
        return ModelInfo(
            provider=provider,
            id=model,
            name=model,
            context_window=50_000,
            default_max_tokens=777,
            reasoning=ReasoningInfo(efforts, "high"),
            price=PRICE,
        )

    async def stream(self, request: LlmRequest) -> Any:
        reply = self.replies[len(self.yielded)]
        out: list[Chunk] = []
        self.yielded.append(out)
        for item in reply:
            if callable(item):
                answer = item()
                if answer is not None:
                    await answer
            else:
                out.append(item)
                yield item


async def run(adapter: LlmAdapter, act: Callable[[Loop, Agent], Any]) -> Session:
    """The log of a session on route `q`."""
    async with loop(rows=ROWS) as it:
        it.llm.register_adapter(["q"], adapter)

        async def add(_args: Any, _run: Any) -> str:
            return "7"

        it.tool("add", add)
        agent = await it.agent(options=AgentOptions(provider="q", model="m"))
        await act(it, agent)
        return agent.session


async def prompted(it: Loop, agent: Agent) -> None:
    await it.prompt(agent, "one")
    await it.prompt(agent, "two")


def on_wire(chunks: Iterable[Chunk]) -> list[bytes]:
    return [encode(chunk_to_json(chunk)) for chunk in chunks]


STORIES: dict[str, list[list[Item]]] = {
    "plain": [text("hello", usage=True), text("again")],
    "tools": [calls(("c1", "add", "{}"), ("c2", "add", "{ }")), text("seven"), text("bye")],
    "thought": [
        [*thought("hm"), BlockEnd(0, {"type": "reasoning", "text": "hm"}), *text("x")[-1:]],
        text("y"),
    ],
    "retried": [failed("SERVER"), [*thought("broke"), *failed("TRANSPORT")], text("at last"), text("b")],
    "given up": [failed("SERVER"), failed("SERVER"), failed("SERVER"), text("b")],
    "refused": [failed("INVALID_REQUEST"), text("b")],
    "cut short": [text("long", finish="max-tokens"), text("b")],
    "unknown tool": [calls(("c1", "nosuch", "not json")), text("sorry"), text("b")],
    "state": [
        [*text("hm")[:-1], Finish({"kind": "stop"}, {"response": {"version": 1}, "blocks": [None]})],
        text("b"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
@aio
async def test_every_call_is_derived_as_it_was_streamed(story: str) -> None:
    model = Model(*STORIES[story])
    log = await run(model, prompted)

    found = recorded_calls(log.entries())

    assert [on_wire(call.entry.chunks) for call in found] == [on_wire(chunks) for chunks in model.yielded]
    assert all(isinstance(call.entry, Chunks) for call in found)
    assert all(call.purpose == "turn" and call.cut is None and call.is_needed for call in found)
    firsts = [e for e in log.events() if e.type == "assistant/chunk"]
    for call in found:
        first = next(e for e in firsts if e.seq == call.seq)
        assert (first.data["turn"], first.data["step"]) == (call.turn, call.step)


@pytest.mark.parametrize("story", STORIES)
@aio
async def test_a_replay_makes_the_same_log(story: str) -> None:
    recorded = await run(Model(*STORIES[story]), prompted)
    script = Script(recorded_calls(recorded.entries()))
    events = list(recorded.events())
    adapter = adapter_of(script, recorded_models(events), policies=recorded_policies(events))

    replayed = await run(adapter, prompted)

    assert masked(replayed) == masked(recorded)
    script.assert_consumed()


@aio
async def test_a_replay_without_retries_stays_without() -> None:
    """The log names no policy where nothing was repeated; that it was not says enough."""
    recorded = await run(Model(failed("SERVER"), text("b"), policy=RetryPolicy(max_retries=0)), prompted)
    events = list(recorded.events())
    adapter = adapter_of(
        Script(recorded_calls(events)), recorded_models(events), policies=recorded_policies(events)
    )

    assert masked(await run(adapter, prompted)) == masked(recorded)


@aio
async def test_a_failure_that_nobody_repeats_tells_nothing_of_the_policy() -> None:
    recorded = await run(Model(*STORIES["refused"]), prompted)

    assert recorded_policies(recorded.events()) == {}


@aio
async def test_attempts_of_a_step_are_counted() -> None:
    log = await run(Model(*STORIES["retried"]), prompted)

    assert [(c.turn, c.step, c.attempt) for c in recorded_calls(log.entries())] == [
        (1, 1, 1), (1, 1, 2), (1, 1, 3), (2, 1, 1),
    ]  # fmt: skip


@aio
async def test_a_cancelled_reply_hangs_after_what_had_come() -> None:
    async with loop(rows=ROWS) as it:
        agent = await it.agent()
        it.model.replies = [
            [BlockStart(0, "text"), TextDelta(0, "par"), lambda: agent.cancel({"kind": "user"})]
        ]
        await it.prompt(agent, "one")
        log = agent.session

    assert ends(log)[0]["kind"] == "aborted"
    [call] = recorded_calls(log.entries())
    assert (call.entry, call.cut) == (Hang((BlockStart(0, "text"), TextDelta(0, "par"))), "cancelled")
    check_whole([call])


@aio
async def test_a_turn_cancelled_before_its_request_has_no_call_where_requests_are_logged() -> None:
    async with loop(rows=ROWS) as it:
        agent = await it.agent()
        causes: list[CancelCause] = [{"kind": "user"}]

        def cancel_once(_session: Session) -> None:
            if causes:
                it.soon(lambda: agent.cancel(causes.pop()))

        it.when("step/start", cancel_once)
        it.model.replies = [text("b")]
        await it.prompt(agent, "one")
        [perhaps] = recorded_calls(agent.session.entries())
        await it.prompt(agent, "two")
        log = agent.session

    assert (perhaps.entry, perhaps.cut, perhaps.is_needed) == (Hang(()), "cancelled", False)
    assert [(call.turn, call.cut) for call in recorded_calls(log.entries())] == [(2, None)]


class Refusing(Model):
    """Refuses models before there is a request."""

    def __init__(self, refuse: Callable[[], LlmError | None], *replies: list[Item]) -> None:
        super().__init__(*replies)
        self.refuse = refuse

    async def prepare(self, provider: str, model: str) -> Generation:
        error = self.refuse()
        if error is not None:
            raise error
        return await super().prepare(provider, model)


@pytest.mark.parametrize(
    "code", ["UNKNOWN_MODEL", "UNSUPPORTED_REASONING_EFFORT", "UNSUPPORTED_OPTION", "INVALID_MODEL_NAME"]
)
@aio
async def test_a_call_that_the_adapter_refused_is_one_that_fails(code: str) -> None:
    """The log holds no request of it; a replay that refuses it again makes the same log."""
    refusals = [LlmError.of(code, "no such thing")]
    refusing = Refusing(lambda: refusals.pop() if refusals else None, text("b"))
    recorded = await run(refusing, prompted)
    calls = recorded_calls(recorded.entries())
    played, again = Script(calls), Script(calls)

    assert [(call.turn, call.is_refused, call.is_needed) for call in calls] == [
        (1, True, False),
        (2, False, True),
    ]
    assert ends(await run(adapter_of(played), prompted)) == ends(recorded)
    played.assert_consumed()
    replayed = await run(Refusing(again.refused, text("b")), prompted)
    assert masked(replayed) == masked(recorded)


@aio
async def test_a_turn_that_failed_before_it_asked_the_model_has_no_call() -> None:
    recorded = await run(Refusing(lambda: LlmError.of("INTERNAL", "x")), prompted)

    assert [end["kind"] for end in ends(recorded)] == ["error", "error"]
    assert recorded_calls(recorded.entries()) == []


def row(seq: int, kind: str, **data: Any) -> SessionEvent:
    return SessionEvent(kind, seq, 0, freeze(data, kind))


def chunk(seq: int, piece: Chunk, turn: int = 1, step: int = 1) -> SessionEvent:
    return row(seq, "assistant/chunk", turn=turn, step=step, chunk=chunk_to_json(piece))


STOP = Finish({"kind": "stop"})
START = BlockStart(0, "text")


def test_a_stream_that_raised_is_an_error_that_says_where() -> None:
    events = [chunk(4, START), row(5, "turn/end", turn=1, reason={"kind": "error", "error": {}})]

    with pytest.raises(ScriptError, match=r"seq 4 \(turn 1, step 1\)") as caught:
        recorded_calls(events)
    assert caught.value.code == "SCRIPT_UNFINISHED_CALL"
    assert "override" in caught.value.hint
    assert [call.cut for call in derived_calls(events)] == ["raised"]


def test_another_step_without_a_finish_is_an_error() -> None:
    events = [chunk(0, START), chunk(1, START, step=2), chunk(2, STOP, step=2)]

    assert [(c.step, c.cut) for c in derived_calls(events)] == [(1, "raised"), (2, None)]
    with pytest.raises(ScriptError):
        recorded_calls(events)


def test_the_death_of_the_process_is_told_apart() -> None:
    repaired = [chunk(0, START), row(1, "turn/end", turn=1, reason={"kind": "interrupted"})]
    for events in (repaired, repaired[:1]):
        [call] = recorded_calls(events)
        assert (call.cut, call.entry) == ("crashed", Hang((START,)))
        with pytest.raises(ScriptError, match="died"):
            check_whole([call])


def test_what_was_asked_for_is_no_default_of_the_model() -> None:
    config = {"provider": "p", "model": "m", "maxTokens": 7, "reasoningEffort": "low"}
    defaults = {"maxTokens": True, "reasoningEffort": True}
    rows = [
        row(at, "request/header", header={"config": config, "adapterDefaults": given}, reason="initial")
        for at, given in enumerate(({}, defaults, {}))
    ]

    for logged, limit, effort in ((rows[:1], None, None), (rows[:2], 7, "low"), (rows, None, "low")):
        [info] = recorded_models(logged)
        assert info.default_max_tokens == limit
        assert info.reasoning == ReasoningInfo((EffortInfo("low", "low"),), effort)


def test_a_child_begins_behind_its_seed() -> None:
    header = {"config": {"provider": "p", "model": "m"}}
    events = [
        row(0, "request/header", header=header, reason="initial"),
        chunk(1, STOP),
        chunk(2, START, turn=2),
        chunk(3, STOP, turn=2),
    ]

    [call] = recorded_calls(events, start=2)
    assert (call.seq, call.turn) == (2, 2)
    assert call.model is not None and (call.model.provider, call.model.id) == ("p", "m")


def test_a_summary_is_a_call_at_its_place_rebuilt_from_its_blocks() -> None:
    blocks = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "the gist"}]
    usage = {"inputTokens": 5, "outputTokens": 2}
    summary = {"compactionId": "x", "rawOutput": blocks, "llmStreamCall": True, "usage": usage}
    events = [
        chunk(0, STOP),
        row(1, "compaction/start", compactionId="x", turn=None),
        row(2, "compaction/summary", provider="p", model="m", **summary),
        row(3, "compaction/end", compactionId="x", turn=None),
        chunk(4, STOP, turn=2),
    ]

    first, made, last = recorded_calls(events)
    assert made.entry == Chunks(
        (
            BlockStart(0, "reasoning"),
            BlockEnd(0, blocks[0]),
            BlockStart(1, "text"),
            BlockEnd(1, blocks[1]),
            UsageChunk(usage),
            STOP,
        )
    )
    assert (made.seq, made.purpose, first.purpose, last.purpose) == (2, "compaction", "turn", "turn")


@pytest.mark.parametrize("given", [{}, {"rawOutput": []}, {"llmStreamCall": True}])
def test_a_summary_that_no_model_wrote_is_no_call(given: dict[str, Any]) -> None:
    events = [row(0, "compaction/summary", compactionId="x", summary=[], provider="p", model="m", **given)]

    assert recorded_calls(events) == []


def test_a_summary_that_failed_before_a_reply_was_cut_off_failed() -> None:
    events = [
        row(0, "compaction/start", compactionId="x", turn=1),
        row(1, "compaction/end", compactionId="x", turn=1, error="no summary came"),
        chunk(2, START),
        row(3, "turn/end", turn=1, reason={"kind": "aborted"}),
    ]

    for rows, cut in ((events, "cancelled"), (events[:3], "crashed")):
        summary, reply = recorded_calls(rows)
        assert isinstance(summary.entry, Throw)
        assert (reply.entry, reply.cut) == (Hang((START,)), cut)


def test_a_summary_that_was_cut_off_stays_a_call_where_requests_are_logged() -> None:
    events = [
        row(0, "step/start", turn=1, step=1),
        row(1, "request/digest", turn=1, step=1),
        chunk(2, STOP),
        row(3, "compaction/start", compactionId="x", turn=2),
        row(4, "turn/end", turn=2, reason={"kind": "aborted"}),
    ]

    assert [(call.purpose, call.cut) for call in recorded_calls(events)] == [
        ("turn", None),
        ("compaction", "cancelled"),
    ]


def test_a_turn_without_a_step_has_no_call() -> None:
    events = [
        row(0, "step/start", turn=1, step=1),
        row(1, "turn/end", turn=1, reason={"kind": "aborted"}),
        row(2, "turn/end", turn=2, reason={"kind": "aborted"}),
    ]

    assert [(call.turn, call.attempt) for call in recorded_calls(events)] == [(1, 1)]


def test_a_compaction_that_failed_fails_again_where_it_is_asked_for() -> None:
    events = [
        row(0, "compaction/start", compactionId="x", turn=1),
        row(1, "compaction/end", compactionId="x", turn=1, error="no summary came"),
    ]

    [call] = recorded_calls(events)
    assert isinstance(call.entry, Throw)
    assert (call.entry.failure.message, call.is_needed) == ("no summary came", False)


@pytest.mark.parametrize(
    ("rows", "cut"),
    [
        (["end", "aborted"], "cancelled"),
        (["aborted"], "cancelled"),
        (["interrupted"], "crashed"),
        ([], "crashed"),
    ],
)
def test_a_summary_that_was_cut_off_hangs_where_it_is_asked_for(rows: list[str], cut: str) -> None:
    events = [row(0, "compaction/start", compactionId="x", turn=1)]
    for kind in rows:
        seq = len(events)
        if kind == "end":
            events.append(row(seq, "compaction/end", compactionId="x", turn=1, error="cancelled"))
        else:
            events.append(row(seq, "turn/end", turn=1, reason={"kind": kind}))

    [call] = recorded_calls(events)
    assert (call.entry, call.cut, call.purpose, call.is_needed) == (Hang(()), cut, "compaction", False)


@aio
async def test_a_title_is_a_call_beside_the_turns() -> None:
    rows = [(session_title, TITLE), (session_title_llm, {})]
    async with loop(text("answer"), rows=rows) as it:
        agent = await it.agent()
        it.model.replies = [text("A Title")]
        await it.prompt(agent, "one")
        await it.breath()
        for _ in range(20):
            await it.breath()
        log = agent.session

    assert data_of(log, "session/title")[-1]["title"] == "A Title"
    titles = [call for call in recorded_calls(log.entries()) if call.purpose == "session-title"]
    assert len(titles) == 1
    assert BlockEnd(0, {"type": "text", "text": "A Title"}) in titles[0].entry.chunks


def test_what_careless_providers_left_in_old_logs_is_read() -> None:
    piece = {"type": "tool-call-delta", "index": 0, "id": None, "name": None, "argumentsDelta": {"a": 1}}
    events = [
        row(0, "assistant/chunk", turn=1, step=1, chunk=piece),
        chunk(1, STOP),
    ]

    [call] = recorded_calls(events)
    delta = call.entry.chunks[0]
    assert json.loads(chunk_to_json(delta)["argumentsDelta"]) == {"a": 1}
    assert chunk_to_json(delta)["id"] == ""


@pytest.mark.parametrize("data", [{}, {"turn": 1, "step": 1}, {"turn": 1, "step": 1, "chunk": {"type": "x"}}])
def test_a_chunk_that_is_none_is_named_by_its_seq(data: dict[str, Any]) -> None:
    with pytest.raises(ScriptError, match="seq 3: assistant/chunk") as caught:
        recorded_calls([row(3, "assistant/chunk", **data)])
    assert caught.value.code == "SCRIPT_INVALID"


@aio
async def test_what_the_adapter_knew_is_known_again() -> None:
    log = await run(Model(text("a"), text("b")), prompted)

    [info] = recorded_models(log.events())
    assert (info.provider, info.id, info.context_window, info.default_max_tokens) == ("q", "m", 50_000, 777)
    assert info.reasoning is not None
    assert info.reasoning.default_effort == "high"
    assert info.price is None  # nothing was used, as far as the log says
    assert isinstance(recorded_calls(log.entries())[0], Call)


@aio
async def test_a_price_is_known_from_the_first_call_on() -> None:
    """The log tells it behind the first reply; the replay needs it before."""
    log = await run(Model(text("a", usage=True), text("b")), prompted)

    assert [call.model and call.model.price for call in recorded_calls(log.entries())] == [PRICE, PRICE]
    assert [info.price for info in recorded_models(log.events())] == [PRICE]
