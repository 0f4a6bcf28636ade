"""The stages of a call: which outcome passes which stage, cancellation, and what comes out."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dsh.kernel import Cancelled, CancelToken
from dsh.tools.error import ToolError
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    Ask,
    Deny,
    Settled,
)
from dsh.tools.execution import ToolExecution, ToolFailure, ToolSuccess
from tests.aio import aio
from tests.tools.kit import call, cancelled, code, new_registry, text, tool
from tests.tools.stages import EXECUTE, POST, PRE, RESULT, answering, body, fail, raising, watch


@aio
async def test_a_call_that_runs_passes_every_stage_once() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)

    result = await tools.run(call())

    assert isinstance(result, ToolSuccess) and text(result) == "done"
    assert seen == [PRE, EXECUTE, POST, RESULT]


@aio
async def test_an_unknown_tool_passes_every_stage() -> None:
    ctx, tools = new_registry()
    seen = watch(ctx)

    result = await tools.run(call("teleport"))

    assert text(result) == 'Error: unknown tool "teleport"'
    assert isinstance(result, ToolFailure)
    assert result.info == {"name": "ToolNotFoundError", "code": "UNKNOWN_TOOL"}
    assert seen == [PRE, EXECUTE, POST, RESULT]


@aio
async def test_a_failed_body_is_reviewed() -> None:
    ctx, tools = new_registry()
    tools.register(tool("t", fail(ValueError("bad luck"))))
    seen = watch(ctx)

    result = await tools.run(call())

    assert text(result) == "Error: bad luck"
    assert isinstance(result, ToolFailure) and result.info is None
    assert seen == [PRE, EXECUTE, POST, RESULT]


@aio
async def test_a_denial_is_reviewed_and_has_no_code() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)
    ctx.on(TOOLS_PRE_EXECUTE, answering(Deny("not today")))

    result = await tools.run(call())

    assert text(result) == "Error: not today"
    assert code(result) is None
    assert seen == [PRE, POST, RESULT]


@aio
async def test_a_guards_denial_is_reviewed() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    tools.guard(lambda e: f"no {e.name}")
    seen = watch(ctx)

    assert text(await tools.run(call())) == "Error: no t"
    assert seen == [PRE, POST, RESULT]


@pytest.mark.parametrize("event", [TOOLS_PRE_EXECUTE, TOOLS_EXECUTE, TOOLS_POST_EXECUTE])
@aio
async def test_an_exception_of_a_policy_is_the_result_and_skips_the_review(event: Any) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)
    ctx.on(event, raising(RuntimeError("broken policy")))

    result = await tools.run(call())

    assert text(result) == "Error: broken policy"
    assert seen[-1] == RESULT
    assert (POST in seen) is (event is TOOLS_POST_EXECUTE)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (TOOLS_PRE_EXECUTE, "expected Allow, Deny or Ask"),
        (TOOLS_EXECUTE, "expected ToolSuccess or ToolFailure"),
        (TOOLS_POST_EXECUTE, "expected Accept or Block"),
    ],
)
@aio
async def test_an_answer_of_no_known_kind_is_a_failure(event: Any, expected: str) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(event, answering(None))

    result = await tools.run(call())

    assert result.is_error and expected in text(result)


@pytest.mark.parametrize("decision", [Deny({1}), Deny(None), Ask({1}), Ask(b"why")])  # type: ignore[arg-type]
@aio
async def test_a_reason_that_is_no_text_denies_and_says_so(decision: Any) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(TOOLS_PRE_EXECUTE, answering(decision))

    found = type(decision.reason).__name__
    expected = f"Error: a listener of tools/pre-execute gave a reason of type {found}, expected a text"
    assert text(await tools.run(call())) == expected


@pytest.mark.parametrize("event", [TOOLS_PRE_EXECUTE, TOOLS_EXECUTE, TOOLS_POST_EXECUTE])
@aio
async def test_a_listener_that_is_no_coroutine_function_is_told_what_it_should_be(event: Any) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(event, lambda payload, following: None)

    expected = f"Error: a listener of {event.name} is no `async def`: it answered NoneType"
    assert text(await tools.run(call())).startswith(expected)


@aio
async def test_a_guard_that_raises_or_answers_nonsense_denies() -> None:
    _, tools = new_registry()
    ran: list[int] = []
    tools.register(tool("t", body(lambda _: ran.append(1))))

    effect = tools.guard(lambda _: True)  # type: ignore[arg-type, return-value]
    assert "guard answered bool" in text(await tools.run(call()))
    effect()
    tools.guard(lambda e: e.nonsense)  # type: ignore[attr-defined]
    assert (await tools.run(call())).is_error

    assert ran == []


@aio
async def test_arguments_that_are_no_json_win_over_cancellation_and_reach_only_the_observer() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)

    result = await tools.run(call(arguments={"a": {1, 2}}, signal=cancelled()))

    assert "arguments.a" in text(result) and code(result) is None
    assert seen == [RESULT]


@pytest.mark.parametrize("name", ["t", "teleport"])
@aio
async def test_a_cancelled_call_is_aborted_before_anybody_is_asked(name: str) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)

    result = await tools.run(call(name, signal=cancelled()))

    assert text(result) == "Error: tool call aborted before dispatch"
    assert isinstance(result, ToolFailure)
    assert result.info == {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
    assert seen == [RESULT]


@aio
async def test_cancelled_while_policies_decide_is_aborted_before_dispatch_and_reviewed() -> None:
    ctx, tools = new_registry()
    ran: list[int] = []
    tools.register(tool("t", body(lambda _: ran.append(1))))
    seen = watch(ctx)
    token = CancelToken()

    async def canceller(_: object, following: Callable[[], Any]) -> Any:
        token.cancel("user")
        return await following()

    ctx.on(TOOLS_PRE_EXECUTE, canceller)

    assert code(await tools.run(call(signal=token))) == "ABORTED_BEFORE_DISPATCH"
    assert ran == [] and seen == [PRE, POST, RESULT]


@aio
async def test_cancelled_in_a_wrapper_before_the_body_is_aborted_before_dispatch() -> None:
    ctx, tools = new_registry()
    ran: list[int] = []
    tools.register(tool("t", body(lambda _: ran.append(1))))
    token = CancelToken()

    async def wrapper(_: object, following: Callable[[], Any]) -> Any:
        token.cancel("user")
        return await following()

    ctx.on(TOOLS_EXECUTE, wrapper)

    assert code(await tools.run(call(signal=token))) == "ABORTED_BEFORE_DISPATCH"
    assert ran == []


@aio
async def test_a_success_after_cancellation_is_aborted_and_a_failure_is_kept() -> None:
    _, tools = new_registry()
    token, other = CancelToken(), CancelToken()

    def stop_and_fail(_: ToolExecution) -> None:
        other.cancel("user")
        raise ToolError("disk full", code="DISK")

    tools.register(tool("good", body(lambda _: token.cancel("user"))))
    tools.register(tool("bad", body(stop_and_fail)))

    good = await tools.run(call("good", signal=token))
    bad = await tools.run(call("bad", signal=other))

    assert (text(good), code(good)) == ("Error: tool call aborted", "ABORTED")
    assert (text(bad), code(bad)) == ("Error: disk full", "DISK")


@aio
async def test_a_body_that_stops_at_its_token_is_aborted() -> None:
    _, tools = new_registry()
    token = CancelToken()

    def stop(execution: ToolExecution) -> None:
        token.cancel("user")
        execution.signal.raise_if_cancelled()

    tools.register(tool("t", body(stop)))

    assert code(await tools.run(call(signal=token))) == "ABORTED"


@aio
async def test_a_foreign_cancelled_token_is_an_ordinary_failure() -> None:
    _, tools = new_registry()
    tools.register(tool("t", fail(Cancelled("mine"))))

    result = await tools.run(call())

    assert code(result) is None and "mine" in text(result)


@aio
async def test_a_success_cancelled_during_review_is_aborted() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    token = CancelToken()

    async def late(_: object, following: Callable[[], Any]) -> Any:
        token.cancel("user")
        return await following()

    ctx.on(TOOLS_POST_EXECUTE, late)

    assert code(await tools.run(call(signal=token))) == "ABORTED"


@aio
async def test_reviewers_see_the_abort_of_a_call_that_was_cancelled_behind_its_body() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    token = CancelToken()
    seen: list[Any] = []

    async def wrapper(_: object, following: Callable[[], Any]) -> Any:
        result = await following()
        token.cancel("user")
        return result

    async def review(settled: Settled, following: Callable[[], Any]) -> Any:
        seen.append(code(settled.result))
        return await following()

    ctx.on(TOOLS_EXECUTE, wrapper)
    ctx.on(TOOLS_POST_EXECUTE, review)
    await tools.run(call(signal=token))

    assert seen == ["ABORTED"]


@aio
async def test_a_wrapper_has_its_own_token_again_when_the_body_is_done() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    mine = CancelToken()
    after: list[CancelToken] = []

    async def wrapper(execution: ToolExecution, following: Callable[[], Any]) -> Any:
        execution.signal = mine
        result = await following()
        after.append(execution.signal)
        return result

    ctx.on(TOOLS_EXECUTE, wrapper)
    await tools.run(call())

    assert after == [mine]


@aio
async def test_a_started_body_is_awaited_though_the_call_is_cancelled() -> None:
    _, tools = new_registry()
    token, started, gate = CancelToken(), asyncio.Event(), asyncio.Event()

    async def slow(_: Any, __: ToolExecution) -> str:
        started.set()
        await gate.wait()
        return "late"

    tools.register(tool("t", slow))
    task = asyncio.create_task(tools.run(call(signal=token)))
    await started.wait()
    token.cancel("user")
    for _ in range(5):
        await asyncio.sleep(0)

    assert not task.done()
    gate.set()
    assert code(await task) == "ABORTED"


@aio
async def test_a_wrapper_cannot_take_the_callers_cancellation_away() -> None:
    ctx, tools = new_registry()
    token = CancelToken()
    states: list[bool] = []

    def look(execution: ToolExecution) -> None:
        token.cancel("user")
        states.append(execution.signal.cancelled)

    async def detach(execution: ToolExecution, following: Callable[[], Any]) -> Any:
        execution.signal = CancelToken()
        return await following()

    tools.register(tool("t", body(look)))
    ctx.on(TOOLS_EXECUTE, detach)
    invocation = tools.begin(call(signal=token))
    await invocation.prepare()
    await invocation.dispatch()

    assert states == [True]
    assert invocation.execution.signal is token
    assert code(await invocation.finalize()) == "ABORTED"


@aio
async def test_a_cancelled_task_inside_a_body_is_the_tools_failure() -> None:
    _, tools = new_registry()

    async def trips(_: Any, __: ToolExecution) -> None:
        inner = asyncio.create_task(asyncio.sleep(10))
        inner.cancel()
        await inner

    tools.register(tool("t", trips))

    result = await tools.run(call())

    assert "was cancelled" in text(result) and code(result) is None


@aio
async def test_cancelling_the_task_of_a_call_goes_through() -> None:
    _, tools = new_registry()
    started = asyncio.Event()

    async def waits(_: Any, __: ToolExecution) -> None:
        started.set()
        await asyncio.sleep(10)

    tools.register(tool("t", waits))
    task = asyncio.create_task(tools.run(call()))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "tried to end the process (exit 3)"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (GeneratorExit(), "raised GeneratorExit"),
        (BaseException("odd"), "raised BaseException: odd"),
    ],
)
@aio
async def test_whatever_a_body_raises_is_its_own_failure(error: BaseException, words: str) -> None:
    _, tools = new_registry()
    tools.register(tool("t", fail(error)))

    assert words in text(await tools.run(call()))
