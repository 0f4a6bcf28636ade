"""Exceptions and values of a tool: what they become, how they are held to the contract and frozen."""

from enum import Enum
from typing import Any

import msgspec
import pytest

from dsh.errors import DshError
from dsh.tools.definition import ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution, ToolFailure
from tests.aio import aio
from tests.tools.kit import call, code, new_registry, text, tool, value
from tests.tools.stages import body, fail


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


class Empty(Exception):
    pass


class Codes(str, Enum):  # noqa: UP042 -- as in much code that is older than StrEnum
    NOPE = "NOPE"


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
        (Coded("x", code=Codes.NOPE), "x", {"name": "Coded", "code": "NOPE"}),
        (ValueError("half \ud800"), "half \ufffd", None),
        (ExceptionGroup("many", [ValueError("a")]), "many [a]", None),
    ],
)
@aio
async def test_what_an_exception_becomes(error: Exception, message: str, info: object) -> None:
    _, tools = new_registry()
    tools.register(tool("t", fail(error)))

    result = await tools.run(call())

    assert isinstance(result, ToolFailure)
    assert (text(result), result.info) == (f"Error: {message}", info)
    assert result.code is None or type(result.code) is str
    with pytest.raises(TypeError):
        result.content[0]["text"] = "changed"  # type: ignore[index]


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

    tools.register(tool("meta", output=ToolOutput({}, lambda a, v: "", lambda a, v: {"m": "a\ud800b"})))

    assert text(await tools.run(call())) == "a\ufffdb"
    assert (await tools.run(call("meta"))).meta == {"m": "a\ufffdb"}
