"""A real server, made with the official SDK, over its pipes and over HTTP."""

import asyncio
import subprocess as processes
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dsh.kernel import CancelToken, Context
from tests.aio import aio
from tests.plugins.mcp.kit import HERE, call, names, registry, serving, text

STDIO = {
    "transport": "stdio",
    "serverName": "sdk",
    "command": sys.executable,
    "args": [str(HERE / "sdk_server.py"), "stdio"],
    "env": {"MY_TOKEN": "given"},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, str(HERE / "sdk_server.py"), "http"]
    with processes.Popen(command, stdout=processes.PIPE, stderr=processes.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@asynccontextmanager
async def server(transport: str, url: str) -> AsyncIterator[Context]:
    http = {"transport": "streamable-http", "serverName": "sdk", "url": url}
    async with serving(STDIO if transport == "stdio" else http) as ctx:
        yield ctx


@pytest.mark.parametrize("transport", ["stdio", "http"])
@aio
async def test_the_tools_of_a_real_server_work(transport: str, url: str, tmp_path: Path) -> None:
    async with server(transport, url) as ctx:
        assert {"mcp__sdk__add", "mcp__sdk__fail", "mcp__sdk__count"} <= set(names(ctx))

        assert text(await call(ctx, "mcp__sdk__add", a=1, b=None)) == "3"
        wrong = await call(ctx, "mcp__sdk__add", a="one")
        assert wrong.is_error
        assert '"a": "one" is not of type "integer"' in text(wrong)
        failed = await call(ctx, "mcp__sdk__fail")
        assert failed.is_error
        assert "it is broken" in text(failed)
        assert text(await call(ctx, "mcp__sdk__count", times=3)) == "counted"

        one, other = await asyncio.gather(
            call(ctx, "mcp__sdk__meet", name="a", other="b", folder=str(tmp_path)),
            call(ctx, "mcp__sdk__meet", name="b", other="a", folder=str(tmp_path)),
        )
        assert (text(one), text(other)) == ("a met b", "b met a")


@pytest.mark.parametrize("transport", ["stdio", "http"])
@aio
async def test_a_real_server_stops_what_was_cancelled(transport: str, url: str, tmp_path: Path) -> None:
    token, mark = CancelToken(), tmp_path / "mark"
    async with server(transport, url) as ctx:
        running = asyncio.ensure_future(call(ctx, "mcp__sdk__block", token, path=str(mark)))
        await asyncio.sleep(0.2)
        token.cancel({"kind": "user"})

        assert (await running).is_error
        async with asyncio.timeout(20):
            while not mark.exists():
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@aio
async def test_a_real_server_tells_that_its_tools_have_changed(transport: str, url: str) -> None:
    async with server(transport, url) as ctx:
        held = registry(ctx).get("mcp__sdk__add")
        await call(ctx, "mcp__sdk__grow")
        async with asyncio.timeout(20):
            while "mcp__sdk__grown" not in names(ctx):
                await asyncio.sleep(0.01)

        assert text(await call(ctx, "mcp__sdk__grown")) == "new"
        assert registry(ctx).get("mcp__sdk__add") is held


@aio
async def test_only_what_is_configured_for_it_reaches_a_real_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "hush")
    async with server("stdio", url) as ctx:
        given = await call(ctx, "mcp__sdk__environment", name="MY_TOKEN")
        hidden = await call(ctx, "mcp__sdk__environment", name="OTHER_TOKEN")

        assert (text(given), text(hidden)) == ("given", "(unset)")
