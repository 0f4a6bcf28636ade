"""The calls of one message over time: cancellation in any phase, contexts, conclusions, many calls, cost."""

import asyncio
import sys
from typing import Any

import pytest

from dsh.agent.contract import CancelCause
from dsh.kernel import Effect
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.tools.definition import TEXT_OUTPUT, Resources, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    TOOLS_RESULT,
    Accept,
    Block,
    Deny,
    Settled,
)
from dsh.tools.typed import typed_tool
from tests.agent.kit import Loop, calls, data_of, ends, loop, text, texts_of, until
from tests.aio import aio_in_virtual_time as aio

RAW = "{}"
USER: CancelCause = {"kind": "user"}
NOT_RUN = "ABORTED_BEFORE_DISPATCH"


def rows(session: Session) -> list[str]:
    """`call c1`, `result c1`, … in log order."""
    out = []
    for event in session.events():
        if event.type == "tool/call":
            out.append(f"call {event.data['callId']}")
        elif event.type == "tool/result":
            out.append(f"result {event.data['message']['source']['callId']}")
    return out


def codes(session: Session) -> list[str | None]:
    return [found.get("error", {}).get("code") for found in data_of(session, "tool/result")]


def asked(count: int) -> Any:
    return calls(*((f"c{n}", "t", RAW) for n in range(1, count + 1)))


async def heeding(args: Any, execution: Any) -> str:
    """Runs until it is told to stop."""
    gate = asyncio.Event()
    execution.signal.on_cancel(lambda _: gate.set())
    await gate.wait()
    return "stopped"


# -- cancellation ------------------------------------------------------------------------------------


@aio
async def test_cancelled_in_a_policy_the_running_drain_and_the_rest_is_answered_in_order() -> None:
    async with loop(asked(5), text("done")) as it:
        it.tool("t", heeding, concurrency_safe=True)
        agent = await it.agent()

        async def policy(execution: Any, following: Any) -> Any:
            if execution.call_id == "c3":
                await asyncio.sleep(0.001)
                agent.cancel(USER)
            return await following()

        it.ctx.on(TOOLS_PRE_EXECUTE, policy)
        await it.prompt(agent, "go")

        assert rows(agent.session) == [
            *("call c1", "call c2", "call c3", "result c1", "result c2", "result c3"),
            *("call c4", "result c4", "call c5", "result c5"),
        ]
        assert codes(agent.session) == ["ABORTED", "ABORTED", NOT_RUN, NOT_RUN, NOT_RUN]
        assert ends(agent.session) == [{"kind": "aborted", "reason": USER}]


@pytest.mark.parametrize("finished", [(), ("c2",), ("c1", "c2"), ("c3",)])
@aio
async def test_cancelled_with_a_full_pool_what_had_ended_keeps_its_success_once_committed(
    finished: tuple[str, ...],
) -> None:
    async with loop(asked(5), text("done"), config={"maxParallelToolCalls": 3}) as it:
        gates = {f"c{n}": asyncio.Event() for n in range(1, 6)}
        started: list[str] = []

        async def body(args: Any, execution: Any) -> str:
            started.append(execution.call_id)
            execution.signal.on_cancel(lambda _: gates[execution.call_id].set())
            await gates[execution.call_id].wait()
            return "value"

        it.tool("t", body, concurrency_safe=True)
        agent = await it.agent()
        running = asyncio.ensure_future(it.prompt(agent, "go"))
        await until(lambda: len(started) == 3)
        for call_id in finished:
            gates[call_id].set()
        for _ in range(100):
            await asyncio.sleep(0)
        agent.cancel(USER)
        await running

        kept = {"c1", "c2"} if finished == ("c1", "c2") else set()
        results = data_of(agent.session, "tool/result")
        sound = {
            found["message"]["source"]["callId"]
            for found in results
            if not found["message"]["content"][0]["isError"]
        }
        assert sound == kept, "a success that is still to be reviewed is replaced by the abort"
        assert len(results) == 5
        order = [row for row in rows(agent.session) if row.startswith("result")]
        assert order == [f"result c{n}" for n in range(1, 6)]


