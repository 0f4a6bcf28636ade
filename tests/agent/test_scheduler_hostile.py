"""Tools that do everything wrong, called by the loop: each call is answered, and the agent goes on."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from dsh.session.message import user_message
from dsh.session.verify.log import verify
from dsh.tools.definition import Resources, ToolDefinition, ToolOutput
from dsh.tools.event import TOOLS_RESULT
from dsh.tools.typed import typed_tool
from tests.agent.kit import Loop, calls, data_of, ends, loop, text, texts_of
from tests.aio import aio_in_virtual_time as aio

RAW = "{}"
Body = Callable[[Any, Any], Any]


class Mute(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class MuteExit(BaseException):
    """The same beyond ordinary handlers."""

    def __str__(self) -> str:
        raise SystemExit(9)


def raising(error: BaseException) -> Body:
    async def body(args: Any, execution: Any) -> Any:
        raise error

    return body


def returning(make: Callable[[], Any]) -> Body:
    async def body(args: Any, execution: Any) -> Any:
        return make()

    return body


def deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


async def mutates_arguments(args: Any, execution: Any) -> Any:
    args["path"] = "/etc/passwd"


async def mutates_execution(args: Any, execution: Any) -> Any:
    execution.arguments["path"] = "/etc/passwd"


async def ends_its_task(args: Any, execution: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def not_a_coroutine(args: Any, execution: Any) -> Any:
    return "done"


FAILING: dict[str, Body] = {
    "raises": raising(ValueError("no")),
    "raises what cannot be told": raising(Mute()),
    "raises a base exception that cannot be told": raising(MuteExit()),
    "exits": raising(SystemExit(3)),
    "interrupts": raising(KeyboardInterrupt()),
    "is cancelled within": raising(asyncio.CancelledError()),
    "ends its task": ends_its_task,
    "closes": raising(GeneratorExit()),
    "returns nothing": returning(lambda: None),
    "returns NaN": returning(lambda: float("nan")),
    "returns infinity": returning(lambda: {"a": [float("inf")]}),
    "returns an object": returning(object),
    "returns a set": returning(lambda: {1}),
    "returns bytes": returning(lambda: b"x"),
    "returns a cycle": returning(cyclic),
    "returns too deep": returning(deep),
    "returns odd keys": returning(lambda: {1: 2}),
    "returns a function": returning(lambda: quick),
    "is no coroutine": not_a_coroutine,
    "mutates its arguments": mutates_arguments,
    "mutates the execution": mutates_execution,
}


def plain(name: str, body: Body, **changes: Any) -> ToolDefinition:
    """A tool whose value must be a text or an object."""
    schema = {"oneOf": [{"type": "string"}, {"type": "object"}]}
    fields: dict[str, Any] = {
        "name": name,
        "description": name,
        "parameters": {"type": "object", "properties": {}},
        "output": ToolOutput(schema, lambda args, value: str(value)),
        "execute": body,
        **changes,
    }
    return ToolDefinition(**fields)


async def quick(args: Any, execution: Any) -> str:
    return "fine"


def results(it: Loop) -> list[Any]:
    return data_of(it.sessions.list()[0], "tool/result")


def said(result: Any) -> str:
    found: str = result["message"]["content"][0]["content"][0]["text"]
    return found


def assert_sound(it: Loop) -> None:
    """The log says nothing that contradicts itself."""
    assert [f for f in verify(it.sessions.list()[0]).findings if f.level == "error"] == []


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("way", FAILING)
@aio
async def test_a_call_that_goes_wrong_is_a_failed_result_beside_sound_ones(way: str, safe: bool) -> None:
    asked = calls(("c1", "quick", RAW), ("c2", "odd", RAW), ("c3", "quick", RAW))
    async with loop(asked, text("done")) as it:
        is_safe = (lambda args: True) if safe else None
        it.tools.register(plain("odd", FAILING[way], is_concurrency_safe=is_safe))
        it.tools.register(plain("quick", quick, is_concurrency_safe=is_safe))
        agent = await it.agent()
        await it.prompt(agent, "go")

        flags = [found["message"]["content"][0]["isError"] for found in results(it)]
        assert flags == [False, True, False]
        assert said(results(it)[1]).startswith("Error: ")
        await it.prompt(agent, "again")
        assert ends(agent.session) == [{"kind": "completed"}, {"kind": "completed"}]
        assert_sound(it)


SYNC_PLACES = ("resources", "is_concurrency_safe", "render", "meta", "finalize", "guard", "observer")
EXITS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), MuteExit(), Mute(), ValueError("no")]


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", SYNC_PLACES)
@aio
async def test_functions_of_a_tool_may_raise_anything(place: str, error: BaseException) -> None:
    def broken(*_: Any) -> Any:
        raise error

    async with loop(calls(("c1", "odd", RAW), ("c2", "odd", RAW)), text("done")) as it:
        by_place: dict[str, dict[str, Any]] = {
            "resources": {"resources": broken},
            "is_concurrency_safe": {"is_concurrency_safe": broken},
            "render": {"output": ToolOutput({}, broken)},
            "meta": {"output": ToolOutput({}, lambda args, value: "", broken)},
            "finalize": {"finalize_content": broken},
        }
        it.tools.register(plain("odd", quick, **by_place.get(place, {})))
        if place == "guard":
            it.tools.guard(broken)
        if place == "observer":
            it.ctx.on(TOOLS_RESULT, broken)
        agent = await it.agent()
        await it.prompt(agent, "go")

        is_harmless = place in ("resources", "is_concurrency_safe", "observer")
        flags = [found["message"]["content"][0]["isError"] for found in results(it)]
        assert flags == [not is_harmless] * 2
        assert ends(agent.session) == [{"kind": "completed"}]
        assert_sound(it)


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "text"}],
        [{"type": "text", "text": 3}],
        [{"type": "image"}],
        [{"type": "image", "attachment": {}}],
        [{"type": "tool-call", "id": "x"}],
        [{"type": "tool-result"}],
        [{"no": "type"}],
        ["text"],
        {"type": "text", "text": "one"},
        None,
        3,
    ],
)
@aio
async def test_content_that_the_log_would_refuse_is_the_tools_failure(blocks: Any) -> None:
    async with loop(calls(("c1", "odd", RAW)), text("done")) as it:
        it.tools.register(plain("odd", quick, output=ToolOutput({}, lambda args, value: blocks)))
        agent = await it.agent()
        await it.prompt(agent, "go")

        (result,) = results(it)
        assert result["error"]["code"] == "INVALID_TOOL_OUTPUT"
        assert ends(agent.session) == [{"kind": "completed"}]


@pytest.mark.parametrize(
    "message", ["text", None, {}, {"role": "user"}, {"role": "assistant", "content": []}]
)
@aio
async def test_a_message_that_is_none_is_the_tools_failure(message: Any) -> None:
    async with loop(calls(("c1", "odd", RAW)), text("done")) as it:

        async def body(args: Any, execution: Any) -> str:
            execution.defer_context(message)
            return ""

        it.tools.register(plain("odd", body))
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert results(it)[0]["error"]["code"] == "INVALID_TOOL_OUTPUT"
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_a_message_that_is_deferred_twice_waits_once() -> None:
    async with loop(calls(("c1", "odd", RAW)), text("done")) as it:
        message = user_message("remember")

        async def body(args: Any, execution: Any) -> str:
            execution.defer_context(message)
            execution.defer_context(message)
            return "fine"

        it.tools.register(plain("odd", body))
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert said(results(it)[0]) == "fine"
        assert texts_of(it.model.requests[1])[2:] == ["user: result c1: fine", "user: remember"]
        assert ends(agent.session) == [{"kind": "completed"}]


@pytest.mark.parametrize(
    "answer",
    [
        {"reads": ["a"]},
        Resources(reads=["a"], writes=frozenset()),  # type: ignore[arg-type]
        Resources(reads=frozenset(), writes="abc"),  # type: ignore[arg-type]
        True,
        "fs:/a",
        frozenset({"a"}),
    ],
)
@aio
async def test_resources_of_any_other_form_run_the_call_alone(answer: Any) -> None:
    async with loop(calls(("c1", "odd", RAW), ("c2", "odd", RAW)), text("done")) as it:
        running: list[int] = []
        most: list[int] = []

        async def body(args: Any, execution: Any) -> str:
            running.append(1)
            most.append(len(running))
            await asyncio.sleep(0.001)
            running.pop()
            return ""

        it.tools.register(plain("odd", body, resources=lambda args, call: answer))
        await it.prompt(await it.agent(), "go")

        assert most == [1, 1]


@aio
async def test_what_resources_are_asked_about_cannot_be_changed() -> None:
    async with loop(calls(("c1", "odd", '{"path": ["a"]}')), text("done")) as it:
        got: list[Any] = []

        def resources(args: Any, call: Any) -> Resources:
            args["path"] = "another"
            return Resources()

        async def body(args: Any, execution: Any) -> str:
            got.append(args)
            return ""

        it.tools.register(plain("odd", body, resources=resources))
        await it.prompt(await it.agent(), "go")

        assert got == [{"path": ("a",)}]


@aio
async def test_a_body_that_blocks_the_loop_for_a_moment_only_delays() -> None:
    async with loop(calls(("c1", "odd", RAW), ("c2", "quick", RAW)), text("done")) as it:

        async def blocks(args: Any, execution: Any) -> str:
            time.sleep(0.05)
            return "late"

        it.tools.register(plain("odd", blocks, is_concurrency_safe=lambda args: True))
        it.tools.register(plain("quick", quick, is_concurrency_safe=lambda args: True))
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert [said(found) for found in results(it)] == ["late", "fine"]


@aio
async def test_a_task_that_outlives_its_call_does_not_hold_the_turn() -> None:
    async with loop(calls(("c1", "odd", RAW)), text("done")) as it:
        gate = asyncio.Event()
        left: list[asyncio.Task[Any]] = []

        async def spawns(args: Any, execution: Any) -> str:
            async def later() -> None:
                await gate.wait()
                execution.defer_context(user_message("too late"))
                execution.conclude_turn()

            left.append(asyncio.ensure_future(later()))
            return "started"

        it.tools.register(plain("odd", spawns))
        agent = await it.agent()
        await it.prompt(agent, "go")
        length = agent.session.length
        gate.set()
        await left[0]

        assert ends(agent.session) == [{"kind": "completed"}]
        assert agent.session.length == length, "what it says afterwards reaches nobody"


BROKEN_ARGUMENTS = [
    (
        '{"path": "a",}',
        'invalid arguments: "arguments" must be an object; the text is not valid JSON: ',
        "line 1, column 1",
    ),
    ('{"path": "a"', "", "line 1, column 13"),
    ("{not json", "", "line 1, column 2"),
    ('{"path": "a"} trailing', "", "line 1, column 15"),
    ('{\n "path": NaN}', "", "NaN is not a JSON number"),
    ('{"path": 1e999}', "", "1e999 is out of range"),
    ("[" * 100_000, "", "nested too deeply"),
    ('"text"', '"arguments" must be an object', ""),
    ("[]", '"arguments" must be an object', ""),
    ("null", '"arguments" must be an object', ""),
    ("{}", 'missing required property "path"', ""),
    ('{"path": null}', '"path" must be a string', ""),
    ('{"path": 3}', '"path" must be a string', ""),
    ('{"path": "a", "deep": {"list": [1, "x"]}}', '"deep.list[1]" must be an integer', ""),
    ('{"path": "a", "deep": {"more": 1}}', '"deep.more" is not a declared property', ""),
]


@pytest.mark.parametrize(("raw", "words", "place"), BROKEN_ARGUMENTS)
@aio
async def test_arguments_that_do_not_fit_are_answered_with_their_place(
    raw: str, words: str, place: str
) -> None:
    parameters: dict[str, Any] = {
        "path": {"type": "string", "required": True},
        "deep": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
        },
    }
    async with loop(calls(("c1", "typed", raw)), text("done")) as it:
        ran: list[str] = []

        async def body(args: Any, execution: Any) -> str:
            ran.append("ran")
            return ""

        output = ToolOutput({"type": "string"}, lambda args, value: str(value))
        it.tools.register(
            typed_tool(name="typed", description="", parameters=parameters, output=output, execute=body)
        )
        agent = await it.agent()
        await it.prompt(agent, "go")

        (result,) = results(it)
        assert result["error"] == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
        assert words in said(result) and place in said(result), said(result)
        assert ran == []
        assert data_of(agent.session, "tool/call")[0]["arguments"] == raw, "the log has what the model wrote"
        assert ends(agent.session) == [{"kind": "completed"}]
