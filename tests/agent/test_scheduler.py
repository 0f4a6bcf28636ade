"""Tool calls of one message: what overlaps, what waits, and that rows keep the model's order."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent import scheduler
from dsh.agent.claims import Claims
from dsh.agent.inbox import Inbox
from dsh.agent.scheduler import SCHEDULER_FAILED, SCHEDULER_FAILED_BEFORE
from dsh.agent.step_scope import StepScope
from dsh.agent.tool_row import log_call
from dsh.session.message import Message, user_message
from dsh.tools.definition import Resources
from dsh.tools.execution import ToolCall, ToolFailure
from dsh.tools.pipeline import Invocation
from tests.agent.kit import Loop, calls, data_of, ends, loop, short, text, texts_of
from tests.aio import aio

RAW = "{}"


class Gates:
    """Tool bodies that report their start and wait to be let go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running = 0
        self.most = 0
        self._gates: dict[str, asyncio.Event] = {}

    def open(self, *call_ids: str) -> None:
        for call_id in call_ids:
            self._gates.setdefault(call_id, asyncio.Event()).set()

    async def body(self, args: Any, exec: Any) -> str:  # noqa: A002
        self.started.append(exec.call_id)
        self.running += 1
        self.most = max(self.most, self.running)
        await self._gates.setdefault(exec.call_id, asyncio.Event()).wait()
        self.running -= 1
        return f"value of {exec.call_id}"

    async def quick(self, args: Any, exec: Any) -> str:  # noqa: A002
        self.started.append(exec.call_id)
        return f"value of {exec.call_id}"


def rows(it: Loop) -> list[str]:
    """`call c1`, `result c1`, … in log order."""
    out = []
    for event in it.sessions.list()[0].events():
        if event.type == "tool/call":
            out.append(f"call {event.data['callId']}")
        elif event.type == "tool/result":
            out.append(f"result {event.data['message']['source']['callId']}")
    return out


async def ticks(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@aio
async def test_safe_calls_overlap_and_settle_out_of_order_but_commit_in_order() -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW), ("c3", "t", RAW)), text("done")) as it:
        gates = Gates()
        it.tool("t", gates.body, concurrency_safe=True)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1", "c2", "c3"]
        gates.open("c3", "c2")
        await ticks()
        assert rows(it) == ["call c1", "call c2", "call c3"]
        gates.open("c1")
        await running
        assert rows(it)[3:] == ["result c1", "result c2", "result c3"]
        assert texts_of(it.model.requests[1])[2:] == [f"user: result c{n}: value of c{n}" for n in (1, 2, 3)]


@aio
async def test_an_exclusive_call_waits_for_all_before_it_and_holds_back_all_after_it() -> None:
    asked = calls(("c1", "safe", RAW), ("c2", "alone", RAW), ("c3", "safe", RAW))
    async with loop(asked, text("done")) as it:
        gates = Gates()
        it.tool("safe", gates.body, concurrency_safe=True)
        it.tool("alone", gates.body)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1"]
        gates.open("c1")
        await ticks()
        assert gates.started == ["c1", "c2"]
        gates.open("c2", "c3")
        await running
        assert rows(it) == ["call c1", "result c1", "call c2", "result c2", "call c3", "result c3"]


@pytest.mark.parametrize("cap", [1, 3])
@aio
async def test_no_more_than_the_cap_run_and_the_pool_refills(cap: int) -> None:
    asked = calls(*((f"c{n}", "t", RAW) for n in range(7)))
    async with loop(asked, text("done"), config={"maxParallelToolCalls": cap}) as it:
        gates = Gates()
        it.tool("t", gates.body, concurrency_safe=True)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        for n in range(7):
            await ticks()
            assert gates.started == [f"c{i}" for i in range(min(7, cap + n))]
            gates.open(f"c{n}")
        await running
        assert gates.most == cap
        assert [row for row in rows(it) if row.startswith("call")] == [f"call c{n}" for n in range(7)]
        assert [row for row in rows(it) if row.startswith("result")] == [f"result c{n}" for n in range(7)]


def touching(**keys: str) -> Any:
    """`resources` of a tool whose calls read or write a key by call id."""

    def resources(args: Any, call: ToolCall) -> Resources:
        mode, _, key = keys[call.call_id].partition(" ")
        return Resources(**{mode: frozenset({key})})

    return resources


