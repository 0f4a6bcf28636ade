"""The connections of a whole run: one for all its steps, through tunnels too, and what dies between them."""

import asyncio
import json
from collections.abc import Callable, Mapping

import pytest

from dsh.testing.workspace import Workspace
from tests.aio import aio
from tests.e2e.route import KEY, ROUTES, Route
from tests.llm.wire_server import TLS, Play, certificate, serving, tunnelling

every_route = pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
STEPS = 4
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(data: Mapping[str, object]) -> bytes:
    return f"event: {data.get('type', 'message')}\ndata: {json.dumps(data)}\n\n".encode()


def call(route: Route, number: int) -> bytes:
    """A reply that calls bash."""
    arguments = json.dumps({"command": f"echo step {number}", "description": "say where we are"})
    if route.name != "anthropic":
        function = {"name": "bash", "arguments": arguments}
        delta = {"tool_calls": [{"index": 0, "id": f"c{number}", "type": "function", "function": function}]}
        choices: Mapping[str, object] = {"choices": [{"index": 0, "delta": delta}]}
        end: dict[str, object] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        return event(choices) + event(end) + b"data: [DONE]\n\n"
    block = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return b"".join(
        event(data)
        for data in (
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": arguments},
            },
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
            {"type": "message_stop"},
        )
    )


def stepping(route: Route, *, stays: Callable[[int], bool] = lambda _: True) -> Play:
    """Calls a tool in each step but the last; keeps or closes its connection without a word."""

    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        reply = call(route, number) if number < STEPS else route.stream
        writer.write(HEAD)
        for at in range(0, len(reply), 50):
            piece = reply[at : at + 50]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        return stays(number)

    return play


@every_route
@aio
async def test_all_steps_of_a_run_share_one_connection(space: Workspace, route: Route) -> None:
    async with serving(stepping(route)) as server:
        done = await asyncio.to_thread(route.ask, space, server.url)

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    assert (server.connections, len(server.requests)) == (1, STEPS)


@aio
async def test_connections_that_die_between_steps_cost_no_retry(space: Workspace) -> None:
    route = ROUTES[0]
    async with serving(stepping(route, stays=lambda number: number % 2 == 0)) as server:
        done = await asyncio.to_thread(route.ask, space, server.url)

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    assert (server.connections, len(server.requests)) == (3, STEPS)


@every_route
@aio
async def test_a_run_through_a_tunnel_with_an_authority_of_its_own(space: Workspace, route: Route) -> None:
    async with serving(stepping(route), certificate("server")) as server:
        async with tunnelling(server, user="us:pa55word") as proxy:
            env = {
                "HTTPS_PROXY": f"http://us:pa55word@127.0.0.1:{proxy.port}",
                "CURL_CA_BUNDLE": str(TLS / "authority.pem"),
            }
            done = await asyncio.to_thread(route.ask, space, "https://localhost/v1", env=env)

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    assert (len(proxy.requests), server.connections, len(server.requests)) == (1, 1, STEPS)
    assert KEY.encode() not in proxy.requests[0]
    assert all(b"pa55word" not in request and KEY.encode() in request for request in server.requests)


@pytest.mark.parametrize("url", ["https://model.invalid/v1", "http://model.invalid/v1"])
@aio
async def test_a_proxy_that_wants_a_password_is_told_in_one_line(space: Workspace, url: str) -> None:
    async def refuse(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        return True

    async with serving(refuse) as proxy:
        env = {"ALL_PROXY": f"http://us:pa55word@127.0.0.1:{proxy.port}"}
        done = await asyncio.to_thread(ROUTES[1].ask, space, url, env=env)

    [line] = done.errors
    assert (done.code, "407" in line, "proxy" in line, "pa55" in line) == (1, True, True, False)
