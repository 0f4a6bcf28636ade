"""Calls of a server's tools: what goes to it, what the model reads, and how a call ends early."""

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from dsh.kernel import Cancelled, CancelToken
from dsh.plugins.mcp_client.calls import answer
from dsh.plugins.mcp_client.config import Config
from dsh.session.value import freeze
from dsh.tools.execution import ToolCall, ToolFailure, ToolSuccess
from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, registry, serving, text, tool

if TYPE_CHECKING:
    from dsh.plugins.mcp_client.connection import Connection

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string"}, "z": {"type": "null"}},
    "required": ["n"],
}


@aio
async def test_a_tool_of_a_server_is_called_by_its_public_name() -> None:
    async with serving(plain("files")) as ctx:
        result = await call(ctx, "mcp__files__echo", a=[1, {"b": "é"}])

        assert text(result) == '{"arguments": {"a": [1, {"b": "\\u00e9"}]}, "tool": "echo"}'
        assert "mcp__files__env" in names(ctx)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, '"n" is a required property'),
        ({"n": 0}, '"n": 0 is less than the minimum of 1'),
        ({"n": "1"}, '"n": "1" is not of type "integer"'),
        ({"n": None}, '"n": null is not of type "integer"'),
    ],
)
@aio
async def test_arguments_are_held_to_the_servers_own_schema(arguments: dict[str, Any], problem: str) -> None:
    async with serving(plain(tools=[tool("echo", inputSchema=SCHEMA)])) as ctx:
        result = await call(ctx, "mcp__plain__echo", **arguments)

        assert isinstance(result, ToolFailure)
        assert result.code == "INVALID_ARGS"
        assert problem in text(result)


@aio
async def test_a_null_of_an_optional_property_counts_as_absent_where_the_schema_has_no_null() -> None:
    async with serving(plain(tools=[tool("echo", inputSchema=SCHEMA)])) as ctx:
        result = await call(ctx, "mcp__plain__echo", n=1, s=None)
        kept = await call(ctx, "mcp__plain__echo", n=1, z=None)

        assert json.loads(text(result))["arguments"] == {"n": 1}
        assert json.loads(text(kept))["arguments"] == {"n": 1, "z": None}


@aio
async def test_arguments_that_are_no_object_never_reach_the_server() -> None:
    async with serving(plain()) as ctx:
        result = await registry(ctx).run(ToolCall(call_id="c", name="mcp__plain__echo", arguments="{oops"))

        assert isinstance(result, ToolFailure)
        assert result.code == "INVALID_ARGS"


@aio
async def test_an_error_of_the_tool_and_one_of_the_server_are_failures_with_their_text() -> None:
    async with serving(plain()) as ctx:
        failed = await call(ctx, "mcp__plain__error")
        refused = await call(ctx, "mcp__plain__refuse")

        assert text(failed) == "Error: it went wrong"
        assert text(refused) == "Error: MCP server 'plain': not today (code -32000)"
        assert failed.is_error and refused.is_error


@aio
async def test_what_a_server_says_besides_of_its_error_is_read_too() -> None:
    line = '{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no\\u001b[31m","data":{"why":"full"}}}'
    async with serving(plain()) as ctx:
        refused = await call(ctx, "mcp__plain__raw", line=line)

        assert text(refused) == """Error: MCP server 'plain': no\\x1b[31m (code -32000): {"why": "full"}"""


@aio
async def test_the_value_of_a_call_is_what_the_server_gave() -> None:
    content = [{"type": "text", "text": "a", "annotations": {"audience": ["user"]}}]
    async with serving(plain()) as ctx:
        result = await call(ctx, "mcp__plain__answer", result={"content": content, "_meta": {"x": 1}})

        assert isinstance(result, ToolSuccess)
        assert freeze(result.value, "value") == freeze({"content": content}, "value")


@aio
async def test_structured_content_of_any_kind_is_read() -> None:
    async with serving(plain()) as ctx:
        result = await call(
            ctx, "mcp__plain__answer", result={"structuredContent": [1, "é"], "isError": None}
        )

        assert text(result) == '[1, "é"]'


