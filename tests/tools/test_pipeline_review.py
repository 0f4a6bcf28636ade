"""Wrappers and reviews of a call: what they may make of its outcome."""

import gc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dsh.kernel import CancelToken
from dsh.tools.definition import ToolOutput
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
from dsh.tools.execution import ToolExecution, ToolFailure, ToolResult, ToolSuccess
from tests.aio import aio
from tests.tools.kit import agent_in, call, cancelled, code, new_registry, text, tool, value
from tests.tools.stages import EXECUTE, POST, PRE, RESULT, answering, body, fail, note, raising, watch


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


def failure(**fields: Any) -> ToolFailure:
    return ToolFailure(**{"message": "m", "content": ({"type": "text", "text": "m"},), **fields})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (failure(content=({"no": "type"},)), 'must be a block with a "type"'),
        (failure(content=({"type": "text"},)), "content[0]"),
        (failure(content=3), "content must be a text or a list of blocks"),
        (failure(meta={1}), "meta is not lossless JSON"),
        (failure(code=3), "name and code of a failure must be texts"),
        (failure(name=object(), code="X"), "name and code of a failure must be texts"),
        (failure(additional_contexts=("text",)), "additional context"),
        (ToolSuccess(value="v", content=(), additional_contexts=({},)), "additional context"),  # type: ignore[typeddict-item]
    ],
)
@aio
async def test_what_a_wrapper_makes_wrongly_is_a_failure_and_no_row_that_the_log_refuses(
    made: ToolResult, words: str
) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    ctx.on(TOOLS_EXECUTE, answering(made))

    result = await tools.run(call())

    assert code(result) == "INVALID_TOOL_OUTPUT" and words in text(result)
    assert result.meta is msgspec.UNSET and result.additional_contexts == ()


@pytest.mark.parametrize("decision", [Accept(), Block(feedback=[])])
@aio
async def test_a_context_of_a_review_that_is_no_message_is_a_failure(decision: Any) -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    odd = msgspec.structs.replace(decision, additional_contexts=({"role": "user"},))
    ctx.on(TOOLS_POST_EXECUTE, answering(odd))

    assert code(await tools.run(call())) == "INVALID_TOOL_OUTPUT"


@aio
async def test_a_tool_learns_at_once_that_a_context_is_no_message() -> None:
    _, tools = new_registry()
    told: list[str] = []

    def defers(execution: ToolExecution) -> None:
        with pytest.raises(ToolError) as raised:
            execution.defer_context("text")  # type: ignore[arg-type]
        told.append(str(raised.value))

    tools.register(tool("t", body(defers)))

    assert text(await tools.run(call())) == "done"
    assert told[0].startswith("additional context")


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
    ctx.on(TOOLS_POST_EXECUTE, raising(RuntimeError("no review")), prepend=True)
    assert contexts(await tools.run(call("good"))) == ["deferred", "wrapper's"]


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
    made = ToolSuccess(value="cached", content=(), concludes_turn=True)
    with_wrapper = ctx.on(TOOLS_EXECUTE, answering(made))
    assert (await tools.run(call("good"))).concludes_turn
    await with_wrapper()
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