@aio
async def test_calls_conflict_where_one_writes_what_the_other_touches() -> None:
    keys = {"c1": "writes a", "c2": "reads b", "c3": "reads a", "c4": "writes c", "c5": "reads b"}
    async with loop(calls(*((name, "t", RAW) for name in keys)), text("done")) as it:
        gates = Gates()
        it.tool("t", gates.body, resources=touching(**keys))
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1", "c2"], "c3 waits for c1, and calls start in model order"
        gates.open("c1")
        await ticks()
        assert gates.started == ["c1", "c2", "c3", "c4", "c5"]
        gates.open("c2", "c3", "c4", "c5")
        await running


@aio
async def test_two_writes_of_one_file_keep_their_order() -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW)), text("done")) as it:
        gates = Gates()
        it.tool("t", gates.body, resources=touching(c1="writes a", c2="writes a"))
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1"]
        gates.open("c1", "c2")
        await running
        assert rows(it) == ["call c1", "result c1", "call c2", "result c2"]


RESOURCES = st.none() | st.builds(
    Resources,
    reads=st.frozensets(st.sampled_from("abc"), max_size=2),
    writes=st.frozensets(st.sampled_from("abc"), max_size=2),
)


def conflict(one: Resources | None, other: Resources | None) -> bool:
    """As in `design.md` §10.7."""
    if one is None or other is None:
        return True
    return bool(one.writes & (other.reads | other.writes) or other.writes & one.reads)


@given(st.lists(RESOURCES, max_size=12), st.randoms(use_true_random=False))
def test_claims_admit_what_conflicts_with_none_of_those_under_way(
    wanted: list[Resources | None], rng: random.Random
) -> None:
    claims = Claims()
    under_way: list[Resources | None] = []
    for resources in wanted:
        is_free = not any(conflict(resources, held) for held in under_way)
        assert claims.admits(resources) is is_free
        claims.add(resources)
        under_way.append(resources)
        while under_way and rng.random() < 0.4:
            claims.remove(under_way.pop(rng.randrange(len(under_way))))


@pytest.mark.parametrize("answer", [1, "yes", None, False])
@aio
async def test_only_exactly_true_lets_a_call_overlap(answer: Any) -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW)), text("done")) as it:
        gates = Gates()
        it.tool("t", gates.body, concurrency_safe=lambda args: answer)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1"]
        gates.open("c1", "c2")
        await running


@aio
async def test_a_call_is_classified_anew_when_its_turn_comes() -> None:
    async with loop(calls(("c1", "a", RAW), ("c2", "b", RAW), ("c3", "b", RAW)), text("done")) as it:
        gates = Gates()
        safe = {"b": True}
        it.tool("a", gates.body, concurrency_safe=lambda args: True)
        it.tool("b", gates.body, concurrency_safe=lambda args: safe["b"])
        it.when("tool/call", lambda s: safe.update(b=False), time=2)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert gates.started == ["c1", "c2"]
        gates.open("c1", "c2", "c3")
        await running
        assert rows(it)[-2:] == ["call c3", "result c3"]


@aio
async def test_policies_are_asked_one_call_after_the_other() -> None:
    from dsh.tools.event import TOOLS_PRE_EXECUTE

    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW)), text("done")) as it:
        gates = Gates()
        it.tool("t", gates.quick, concurrency_safe=True)
        log: list[str] = []

        async def slow(exec: Any, following: Any) -> Any:  # noqa: A002
            log.append(f"ask {exec.call_id}")
            await asyncio.sleep(0.005)
            log.append(f"asked {exec.call_id}")
            return await following()

        it.ctx.on(TOOLS_PRE_EXECUTE, slow)
        await it.prompt(await it.agent(), "go")
        assert log == ["ask c1", "asked c1", "ask c2", "asked c2"]


@aio
async def test_what_the_model_asked_for_wrongly_is_answered_and_the_turn_goes_on() -> None:
    asked = calls(
        ("c1", "nobody", RAW), ("c2", "typed", "{not json"), ("c3", "typed", "[1]"), ("c4", "typed", "")
    )
    async with loop(asked, text("done")) as it:
        gates = Gates()
        it.tool("typed", gates.quick)
        agent = await it.agent()
        await it.prompt(agent, "go")
        errors = [d.get("error") for d in data_of(agent.session, "tool/result")]
        assert errors[0] == {"name": "ToolNotFoundError", "code": "UNKNOWN_TOOL"}
        assert errors[1] == errors[2] == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
        assert errors[3] is None, "no arguments at all are an empty object"
        assert [d["arguments"] for d in data_of(agent.session, "tool/call")] == [RAW, "{not json", "[1]", ""]
        assert ends(agent.session) == [{"kind": "completed"}]


class Broken(RuntimeError):
    """A failure of the machinery, not of a tool."""


