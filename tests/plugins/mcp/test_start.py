"""Servers that do not come up, come up slowly, or say what they should not (cases MC-01)."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.errors import CompositionError
from dsh.kernel import ValidationError
from dsh.plugins import mcp_client
from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, serving, tool, tree
from tests.process import is_gone, is_running

NO_RETRY = {"reconnect": {"enabled": False}}
QUICK = {**NO_RETRY, "startupTimeoutMs": 1_500}
HTTP: dict[str, Any] = {"transport": "streamable-http", "command": None, "args": [], "url": "http://x"}
TWENTY_LINES = "".join(f"line {n} of the trouble\n" for n in range(20))


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """What was said of one server, warnings and up."""
    return [
        r.getMessage() for r in caplog.records if f"MCP server {name}" in r.getMessage() and r.levelno >= 30
    ]


@aio
async def test_broken_servers_cost_their_own_tools_and_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    missing = {**plain("missing", row=NO_RETRY), "command": "no-such-program-here"}
    async with serving(
        plain("healthy", tools=[tool("echo")]),
        missing,
        plain("exits", row=NO_RETRY, exit=3, say=TWENTY_LINES),
        plain("mute", row=QUICK, silent=["initialize"]),
        plain("stuck", row=QUICK, silent=["tools/list"]),
    ) as ctx:
        assert names(ctx) == ["mcp__healthy__echo"]
        assert not (await call(ctx, "mcp__healthy__echo")).is_error

    [no_program] = told(caplog, "missing")
    [exits] = told(caplog, "exits")
    [mute] = told(caplog, "mute")
    [stuck] = told(caplog, "stuck")
    assert "there is no such program on PATH" in no_program
    assert "exited with code 3; stderr: " in exits
    assert "line 19 of the trouble" in exits
    assert "\n" not in exits
    assert "within 1500 ms (startupTimeoutMs)" in mute
    assert "within 1500 ms (startupTimeoutMs)" in stuck


@aio
async def test_servers_start_side_by_side(tmp_path: Path) -> None:
    """Each answers only when the other one runs: one after the other they would never come up."""
    one, other = tmp_path / "one", tmp_path / "other"
    async with serving(
        plain("one", row=NO_RETRY, pid=str(one), meets=str(other), tools=[tool("a")]),
        plain("other", row=NO_RETRY, pid=str(other), meets=str(one), tools=[tool("b")]),
    ) as ctx:
        assert names(ctx) == ["mcp__one__a", "mcp__other__b"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"exit": 4, "say": "bad credentials\n"}, "exited with code 4; stderr: bad credentials"),
        ({"refuses": {"initialize": -32602}}, "initialize failed: no such thing (code -32602)"),
        ({"answers": {"initialize": {}}}, "it answered initialize with something else"),
        ({"era": "1999-01-01"}, "Unsupported protocol version from the server: 1999-01-01"),
        ({"refuses": {"tools/list": -32603}}, "tools/list failed: no such thing (code -32603)"),
        ({"answers": {"tools/list": {"tools": 3}}}, "it answered tools/list with something else"),
        ({"silent": ["initialize"]}, "within 1500 ms"),
        ({"silent": ["tools/list"]}, "within 1500 ms"),
    ],
)
@aio
async def test_with_fail_on_startup_error_the_row_fails_and_names_the_server(
    plan: dict[str, Any], reason: str
) -> None:
    row = {**QUICK, "failOnStartupError": True}
    async with tree() as ctx:
        with pytest.raises(Exception, match="MCP server 'needed' did not start") as failed:
            await ctx.plugin(mcp_client, plain("needed", row=row, **plan))

        assert reason in str(failed.value)
        assert names(ctx) == []


@pytest.mark.parametrize(
    "noise", ["starting…", "{}", '{"level":"info","id":1}', "\x00\x01", "[]", "null", "{", "'"]
)
@aio
async def test_noise_on_standard_output_is_left_out_and_told_once(
    noise: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(plain(noise=noise)) as ctx:
        for _ in range(3):
            assert not (await call(ctx, "mcp__plain__echo")).is_error

    [line] = told(caplog, "plain")
    assert "prints what is no message on its standard output" in line


@aio
async def test_a_server_without_tools_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(plain(refuses={"tools/list": -32601})) as ctx:
        assert names(ctx) == []
    assert told(caplog, "plain") == []


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"command": None}, "needs command"),
        ({"url": "http://x"}, "url has no meaning with transport stdio"),
        ({"headers": {"a": "b"}}, "headers has no meaning"),
        ({"transport": "streamable-http"}, "needs url"),
        ({"transport": "streamable-http", "url": "http://x"}, "command, args has no meaning"),
        ({"reconnect": {"initialDelayMs": 60_000}}, "initialDelayMs 60000 is more than maxDelayMs 30000"),
        ({"command": "a\0b"}, "command holds a NUL character"),
        ({"args": ["a", "b\0"]}, r"args\[1\] holds a NUL character"),
        ({"env": {"A": "hush\0"}}, r"env\.A holds a NUL character"),
        ({"env": {"": "hush"}}, "env: '' is no name of a variable"),
        ({"env": {"A=B": "hush"}}, "env: 'A=B' is no name of a variable"),
        ({**HTTP, "url": "ftp://x"}, "url is no http or https address"),
        ({**HTTP, "url": "http://x:99999/"}, "url is no http or https address"),
        ({**HTTP, "headers": {"A": "hush\r\nB: c"}}, r"headers\.A holds something else than printable ASCII"),
        ({**HTTP, "headers": {"A": "hüsh"}}, r"headers\.A holds something else than printable ASCII"),
        ({**HTTP, "headers": {"A B": "hush"}}, "headers: 'A B' is no name of a header"),
        ({**HTTP, "headers": {"": "hush"}}, "headers: '' is no name of a header"),
    ],
)
@aio
async def test_a_row_that_does_not_fit_together_is_refused(config: dict[str, Any], problem: str) -> None:
    async with tree() as ctx:
        with pytest.raises(CompositionError, match=problem) as refused:
            await ctx.plugin(mcp_client, {**plain(), **config})
        assert "hush" not in refused.value.message


@pytest.mark.parametrize(
    "config",
    [
        {"serverName": "a.b"},
        {"serverName": ""},
        {"serverName": "x" * 33},
        {"serverName": "a\n"},
        {"transport": "sse"},
        {"reconnect": {"maxAttempt": 3}},
        {"toolCallTimeoutMs": 0},
        {"commnad": "x"},
    ],
)
@aio
async def test_a_value_or_key_that_no_row_has_is_refused(config: dict[str, Any]) -> None:
    async with tree() as ctx:
        with pytest.raises(ValidationError):
            await ctx.plugin(mcp_client, {**plain(), **config})


@aio
async def test_a_missing_library_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    async with tree() as ctx:
        with pytest.raises(CompositionError, match="jsonschema_rs not installed") as failed:
            await ctx.plugin(mcp_client, plain())
    assert "pip install 'dsh[mcp]'" in failed.value.hint


@aio
async def test_nothing_of_a_server_is_left_when_its_row_goes(tmp_path: Path) -> None:
    pid, child = tmp_path / "pid", tmp_path / "child"
    plans = [plain("a", pid=str(pid), child=str(child)), plain("b", pid=str(pid), linger=True)]
    async with serving(*plans):
        running = [int(line) for line in (pid.read_text() + child.read_text()).split()]
        assert len(running) == 3
        assert all(map(is_running, running))
    for one in running:
        assert await asyncio.to_thread(is_gone, one)


@aio
async def test_a_row_that_goes_while_its_server_starts_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pid = tmp_path / "pid"
    async with tree() as ctx:
        fiber = ctx.plugin(mcp_client, plain(pid=str(pid), silent=["initialize"]))
        async with asyncio.timeout(20):
            while not pid.exists() or not pid.read_text():
                await asyncio.sleep(0.01)
        await fiber.dispose()
    assert await asyncio.to_thread(is_gone, int(pid.read_text()))
    assert told(caplog, "plain") == []


@aio
async def test_messages_that_a_server_logs_are_cut_at_a_whole_character(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dsh")
    words = "x" * 1_999 + "🏷"
    line = (
        f'{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"error","data":"{words}"}}}}'
    )
    async with serving(plain(noise=line)) as ctx:
        await call(ctx, "mcp__plain__echo")
        async with asyncio.timeout(20):
            while not any("xxxx" in message for message in caplog.messages):
                await asyncio.sleep(0.01)
    assert all(message == message.encode("utf-8", "replace").decode() for message in caplog.messages)
    assert told(caplog, "plain") == []