@aio
async def test_what_a_cancelled_call_had_to_say_waits_for_a_later_wake() -> None:
    async with loop(asked(2), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            execution.defer_context(user_message(f"from {execution.call_id}"))
            agent.cancel(USER, keep_inbox=True)
            return "value"

        it.tool("t", body)
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert codes(agent.session) == ["ABORTED", NOT_RUN]
        assert [message["content"][0]["text"] for message in agent.inbox.next_step] == ["from c1"]  # type: ignore[typeddict-item]
        assert agent.status == "idle", "it wakes nobody"
        await it.prompt(agent, "again")
        assert [line for line in texts_of(it.model.requests[-1]) if "from c1" in line] == ["user: from c1"]


# -- order -------------------------------------------------------------------------------------------


@aio
async def test_contexts_come_in_the_order_of_the_calls_behind_all_results() -> None:
    async with loop(asked(3), text("done")) as it:
        gates = {f"c{n}": asyncio.Event() for n in range(1, 4)}

        async def body(args: Any, execution: Any) -> str:
            await gates[execution.call_id].wait()
            execution.defer_context(user_message(f"about {execution.call_id}"))
            if execution.call_id == "c3":
                gates["c2"].set()
            elif execution.call_id == "c2":
                gates["c1"].set()
            return "value"

        it.tool("t", body, concurrency_safe=True)
        agent = await it.agent()
        gates["c3"].set()
        await it.prompt(agent, "go")

        assert texts_of(it.model.requests[1])[2:] == [
            *(f"user: result c{n}: value" for n in (1, 2, 3)),
            *(f"user: about c{n}" for n in (1, 2, 3)),
        ]


@aio
async def test_a_later_call_may_start_after_an_earlier_result() -> None:
    async with loop(asked(3), text("done"), config={"maxParallelToolCalls": 2}) as it:

        async def body(args: Any, execution: Any) -> str:
            await asyncio.sleep(0.001 if execution.call_id == "c1" else 0.01)
            return "value"

        it.tool("t", body, concurrency_safe=True)
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert rows(agent.session)[:4] == ["call c1", "call c2", "result c1", "call c3"]


@aio
async def test_a_result_does_not_wait_for_all_calls_to_have_started() -> None:
    async with loop(asked(3), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            return "value"

        async def policy(execution: Any, following: Any) -> Any:
            await asyncio.sleep(0.001)
            return await following()

        it.tool("t", body, concurrency_safe=True)
        it.ctx.on(TOOLS_PRE_EXECUTE, policy)
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert rows(agent.session)[:4] == ["call c1", "call c2", "result c1", "call c3"]


@aio
async def test_a_review_of_an_earlier_call_is_done_before_a_conflicting_one_starts() -> None:
    async with loop(asked(2), text("done")) as it:
        log: list[str] = []

        async def body(args: Any, execution: Any) -> str:
            log.append(f"run {execution.call_id}")
            return "value"

        async def review(seen: Settled, following: Any) -> Any:
            await asyncio.sleep(0.001)
            log.append(f"reviewed {seen.execution.call_id}")
            return await following()

        it.tool("t", body, resources=lambda args, call: Resources(writes=frozenset({"a"})))
        it.ctx.on(TOOLS_POST_EXECUTE, review)
        await it.prompt(await it.agent(), "go")

        assert log == ["run c1", "reviewed c1", "run c2", "reviewed c2"]


@aio
async def test_an_observer_of_a_result_that_registers_a_tool_anew_changes_the_calls_to_come() -> None:
    async with loop(asked(4), text("done"), config={"maxParallelToolCalls": 2}) as it:
        running: list[str] = []
        beside: dict[str, list[str]] = {}
        registered: list[Effect] = []

        async def body(args: Any, execution: Any) -> str:
            beside[execution.call_id] = list(running)
            running.append(execution.call_id)
            await asyncio.sleep({"c1": 0.001, "c2": 0.02}.get(execution.call_id, 0.002))
            running.remove(execution.call_id)
            return "value"

        def register(*, safe: bool) -> None:
            registered.append(
                it.tools.register(
                    typed_tool(
                        name="t",
                        description="",
                        parameters={},
                        output=TEXT_OUTPUT,
                        execute=body,
                        concurrency_safe=safe,
                    )
                )
            )

        def change(seen: Settled) -> None:
            if seen.execution.call_id == "c1":
                registered[0]()
                register(safe=False)

        register(safe=True)
        it.ctx.on(TOOLS_RESULT, change)
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert beside == {"c1": [], "c2": ["c1"], "c3": [], "c4": []}
        assert ends(agent.session) == [{"kind": "completed"}]


# -- rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "keys", "error"),
    [
        ("fine", ["turn", "step", "message"], None),
        ("noted", ["turn", "step", "message", "meta"], None),
        ("raises", ["turn", "step", "message"], None),
        ("denied", ["turn", "step", "message"], None),
        ("coded", ["turn", "step", "message", "error"], {"name": "ToolError", "code": "OWN"}),
    ],
)
@aio
async def test_rows_have_the_keys_of_the_format_in_its_order(
    way: str, keys: list[str], error: dict[str, str] | None
) -> None:
    async with loop(calls(("c-7", "t", '{"path": "a.py"}')), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            if way == "raises":
                raise ValueError("no")
            if way == "coded":
                raise ToolError("no", code="OWN")
            return "value"

        async def policy(execution: Any, following: Any) -> Any:
            return Deny("no") if way == "denied" else await following()

        output = ToolOutput(
            {"type": "string"},
            lambda args, value: value,
            lambda args, value: {"n": 1} if way == "noted" else None,
        )
        it.tools.register(typed_tool(name="t", description="", parameters={}, output=output, execute=body))
        it.ctx.on(TOOLS_PRE_EXECUTE, policy)
        agent = await it.agent()
        await it.prompt(agent, "go")

        called, result = (
            next(event for event in agent.session.events() if event.type == kind)
            for kind in ("tool/call", "tool/result")
        )
        expected = {"turn": 1, "step": 1, "callId": "c-7", "name": "t", "arguments": '{"path": "a.py"}'}
        assert list(called.data.items()) == list(expected.items())
        assert result.sources == (called.seq,)
        assert list(result.data) == keys
        assert result.data.get("error") == error
        assert error is None or list(result.data["error"]) == ["name", "code"]
        message = result.data["message"]
        assert list(message) == ["source", "content", "role", "id"]
        assert message["source"] == {"kind": "tool", "callId": "c-7"}
        (block,) = message["content"]
        assert list(block) == ["type", "toolCallId", "content", "isError"]
        assert block["isError"] is (way not in ("fine", "noted"))


# -- conclusions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "requests"), [("succeeds", 1), ("fails", 2), ("blocked", 2), ("shown", 1), ("wrapped", 2)]
)
@aio
async def test_only_a_successful_call_concludes_the_turn(way: str, requests: int) -> None:
    from dsh.tools.execution import ToolFailure

    async with loop(asked(2), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            if execution.call_id == "c1":
                execution.conclude_turn()
                if way == "fails":
                    raise ValueError("no")
            return "value"

        async def review(seen: Settled, following: Any) -> Any:
            words = [{"type": "text", "text": "changed"}]
            match way:
                case "blocked":
                    return Block(feedback=words)
                case "shown":
                    return Accept(content=words)
                case _:
                    return await following()

        async def wrapper(execution: Any, following: Any) -> Any:
            result = await following()
            return ToolFailure.of("no") if way == "wrapped" else result

        it.tool("t", body, concurrency_safe=True)
        it.ctx.on(TOOLS_POST_EXECUTE, review)
        it.ctx.on(TOOLS_EXECUTE, wrapper)
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert len(it.model.requests) == requests
        assert len(data_of(agent.session, "tool/result")) == 2, "all calls of the message run"
        assert ends(agent.session) == [{"kind": "completed"}]


# -- many calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("safe", [True, False])
@aio
async def test_two_hundred_calls_in_one_message_are_all_answered_in_order(safe: bool) -> None:
    async with loop(asked(200), text("done")) as it:
        running = most = 0

        async def body(args: Any, execution: Any) -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(int(execution.call_id[1:]) % 7 / 1000)
            running -= 1
            return execution.call_id  # type: ignore[no-any-return]

        it.tool("t", body, concurrency_safe=safe)
        agent = await it.agent()
        await it.prompt(agent, "go")

        expected = [f"user: result c{n}: c{n}" for n in range(1, 201)]
        assert texts_of(it.model.requests[1])[2:] == expected
        assert most == (10 if safe else 1)


@pytest.mark.parametrize("safe", [False, True])
@aio
async def test_all_calls_of_a_message_may_have_one_id(safe: bool) -> None:
    async with loop(calls(*(("c", "t", f'{{"n": {n}}}') for n in range(30))), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            await asyncio.sleep(0)
            return str(args["n"])

        it.tool("t", body, concurrency_safe=safe)
        agent = await it.agent()
        await it.prompt(agent, "go")

        results = data_of(agent.session, "tool/result")
        assert [found["message"]["content"][0]["content"][0]["text"] for found in results] == [
            str(n) for n in range(30)
        ]
        assert ends(agent.session) == [{"kind": "completed"}]


# -- cost --------------------------------------------------------------------------------------------


async def functions_called(it: Loop, session_length: int) -> int:
    """How many functions are called between the first `tool/call` and the last `tool/result` of a step."""
    counted = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal counted
        counted += event == "call"

    agent = await it.agent()
    for _ in range(session_length):
        agent.session.append("test/filler", {}, ignorable=True)

    def begin(session: Session) -> None:
        sys.setprofile(count)

    def end(session: Session) -> None:
        sys.setprofile(None)

    it.when("tool/call", begin)
    it.when("tool/result", end, time=8)
    try:
        await it.prompt(agent, "go")
    finally:
        sys.setprofile(None)
    assert ends(agent.session) == [{"kind": "completed"}]
    return counted


@pytest.mark.parametrize("safe", [True, False])
@aio
async def test_a_call_costs_the_same_however_long_the_log_is(safe: bool) -> None:
    async def cost(session_length: int) -> int:
        async with loop(asked(8), text("done")) as it:

            async def body(args: Any, execution: Any) -> str:
                return "value"

            it.tool("t", body, concurrency_safe=safe)
            return await functions_called(it, session_length)

    await cost(1)
    short, long = await cost(10), await cost(3_000)

    assert long <= short + 40, "a few calls more or less are chance, one for each event is not"