@aio
async def test_no_answer_in_time_is_a_timeout_and_the_server_is_told(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    row = {"toolCallTimeoutMs": 300}
    async with serving(plain(row=row, heard=str(heard), silent=["tools/call"])) as ctx:
        result = await call(ctx, "mcp__plain__echo")

        assert isinstance(result, ToolFailure)
        assert (result.name, result.code) == ("ToolTimeoutError", "TOOL_TIMEOUT")
        await _until(lambda: "notifications/cancelled" in heard.read_text())


@aio
async def test_a_cancelled_call_ends_at_once_and_the_server_is_told(tmp_path: Path) -> None:
    heard, token = tmp_path / "heard", CancelToken()
    async with serving(plain(heard=str(heard), silent=["tools/call"])) as ctx:
        running = asyncio.ensure_future(call(ctx, "mcp__plain__echo", token))
        await _until(lambda: heard.exists() and "tools/call" in heard.read_text())
        token.cancel({"kind": "user"})
        result = await running

        assert isinstance(result, ToolFailure)
        assert result.code == "ABORTED"
        await _until(lambda: "notifications/cancelled" in heard.read_text())


@aio
async def test_a_cancelled_call_ends_once_the_server_has_been_told() -> None:
    token, is_told = CancelToken(), asyncio.Event()

    class Telling:
        async def call(self, name: str, arguments: Any, on_progress: Any) -> dict[str, Any]:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                is_told.set()
            return {}

    config = msgspec.convert(plain(), Config)
    running = asyncio.ensure_future(answer(cast("Connection", Telling()), "t", {}, token, config))
    await asyncio.sleep(0)
    token.cancel({"kind": "user"})
    with pytest.raises(Cancelled):
        await running
    assert is_told.is_set()


@aio
async def test_progress_gives_a_call_more_time_but_never_more_than_the_total() -> None:
    """The call outlives the bound of the start, too."""
    import_module("dsh.plugins.mcp_client.connection")  # not on the clock of the start
    row = {"toolCallTimeoutMs": 2_000, "startupTimeoutMs": 3_000}
    async with serving(plain(row=row), plain("short", row={**row, "toolCallTotalTimeoutMs": 700})) as ctx:
        slow, endless = await asyncio.gather(
            call(ctx, "mcp__plain__progress", times=6, gap=0.5),
            call(ctx, "mcp__short__progress", times=40, gap=0.1),
        )

        assert not slow.is_error
        assert text(endless) == "Error: tool call timed out after 700ms"


@aio
async def test_tools_that_only_read_may_overlap_and_others_run_alone() -> None:
    tools = [
        tool("look", annotations={"readOnlyHint": True}),
        tool("touch", annotations={"readOnlyHint": False}),
        tool("say"),
    ]
    async with serving(plain(tools=tools)) as ctx:
        modes = [
            registry(ctx).execution_mode(ToolCall(call_id="c", name=f"mcp__plain__{name}", arguments={}))
            for name in ("look", "touch", "say")
        ]

        assert modes == ["parallel", "exclusive", "exclusive"]


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a\\ud83d b"}]}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a\udcff b"}]}}',
    ],
)
@aio
async def test_half_characters_and_wrong_bytes_of_an_answer_become_the_replacement_character(
    line: str,
) -> None:
    async with serving(plain()) as ctx:
        result = await call(ctx, "mcp__plain__raw", line=line)

        assert text(result) == "a\ufffd b"


@aio
async def test_an_answer_may_be_far_longer_than_a_pipe_holds() -> None:
    async with serving(plain()) as ctx:
        result = await call(ctx, "mcp__plain__echo", a="x" * 3_000_000)

        assert len(text(result)) > 3_000_000


@aio
async def test_integers_keep_every_digit_and_what_is_no_number_is_named() -> None:
    found = '{"a":12345678901234567890,"b":NaN}'
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"structuredContent":{found}}}}}'
    async with serving(plain()) as ctx:
        result = await call(ctx, "mcp__plain__raw", line=line)

        assert isinstance(result, ToolSuccess)
        assert text(result) == '{"a":"12345678901234567890","b":"nan"}'


@aio
async def test_structured_content_is_held_to_the_schema_that_was_given_for_it() -> None:
    output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with serving(plain(tools=[tool("answer", outputSchema=output)])) as ctx:
        good = await call(ctx, "mcp__plain__answer", result={"content": [], "structuredContent": {"n": 1}})
        wrong = await call(ctx, "mcp__plain__answer", result={"content": [], "structuredContent": {"n": "x"}})

        assert text(good) == '{"n":1}'
        assert isinstance(wrong, ToolFailure)
        assert wrong.code == "INVALID_TOOL_OUTPUT"
        assert '"n": "x" is not of type "integer"' in text(wrong)


@pytest.mark.parametrize("output", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/schema.json"}])
@aio
async def test_a_schema_that_cannot_be_used_checks_nothing_and_nothing_is_fetched(output: Any) -> None:
    schema = {"type": "object", "properties": {"result": output}}
    async with serving(plain(tools=[tool("answer", inputSchema=schema, outputSchema=output)])) as ctx:
        result = await call(ctx, "mcp__plain__answer", result={"content": [], "structuredContent": {"n": 1}})

        assert text(result) == '{"n":1}'


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "text"},
        {"content": [{"type": "text"}], "isError": "yes"},
        [],
        "text",
        {"content": [], "isError": 3},
    ],
)
@aio
async def test_an_answer_that_is_no_result_is_a_failure_and_the_server_goes_on(answer: Any) -> None:
    async with serving(plain()) as ctx:
        wrong = await asyncio.wait_for(call(ctx, "mcp__plain__answer", result=answer), 20)
        right = await call(ctx, "mcp__plain__echo")

        assert wrong.is_error
        assert not right.is_error


async def _until(is_so: Any) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)