@pytest.mark.parametrize(
    ("stage", "told"), [("prepare", SCHEDULER_FAILED_BEFORE), ("finalize", SCHEDULER_FAILED)]
)
@aio
async def test_a_failure_of_the_machinery_waits_for_siblings_and_leaves_no_call_unanswered(
    stage: str, told: ToolFailure, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = calls(*((f"c{n}", "t", RAW) for n in (1, 2, 3)))
    async with loop(asked, text("done"), config={"maxParallelToolCalls": 2}) as it:
        gates = Gates()
        it.tool("t", gates.body, concurrency_safe=True)
        real = getattr(Invocation, stage)

        async def breaks(self: Invocation) -> Any:
            if self.execution.call_id == "c2":
                raise Broken("the machine is out of order")
            return await real(self)

        monkeypatch.setattr(Invocation, stage, breaks)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await ticks()
        assert agent.status == "running", "a sibling still runs"
        gates.open("c1", "c2")
        await running
        results = data_of(agent.session, "tool/result")
        assert [d["message"]["source"]["callId"] for d in results] == ["c1", "c2", "c3"]
        codes = [d.get("error", {}).get("code") for d in results]
        assert codes == [None, told.code, "TOOL_NOT_STARTED"]
        assert tuple(results[1]["message"]["content"][0]["content"]) == told.content
        assert ends(agent.session)[0]["error"]["message"].startswith("the machine is out of order")
        await it.prompt(agent, "again")
        assert len([m for m in it.model.requests[-1].messages if m["source"]["kind"] == "tool"]) == 3


@aio
async def test_a_call_whose_row_the_log_refuses_is_answered_as_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW), ("c3", "t", RAW)), text("done")) as it:
        gates = Gates()

        def breaks(scope: StepScope, call: ToolCall, raw: str) -> int:
            if call.call_id == "c2":
                raise Broken("no row")
            return log_call(scope, call, raw)

        it.tool("t", gates.quick)
        monkeypatch.setattr(scheduler, "log_call", breaks)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert gates.started == ["c1"]
        assert rows(it) == ["call c1", "result c1", "result c2", "result c3"]
        codes = [d.get("error", {}).get("code") for d in data_of(agent.session, "tool/result")]
        assert codes == [None, "TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]


@aio
async def test_a_result_that_is_logged_is_not_logged_again_when_something_fails_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW)), text("done")) as it:

        async def body(args: Any, exec: Any) -> str:  # noqa: A002
            exec.defer_context(user_message("a note"))
            return ""

        def breaks(self: Inbox, target: str, message: Message) -> None:
            if target == "next-step":
                raise Broken("no notes")
            append(self, target, message)  # type: ignore[arg-type]

        it.tool("t", body)
        agent = await it.agent()
        append = Inbox.append
        monkeypatch.setattr(Inbox, "append", breaks)
        await it.prompt(agent, "go")
        assert rows(it) == ["call c1", "result c1", "result c2"]
        assert ends(agent.session)[0]["kind"] == "error"


@aio
async def test_when_the_driver_goes_down_the_bodies_go_with_it() -> None:
    async with loop(calls(("c1", "t", RAW), ("c2", "t", RAW))) as it:
        gates, ended = Gates(), []

        async def body(args: Any, exec: Any) -> str:  # noqa: A002
            try:
                return await gates.body(args, exec)
            finally:
                ended.append(exec.call_id)

        it.tool("t", body, concurrency_safe=True)
        agent = await it.agent()
        agent.followup(user_message("go"))
        await ticks()
        driver = next(task for task in asyncio.all_tasks() if task.get_name() == f"agent {agent.id}")
        driver.cancel()
        await ticks()
        assert sorted(ended) == ["c1", "c2"]
        assert rows(it) == ["call c1", "call c2"], "the rest is for repair"


@aio
async def test_what_a_call_has_to_say_follows_its_result_in_its_own_order() -> None:
    async with loop(calls(("c1", "t", RAW)), text("done")) as it:

        async def body(args: Any, exec: Any) -> str:  # noqa: A002
            for words in ("one", "two", "three"):
                exec.defer_context(user_message(words))
            return "value"

        it.tool("t", body)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert " tool/result spliced spliced spliced step/end " in short(agent.session)
        assert texts_of(it.model.requests[1])[2:] == [
            "user: result c1: value",
            *("user: one", "user: two", "user: three"),
        ]


@aio
async def test_bodies_know_whose_call_they_are() -> None:
    from dsh.agent.initiator import current_initiator

    async with loop(calls(("c1", "t", RAW)), text("done")) as it:
        seen: list[Any] = []

        async def who(args: Any, exec: Any) -> str:  # noqa: A002
            seen.extend((current_initiator(), exec.agent))
            return ""

        it.tool("t", who)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert seen == [agent, agent]
        assert current_initiator() is None
