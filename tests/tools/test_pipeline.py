"""The stages of a call: which outcome passes which stage, and what comes out."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dsh.capabilities.approval import APPROVAL, ApprovalOutcome, ApprovalRequest
from dsh.errors import DshError
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.tools.definition import ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    TOOLS_RESULT,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Settled,
)
from dsh.tools.execution import ToolExecution, ToolFailure, ToolResult, ToolSuccess
from tests.aio import aio
from tests.tools.kit import StandInAgent, agent_in, call, cancelled, code, new_registry, text, tool, value

PRE, EXECUTE, POST, RESULT = "pre", "execute", "post", "result"


def watch(ctx: Context) -> list[str]:
    """Names of the stages that listeners hear of, in order."""
    seen: list[str] = []

    def around(name: str) -> Callable[..., Any]:
        async def listener(_: object, following: Callable[[], Any]) -> Any:
            seen.append(name)
            return await following()

        return listener

    ctx.on(TOOLS_PRE_EXECUTE, around(PRE))
    ctx.on(TOOLS_EXECUTE, around(EXECUTE))
    ctx.on(TOOLS_POST_EXECUTE, around(POST))
    ctx.on(TOOLS_RESULT, lambda _: seen.append(RESULT))
    return seen


def answering(decision: Any) -> Callable[..., Any]:
    async def listener(_: object, __: object) -> Any:
        return decision

    return listener


def raising(error: Exception) -> Callable[..., Any]:
    async def listener(_: object, __: object) -> Any:
        raise error

    return listener


def body(act: Callable[[ToolExecution], Any]) -> Callable[..., Any]:
    async def execute(_: Any, execution: ToolExecution) -> Any:
        answer = act(execution)
        return "done" if answer is None else answer

    return execute


def fail(error: BaseException) -> Callable[..., Any]:
    async def execute(_: Any, __: Any) -> Any:
        raise error

    return execute


def note(words: str) -> Any:
    return user_message(words, {"kind": "plugin", "plugin": "test"})


# -- which outcome passes which stage ------------------------------------------------------------


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


# -- errors ----------------------------------------------------------------------------------------


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


class Empty(Exception):
    pass


class Coded(DshError):
    pass


@pytest.mark.parametrize(
    ("error", "message", "info"),
    [
        (Mute(), "Mute", None),
        (Empty(), "Empty", None),
        (OSError("disk"), "disk", None),
        (ToolError("plain"), "plain", None),
        (Coded("x", code="NOPE"), "x", {"name": "Coded", "code": "NOPE"}),
        (Coded("x", code=3), "x", None),  # type: ignore[arg-type]
        (ValueError("half \ud800"), "half \ufffd", None),
        (ExceptionGroup("many", [ValueError("a")]), "many (1 sub-exception)", None),
    ],
)
@aio
async def test_what_an_exception_becomes(error: Exception, message: str, info: object) -> None:
    _, tools = new_registry()
    tools.register(tool("t", fail(error)))

    result = await tools.run(call())

    assert isinstance(result, ToolFailure)
    assert (text(result), result.info) == (f"Error: {message}", info)


# -- output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{1, 2}, b"x", float("nan"), object(), {"a": (lambda: 1)}])
@aio
async def test_a_value_that_is_no_json_breaks_the_contract(answer: Any) -> None:
    _, tools = new_registry()
    tools.register(tool("t", body(lambda _: answer)))

    result = await tools.run(call())

    assert code(result) == "INVALID_TOOL_OUTPUT"
    assert "not lossless JSON" in text(result)


@aio
async def test_a_body_that_returns_nothing_breaks_a_schema_without_null() -> None:
    _, tools = new_registry()

    async def nothing(_: Any, __: ToolExecution) -> None:
        return None

    tools.register(tool("t", nothing, output=ToolOutput({"type": "string"}, lambda a, v: v)))
    tools.register(tool("null", nothing, output=ToolOutput({"type": "null"}, lambda a, v: "nothing")))

    assert code(await tools.run(call())) == "INVALID_TOOL_OUTPUT"
    assert value(await tools.run(call("null"))) is None


def explode(*_: object) -> Any:
    raise RuntimeError("no picture")


@pytest.mark.parametrize(
    "output",
    [
        ToolOutput({}, explode),
        ToolOutput({}, lambda a, v: None),  # type: ignore[arg-type, return-value]
        ToolOutput({}, lambda a, v: [{"text": "no type"}]),
        ToolOutput({}, lambda a, v: [{"type": "text", "text": {1}}]),
        ToolOutput({}, lambda a, v: ["x"]),  # type: ignore[list-item]
        ToolOutput({}, lambda a, v: "", explode),
        ToolOutput({}, lambda a, v: "", lambda a, v: {1}),
    ],
)
@aio
async def test_a_broken_projection_breaks_the_contract(output: ToolOutput) -> None:
    _, tools = new_registry()
    tools.register(tool(output=output))

    assert code(await tools.run(call())) == "INVALID_TOOL_OUTPUT"


@aio
async def test_big_integers_in_a_value_keep_every_digit() -> None:
    _, tools = new_registry()
    tools.register(tool("t", body(lambda _: 12345678901234567890)))

    assert text(await tools.run(call())) == "12345678901234567890"


@aio
async def test_meta_is_made_for_top_level_calls_only() -> None:
    _, tools = new_registry()
    output = ToolOutput({}, lambda a, v: "", lambda a, v: {"seen": v})
    tools.register(tool(output=output))

    outer, inner = await tools.run(call()), await tools.run(call(parent=object()))

    assert outer.meta == {"seen": "done"}
    assert inner.meta is msgspec.UNSET


@aio
async def test_results_are_frozen() -> None:
    _, tools = new_registry()
    blocks = [{"type": "text", "text": "a"}]
    tools.register(
        tool("t", body(lambda _: {"list": [1]}), output=ToolOutput({}, lambda a, v: blocks, lambda a, v: {}))
    )

    result = await tools.run(call())
    blocks[0]["text"] = "changed"

    assert text(result) == "a"
    for change in (
        lambda: setattr(result, "content", ()),
        lambda: result.content[0].update(text="b"),  # type: ignore[attr-defined]
        lambda: value(result).update(x=1),
        lambda: value(result)["list"].append(2),
        lambda: result.meta.update(x=1),
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()


@aio
async def test_arguments_are_a_frozen_snapshot() -> None:
    _, tools = new_registry()
    arguments: dict[str, Any] = {"a": [1]}
    seen: list[Any] = []

    def look(execution: ToolExecution) -> None:
        seen.append(execution.arguments)
        with pytest.raises(TypeError):
            execution.arguments["b"] = 1

    tools.register(tool("t", body(look)))
    invocation = tools.begin(call(arguments=arguments))
    arguments["a"].append(2)
    await invocation.prepare()
    await invocation.dispatch()
    await invocation.finalize()

    assert seen == [{"a": (1,)}]


@aio
async def test_lone_surrogates_in_output_become_replacement_characters() -> None:
    _, tools = new_registry()
    tools.register(tool("t", body(lambda _: "a\ud800b")))

    assert text(await tools.run(call())) == "a\ufffdb"


# -- wrappers and reviews -----------------------------------------------------------------------------


@aio
async def test_a_success_made_by_a_wrapper_is_held_to_the_tools_contract() -> None:
    ctx, tools = new_registry()
    output = ToolOutput({"type": "string"}, lambda a, v: f"<{v}>")
    tools.register(tool(output=output))
    made: list[Any] = ["cached", 3]

    async def cache(_: object, __: object) -> ToolResult:
        return ToolSuccess(value=made.pop(0), content=({"type": "text", "text": "forged"},))

    ctx.on(TOOLS_EXECUTE, cache)

    assert text(await tools.run(call())) == "<cached>"
    assert code(await tools.run(call())) == "INVALID_TOOL_OUTPUT"


@aio
async def test_a_failure_made_by_a_wrapper_is_reviewed() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen = watch(ctx)
    ctx.on(TOOLS_EXECUTE, answering(ToolFailure.of("quota", name="Q", code="QUOTA")))

    result = await tools.run(call())

    assert (text(result), code(result)) == ("Error: quota", "QUOTA")
    assert seen == [PRE, EXECUTE, POST, RESULT]


@aio
async def test_accept_may_replace_the_content() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(TOOLS_POST_EXECUTE, answering(Accept(content=[{"type": "text", "text": "short"}])))

    result = await tools.run(call())

    assert (text(result), value(result)) == ("short", "done")


@aio
async def test_accept_may_replace_the_content_of_a_failure_which_stays_one() -> None:
    ctx, tools = new_registry()
    tools.register(tool("t", fail(ToolError("long story", code="X"))))
    ctx.on(TOOLS_POST_EXECUTE, answering(Accept(content=[{"type": "text", "text": "short"}])))

    result = await tools.run(call())

    assert isinstance(result, ToolFailure)
    assert (text(result), result.message, result.code) == ("short", "long story", "X")


@aio
async def test_a_replaced_value_is_validated_and_shown_anew() -> None:
    ctx, tools = new_registry()
    tools.register(tool(output=ToolOutput({"type": "string"}, lambda a, v: f"<{v}>", lambda a, v: {"v": v})))
    decisions = [Accept(value="other"), Accept(value=3)]

    async def replace(_: object, __: object) -> Accept:
        return decisions.pop(0)

    ctx.on(TOOLS_POST_EXECUTE, replace)
    good, bad = await tools.run(call()), await tools.run(call())

    assert (text(good), good.meta) == ("<other>", {"v": "other"})
    assert code(bad) == "INVALID_TOOL_OUTPUT"


@pytest.mark.parametrize(
    ("decision", "tool_fails", "problem"),
    [
        (Accept(value="v", content=[{"type": "text", "text": "c"}]), False, "content and value at once"),
        (Accept(value="v"), True, "gave a failed call a value"),
        (Accept(content=[{"no": "type"}]), False, 'must be a block with a "type"'),
    ],
)
@aio
async def test_what_accept_may_not_do(decision: Accept, tool_fails: bool, problem: str) -> None:
    ctx, tools = new_registry()
    tools.register(tool("t", fail(ToolError("no")) if tool_fails else None))
    ctx.on(TOOLS_POST_EXECUTE, answering(decision))

    result = await tools.run(call())

    assert result.is_error and problem in text(result)


IMAGE = {
    "type": "image",
    "attachment": {"attachmentId": "a", "mediaType": "image/png", "bytes": 1, "width": 1, "height": 1},
}


@aio
async def test_block_puts_its_feedback_and_only_its_own_contexts_in_place() -> None:
    ctx, tools = new_registry()
    tools.register(tool("t", body(lambda e: e.defer_context(note("tool's")))))
    feedback: list[dict[str, Any]] = [
        {"type": "text", "text": "first"},
        IMAGE,
        {"type": "text", "text": "last"},
    ]
    ctx.on(TOOLS_POST_EXECUTE, answering(Block(feedback=feedback, additional_contexts=(note("listener's"),))))

    result = await tools.run(call())

    assert isinstance(result, ToolFailure)
    assert result.message == "first\n[image content]\nlast"
    assert list(result.content) == feedback
    assert result.code is None
    assert [m["content"][0]["text"] for m in result.additional_contexts] == ["listener's"]  # type: ignore[typeddict-item]


@aio
async def test_a_block_without_feedback_has_a_message_of_ours() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(TOOLS_POST_EXECUTE, answering(Block(feedback=[])))

    result = await tools.run(call())

    assert isinstance(result, ToolFailure)
    assert result.content == () and "blocked" in result.message


def contexts(result: ToolResult) -> list[str]:
    return [m["content"][0]["text"] for m in result.additional_contexts]  # type: ignore[typeddict-item]


@aio
async def test_deferred_contexts_come_first_and_survive_failures() -> None:
    ctx, tools = new_registry()

    def defer_and_fail(execution: ToolExecution) -> None:
        execution.defer_context(note("deferred"))
        raise ToolError("no")

    tools.register(tool("good", body(lambda e: e.defer_context(note("deferred")))))
    tools.register(tool("bad", body(defer_and_fail)))

    async def wrap(_: object, following: Callable[[], Any]) -> ToolResult:
        result: ToolResult = await following()
        return msgspec.structs.replace(result, additional_contexts=(note("wrapper's"),))

    ctx.on(TOOLS_EXECUTE, wrap)
    ctx.on(TOOLS_POST_EXECUTE, answering(Accept(additional_contexts=(note("review's"),))))

    assert contexts(await tools.run(call("good"))) == ["deferred", "wrapper's", "review's"]
    assert contexts(await tools.run(call("bad"))) == ["deferred", "wrapper's", "review's"]


@aio
async def test_only_a_success_concludes_the_turn() -> None:
    ctx, tools = new_registry()

    def conclude_and_fail(execution: ToolExecution) -> None:
        execution.conclude_turn()
        raise ToolError("no")

    tools.register(tool("good", body(lambda e: e.conclude_turn())))
    tools.register(tool("bad", body(conclude_and_fail)))

    assert (await tools.run(call("good"))).concludes_turn
    assert not (await tools.run(call("bad"))).concludes_turn
    ctx.on(TOOLS_POST_EXECUTE, answering(Block(feedback=[])))
    assert not (await tools.run(call("good"))).concludes_turn


@aio
async def test_the_last_word_sees_every_outcome_once() -> None:
    ctx, tools = new_registry()
    seen: list[tuple[str | None, bool]] = []

    def last_word(_: ToolExecution, result: ToolResult) -> Any:
        seen.append((getattr(result, "code", None), result.is_error))
        return [{"type": "text", "text": "last"}]

    tools.register(tool("t", finalize_content=last_word))

    good = await tools.run(call())
    dead = await tools.run(call(signal=cancelled()))
    ctx.on(TOOLS_PRE_EXECUTE, raising(RuntimeError("x")))
    broken = await tools.run(call())

    assert [text(r) for r in (good, dead, broken)] == ["last"] * 3
    assert seen == [(None, False), ("ABORTED_BEFORE_DISPATCH", True), (None, True)]
    assert code(dead) == "ABORTED_BEFORE_DISPATCH"


@aio
async def test_a_raising_last_word_is_the_result_and_is_not_asked_again() -> None:
    _, tools = new_registry()
    asked: list[int] = []

    def last_word(*_: object) -> Any:
        asked.append(1)
        raise ToolError("no last word", code="LAST")

    tools.register(tool("t", finalize_content=last_word))

    result = await tools.run(call())

    assert (text(result), code(result), asked) == ("Error: no last word", "LAST", [1])


@aio
async def test_the_last_word_is_that_of_the_definition_seen_at_the_begin() -> None:
    _, tools = new_registry()
    effect = tools.register(tool("t", finalize_content=lambda e, r: [{"type": "text", "text": "old"}]))
    invocation = tools.begin(call())
    effect()

    await invocation.prepare()
    await invocation.dispatch()
    result = await invocation.finalize()

    assert (text(result), code(result)) == ("old", "UNKNOWN_TOOL")


@aio
async def test_observers_are_contained_and_see_what_comes_out() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen: list[Settled] = []

    def broken(_: Settled) -> None:
        raise RuntimeError("observer")

    ctx.on(TOOLS_RESULT, broken)
    ctx.on(TOOLS_RESULT, seen.append)

    result = await tools.run(call())

    assert [s.result for s in seen] == [result]
    assert seen[0].execution.name == "t"


@aio
async def test_listeners_of_an_agent_hear_its_calls_only() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    one, scope = await agent_in(ctx, "one")
    two, _ = await agent_in(ctx, "two")
    heard: list[str | None] = []

    def hear(settled: Settled) -> None:
        heard.append(settled.execution.agent.id if settled.execution.agent else None)

    scope.ctx.on(TOOLS_RESULT, hear)
    scope.ctx.on(TOOLS_PRE_EXECUTE, answering(Deny("one only")))

    results = [await tools.run(call(agent=a)) for a in (one, two, None)]

    assert [r.is_error for r in results] == [True, False, False]
    assert heard == ["one"]
    await ctx.dispose()


@aio
async def test_the_root_call_is_the_call_itself_unless_it_serves_another() -> None:
    _, tools = new_registry()
    seen: list[ToolExecution] = []
    tools.register(tool("t", body(seen.append)))

    await tools.run(call())
    await tools.run(call(root_call_id="r", parent=seen[0].token))

    assert [e.root_call_id for e in seen] == ["c1", "r"]
    assert seen[1].parent is seen[0].token is not seen[1].token


@aio
async def test_stages_are_called_once_and_in_order() -> None:
    _, tools = new_registry()
    tools.register(tool())
    invocation = tools.begin(call())

    with pytest.raises(RuntimeError):
        await invocation.dispatch()
    await invocation.prepare()
    with pytest.raises(RuntimeError):
        await invocation.prepare()


@aio
async def test_a_finished_call_leaves_nothing_on_its_token() -> None:
    _, tools = new_registry()
    tools.register(tool())
    token = CancelToken()

    await tools.run(call(signal=token))
    gc.collect()

    assert token._callbacks == []


# -- asking -------------------------------------------------------------------------------------------


class Answers:
    """An approval service that answers from a list."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[ApprovalRequest] = []

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        self.asked.append(request)
        outcome: Any = self.outcomes.pop(0)
        if isinstance(outcome, CancelToken):
            outcome.cancel("user")
            return "cancelled"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def policy_of(self, session: Session | None) -> Any:
        return "ask"


