"""A server that goes away: it comes back, its tools stay meanwhile, and there is an end to trying."""

import asyncio
from pathlib import Path

import pytest

from dsh.kernel import CancelToken
from dsh.plugins import mcp_client
from dsh.plugins.mcp_client.config import Reconnect
from dsh.plugins.mcp_client.failure import McpError
from dsh.tools.execution import ToolFailure
from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, registry, serving, text, tool, tree
from tests.plugins.mcp.test_start import told


@pytest.mark.parametrize(
    ("attempt", "wait_s"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (10, 30.0), (10_000, 30.0)],  # 0.5 · 2^(n-1), at most 30
)
def test_the_waits_double_up_to_the_longest(attempt: int, wait_s: float) -> None:
    assert Reconnect().delay_s(attempt) == wait_s


@aio
async def test_a_server_that_crashes_in_a_call_is_there_for_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(plain()) as ctx:
        before = text(await call(ctx, "mcp__plain__pid"))
        held = registry(ctx).get("mcp__plain__echo")
        crashed = await call(ctx, "mcp__plain__crash")
        after = text(await call(ctx, "mcp__plain__pid"))

        assert crashed.is_error
        assert "went away during the call, which may have taken effect" in text(crashed)
        assert before != after
        assert registry(ctx).get("mcp__plain__echo") is held
    [line] = told(caplog, "plain")
    assert "is gone, it is tried again: it is gone; exited with code 7; stderr: about to crash" in line


@pytest.mark.parametrize("attempts", [0, 1, 3])
@aio
async def test_a_server_is_tried_again_as_often_as_is_said(
    attempts: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pid, row = tmp_path / "pid", {"reconnect": {"initialDelayMs": 1, "maxAttempts": attempts}}
    async with serving(plain(row=row, pid=str(pid), exit=3)):
        async with asyncio.timeout(20):
            while attempts and len(told(caplog, "plain")) < 2:
                await asyncio.sleep(0.01)
    first, *last = told(caplog, "plain")
    assert ("it is tried again" in first) == (attempts > 0)
    assert ["is given up: it ended" in line for line in last] == [True] * (attempts > 0)
    assert len(pid.read_text().split()) == 1 + attempts


@aio
async def test_a_crash_while_changed_tools_are_listed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(plain(changed="crash")) as ctx:
        await call(ctx, "mcp__plain__change")
        async with asyncio.timeout(20):
            while not told(caplog, "plain"):
                await asyncio.sleep(0.01)
        assert not (await call(ctx, "mcp__plain__echo")).is_error
    [line] = told(caplog, "plain")
    assert "is gone, it is tried again" in line


@aio
async def test_a_call_that_waits_for_a_server_ends_when_it_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"reconnect": {"initialDelayMs": 10, "maxAttempts": 2}}
    async with serving(plain(row=row, once=str(tmp_path / "once"))) as ctx:
        await call(ctx, "mcp__plain__crash")
        waiting = await call(ctx, "mcp__plain__echo")

        assert "MCP server 'plain': it is not there any more" in text(waiting)
        assert names(ctx) == []
    gone, given_up = told(caplog, "plain")
    assert "is gone, it is tried again" in gone
    assert "is given up, its 11 tools with it" in given_up


@aio
async def test_a_call_that_waits_for_a_server_may_be_cancelled() -> None:
    token = CancelToken()
    async with serving(plain(row={"reconnect": {"initialDelayMs": 30_000}})) as ctx:
        await call(ctx, "mcp__plain__crash")
        waiting = asyncio.ensure_future(call(ctx, "mcp__plain__echo", token))
        await asyncio.sleep(0.05)
        token.cancel({"kind": "user"})
        result = await asyncio.wait_for(waiting, 20)

        assert isinstance(result, ToolFailure)
        assert result.code == "ABORTED"


@aio
async def test_without_reconnect_the_tools_go_with_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(plain(row={"reconnect": {"enabled": False}})) as ctx:
        await call(ctx, "mcp__plain__crash")
        async with asyncio.timeout(20):
            while names(ctx):
                await asyncio.sleep(0.01)
    assert "is given up" in told(caplog, "plain")[0]


@aio
async def test_a_server_that_fails_at_the_start_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "flag"
    async with serving(plain(unless=str(flag), tools=[tool("x")])) as ctx:
        assert names(ctx) == []
        flag.touch()
        async with asyncio.timeout(20):
            while not names(ctx):
                await asyncio.sleep(0.01)
        assert not (await call(ctx, "mcp__plain__x")).is_error
    assert "did not start, it is tried again" in told(caplog, "plain")[0]


@aio
async def test_a_message_that_outgrows_memory_ends_the_connection_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(plain()) as ctx:
        result = await call(ctx, "mcp__plain__answer", flood=17 << 20, result={})
        again = await call(ctx, "mcp__plain__echo")

        assert "went away" in text(result)
        assert not again.is_error
    assert "it sent a message of more than 16777216 bytes" in told(caplog, "plain")[0]


@aio
async def test_calls_that_run_while_the_server_dies_all_end() -> None:
    tools = [tool("answer", annotations={"readOnlyHint": True}), tool("crash")]
    async with serving(plain(tools=tools, silent=[])) as ctx:
        results = await asyncio.gather(
            call(ctx, "mcp__plain__crash"), *(call(ctx, "mcp__plain__answer", result=None) for _ in range(4))
        )
        assert all(result.is_error for result in results)


@pytest.fixture
def nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes seem to be there still, whatever was done to end them."""

    async def still_there(self: object) -> bool:
        return False

    monkeypatch.setattr("dsh.plugins.subprocess.process.Process.wait_for_exit", still_there)


@pytest.mark.usefixtures("nothing_ends")
@pytest.mark.parametrize("is_needed", [False, True])
@aio
async def test_beside_a_server_that_would_not_end_no_second_one_is_started(
    is_needed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pid = tmp_path / "pid"
    plan = plain(pid=str(pid), exit=3, row={"failOnStartupError": is_needed})
    async with tree() as ctx:
        if is_needed:
            with pytest.raises(McpError, match=r"process \d+ would not end; exited with code 3"):
                await ctx.plugin(mcp_client, plan)
        else:
            await ctx.plugin(mcp_client, plan)
            [line] = told(caplog, "plain")
            assert "did not start: process" in line
        await asyncio.sleep(0.1)
        assert len(pid.read_text().split()) == 1


@pytest.mark.usefixtures("nothing_ends")
@aio
async def test_a_server_that_would_not_end_with_its_row_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(plain()):
        pass
    [line] = told(caplog, "plain")
    assert "would not end" in line


@pytest.mark.usefixtures("nothing_ends")
@aio
async def test_a_server_that_would_not_end_at_a_crash_takes_its_tools_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(plain()) as ctx:
        await call(ctx, "mcp__plain__crash")
        after = await call(ctx, "mcp__plain__echo")

        assert "it is not there any more (process" in text(after)
        assert names(ctx) == []
    assert "is given up, its 11 tools with it: process" in told(caplog, "plain")[0]
