"""Foreign code that never comes back, or with anything but an answer: the turn ends all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.agent import grace
from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AGENT_TURN_STOPPING,
    Agent,
    CancelCause,
)
from dsh.agent.grace import Grace, NoOutcome
from dsh.agent.prompt import SYSTEM_PROMPT, SYSTEM_PROMPT_ASSEMBLE
from dsh.kernel import CancelToken, Context
from dsh.llm.registry import LLM_STREAM
from dsh.plugins import timeout_policy
from dsh.session.chunk import BlockStart, TextDelta
from dsh.session.message import user_message
from dsh.session.store import SESSION_EVENT
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.event import TOOLS_EXECUTE, TOOLS_POST_EXECUTE, TOOLS_PRE_EXECUTE
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.kit import Loop, calls, data_of, ends, failed, loop, short, text, until
from tests.aio import aio_in_virtual_time as aio

USER: CancelCause = {"kind": "user"}
ABORTED = [{"kind": "aborted", "reason": {"kind": "user"}}]


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grace, "GRACE_S", 0.03)
    monkeypatch.setattr(grace, "LEAST_S", 0.01)


async def echo(args: Any, execution: Any) -> str:
    return "echoed"


Foreign = Callable[[], Awaitable[None]]


def around(event: Any) -> Callable[[Loop, Foreign], None]:
    """Put foreign code into a waterfall."""

    def install(it: Loop, foreign: Foreign) -> None:
        async def listener(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
            await foreign()
            return await following()

        it.ctx.on(event, listener)

    return install


def at_stopping(it: Loop, foreign: Foreign) -> None:
    it.ctx.on(AGENT_TURN_STOPPING, lambda stopping: foreign())


def in_stream(it: Loop, foreign: Foreign) -> None:
    it.model.replies = [[BlockStart(0, "text"), TextDelta(0, "half"), foreign]]


def in_body(it: Loop, foreign: Foreign) -> None:
    async def body(args: Any, execution: Any) -> str:
        await foreign()
        return ""

    it.tool("odd", body)


IN_TURN = [
    around(SYSTEM_PROMPT_ASSEMBLE),
    around(AGENT_PRE_STEP),
    around(AGENT_REQUEST),
    around(AGENT_REQUEST_ERROR),
    at_stopping,
]
IN_CALL = [around(TOOLS_PRE_EXECUTE), around(TOOLS_EXECUTE), around(TOOLS_POST_EXECUTE), in_body]


def script(place: Callable[[Loop, Foreign], None]) -> tuple[Any, ...]:
    """A model that brings the run to the place."""
    if place is IN_TURN[3]:
        return (failed("SERVER"),)
    if place in IN_CALL:
        return (
            calls(("c1", "odd" if place is in_body else "echo", "{}"), ("c2", "echo", "{}")),
            text("done"),
        )
    return (text("done"),)


def balanced(agent: Agent) -> bool:
    rows = short(agent.session).split()
    pairs = (("turn/start", "turn/end"), ("step/start", "step/end"), ("tool/call", "tool/result"))
    return all(rows.count(a) == rows.count(b) for a, b in pairs)


@pytest.mark.parametrize("place", [*IN_TURN, in_stream, *IN_CALL])
@aio
async def test_code_that_ignores_the_cancellation_is_given_up_wherever_it_is(
    place: Callable[[Loop, Foreign], None], short_grace: None
) -> None:
    async with loop(*script(place)) as it:
        it.tool("echo", echo)
        handle = await it.create()
        agent = handle.agent
        ended: list[str] = []
        is_there = asyncio.Event()

        async def never() -> None:
            is_there.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cut off")

        place(it, never)
        agent.followup(user_message("go"))
        await is_there.wait()
        agent.cancel(USER)
        async with asyncio.timeout(5):
            await agent.when_idle()

        assert ends(agent.session) == ABORTED
        assert balanced(agent)
        assert len(agent.degraded) == 1
        assert ended == [], "it is left at work"
        await handle.dispose()
        assert ended == ["cut off"], "and ends with the agent"


@pytest.mark.parametrize("by", ["cancel", "deadline"])
@pytest.mark.parametrize("first", ["agent", "plugin"])
@aio
async def test_a_body_that_was_given_up_ends_with_its_agent_or_its_plugin(
    by: str, first: str, short_grace: None
) -> None:
    rows = [(timeout_policy, {"graceMs": 10})]
    async with loop(calls(("c1", "stuck", "{}")), text("done"), rows=rows) as it:
        ended: list[str] = []
        is_there = asyncio.Event()

        async def stuck(args: Any, execution: Any) -> str:
            is_there.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cut off")
            return ""

        def plugin(ctx: Context) -> None:
            definition = typed_tool(
                name="stuck",
                description="",
                parameters={},
                output=TEXT_OUTPUT,
                execute=stuck,
                timeout_ms=10 if by == "deadline" else 60_000,
            )
            ctx.use(TOOLS).register(definition)

        fiber = await it.ctx.plugin(plugin, inject=[TOOLS])
        handle = await it.create()
        agent = handle.agent
        agent.followup(user_message("go"))
        await is_there.wait()
        assert fiber.held == "tool stuck is running"
        if by == "cancel":
            agent.cancel(USER)
        await agent.when_idle()

        assert agent.degraded == ("tool stuck",)
        [result] = data_of(agent.session, "tool/result")
        assert result["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
        assert (fiber.held, ended) == ("", []), "it is left at work, and nobody waits for it"
        await (handle.dispose() if first == "agent" else fiber.dispose())
        assert ended == ["cut off"]


@aio
async def test_a_policy_that_never_answers_has_kept_the_body_from_starting(short_grace: None) -> None:
    async with loop(calls(("c1", "echo", "{}"))) as it:
        ran: list[str] = []

        async def body(args: Any, execution: Any) -> str:
            ran.append(execution.call_id)
            return ""

        it.tool("echo", body)
        agent = await it.agent()
        gate = asyncio.Event()
        around(TOOLS_PRE_EXECUTE)(it, gate_of(gate))
        agent.followup(user_message("go"))
        await until(lambda: data_of(agent.session, "tool/call"))
        agent.cancel(USER)
        await agent.when_idle()
        gate.set()
        await asyncio.sleep(0.01)
        (result,) = data_of(agent.session, "tool/result")
        assert result["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
        assert ran == [], "also after its late answer"
        assert agent.degraded == ("a policy of tool echo",)


def gate_of(gate: asyncio.Event) -> Foreign:
    async def wait() -> None:
        await gate.wait()

    return wait


@aio
async def test_a_stream_that_was_given_up_writes_nothing_any_more(short_grace: None) -> None:
    gate = asyncio.Event()
    async with loop([BlockStart(0, "text"), TextDelta(0, "half"), gate.wait, TextDelta(0, " late")]) as it:
        agent = await it.agent()
        agent.followup(user_message("go"))
        await until(lambda: len(data_of(agent.session, "assistant/chunk")) == 2)
        agent.cancel(USER)
        await agent.when_idle()
        length = agent.session.length
        gate.set()
        await until(lambda: it.model.closed)
        assert agent.session.length == length
        (kept,) = data_of(agent.session, "assistant/message")
        assert kept["interrupted"] and kept["message"]["content"][0]["text"] == "half"


class Odd(BaseException):
    """What ordinary handlers do not see."""


def raising(error: BaseException) -> Foreign:
    async def foreign() -> None:
        raise error

    return foreign


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


FOREIGN = [raising(SystemExit(3)), raising(asyncio.CancelledError()), raising(Odd("x")), cancels_itself]


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("place", IN_TURN)
@aio
async def test_whatever_a_listener_ends_with_is_an_error_of_the_turn(
    place: Callable[[Loop, Foreign], None], foreign: Foreign
) -> None:
    async with loop(*script(place)) as it:
        agent = await it.agent()
        place(it, foreign)
        await it.prompt(agent, "go")
        assert [end["kind"] for end in ends(agent.session)] == ["error"]
        assert balanced(agent)
        assert agent.status == "idle"


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("place", IN_CALL)
@aio
async def test_whatever_ends_a_call_is_its_result_and_the_turn_goes_on(
    place: Callable[[Loop, Foreign], None], foreign: Foreign
) -> None:
    async with loop(*script(place)) as it:
        it.tool("echo", echo)
        agent = await it.agent()
        place(it, foreign)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        first = data_of(agent.session, "tool/result")[0]
        assert first["message"]["content"][0]["isError"] is True
        assert balanced(agent)


@aio
async def test_a_section_or_a_stream_listener_that_exits_is_an_error_of_the_turn() -> None:
    def leave(*args: Any) -> Any:
        raise SystemExit(3)

    async with loop(text("done")) as it:
        agent = await it.agent()
        section = it.ctx.use(SYSTEM_PROMPT).section("x", 1, leave)
        await it.prompt(agent, "go")
        await section()
        it.ctx.on(LLM_STREAM, leave)
        it.ctx.on(SESSION_EVENT, leave)
        await it.prompt(agent, "again")
        assert [end["kind"] for end in ends(agent.session)] == ["error", "error"]
        assert balanced(agent)


@aio
async def test_the_grace_counts_from_the_cancellation_for_all_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grace, "GRACE_S", 0.1)
    monkeypatch.setattr(grace, "LEAST_S", 0.01)
    given_up: list[asyncio.Task[Any]] = []
    token = CancelToken()
    it = Grace(token, lambda task, who: given_up.append(task))
    token.cancel("x")
    clock = asyncio.get_running_loop().time
    start = clock()
    for _ in range(5):
        with pytest.raises(NoOutcome):
            await it.wait(asyncio.sleep(60), "x")
    assert clock() - start < 0.4
    assert await it.wait(asyncio.sleep(0.005, "soon"), "y") == "soon", "what ends at once is still heard"
    for task in given_up:
        task.cancel()


@aio
async def test_the_end_of_the_waiting_task_ends_the_work() -> None:
    async def work() -> None:
        await Grace(CancelToken(), lambda task, who: None).wait(asyncio.sleep(60), "x")

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