def asking(outcomes: Any, reason: str | None = "writes a file") -> tuple[Any, list[str], Answers]:
    ctx, tools = new_registry()
    ran: list[str] = []
    tools.register(tool("t", body(lambda _: ran.append("ran"))))
    answers = Answers(*outcomes)
    ctx.provide(APPROVAL, answers)
    ctx.on(TOOLS_PRE_EXECUTE, answering(Ask(reason)))
    return tools, ran, answers


@aio
async def test_ask_without_an_approval_service_is_a_denial_with_the_askers_reason() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    agent = StandInAgent(ctx)
    effect = ctx.on(TOOLS_PRE_EXECUTE, answering(Ask("writes a file")))

    assert text(await tools.run(call(agent=agent))) == "Error: writes a file"
    effect()
    ctx.on(TOOLS_PRE_EXECUTE, answering(Ask()))
    assert "approval" in text(await tools.run(call(agent=agent)))


@aio
async def test_ask_without_an_agent_is_a_denial() -> None:
    tools, ran, answers = asking(["allowed-once"])

    result = await tools.run(call())

    assert result.is_error and ran == [] and answers.asked == []


@aio
async def test_each_outcome_of_an_approval_has_its_own_text() -> None:
    tools, ran, answers = asking(["allowed-once", "rejected", "cancelled", "unavailable"])
    agent = StandInAgent(Context())

    results = [await tools.run(call(agent=agent)) for _ in range(4)]

    assert [r.is_error for r in results] == [False, True, True, True]
    assert len({text(r) for r in results}) == 4
    assert ran == ["ran"]
    assert {(r.tool_name, r.call_id, r.reason) for r in answers.asked} == {("t", "c1", "writes a file")}


@aio
async def test_guards_run_after_a_granted_approval() -> None:
    tools, ran, _ = asking(["allowed-once"])
    tools.guard(lambda _: "still no")

    assert text(await tools.run(call(agent=StandInAgent(Context())))) == "Error: still no"
    assert ran == []


@aio
async def test_cancelled_while_asking_is_aborted_before_dispatch() -> None:
    token = CancelToken()
    tools, ran, _ = asking([token])

    result = await tools.run(call(agent=StandInAgent(Context()), signal=token))

    assert code(result) == "ABORTED_BEFORE_DISPATCH" and ran == []


@aio
async def test_an_approval_that_raises_denies() -> None:
    tools, ran, _ = asking([RuntimeError("log is full")])

    assert text(await tools.run(call(agent=StandInAgent(Context())))) == "Error: log is full"
    assert ran == []


@aio
async def test_allow_is_what_listeners_get_from_next() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen: list[object] = []

    async def look(_: object, following: Callable[[], Any]) -> Any:
        seen.append(await following())
        return seen[0]

    ctx.on(TOOLS_PRE_EXECUTE, look)
    await tools.run(call())

    assert seen == [Allow()]
