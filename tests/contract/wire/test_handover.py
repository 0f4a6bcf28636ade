"""A conversation that goes on at another provider: its history is valid there, by the strict server."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dsh.capabilities.http import HttpClient
from dsh.session.message import Message, user_message
from dsh.testing.mock_server import MockModelServer
from tests.aio import aio
from tests.contract.wire.wires import WIRES, Line, Wire, composed, spelling, url_of
from tests.llm.build import result, schema

PAIRS = [pair for pair in itertools.product(WIRES, WIRES) if pair[0] is not pair[1]]
SCRIPT = ("reasoning_success", "tool_call_success", "success", "max_tokens")
TOOLS = (schema("bash"), schema("read"))


class Talk:
    """A conversation that is held on several routes. State: what was said so far."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.messages: list[Message] = []

    async def turn(self, wire: Wire, words: str) -> None:
        """One question and its answer, and the results of the calls in it."""
        self.messages.append(user_message(words))
        reply = await self.line.ask(wire=wire, messages=tuple(self.messages), system="be brief", tools=TOOLS)
        assert reply.code == "", reply.failure
        self.messages.append(reply.logged(wire))
        self.messages += [result(call_id, "done", is_error=True) for call_id, _, _ in reply.calls]


@asynccontextmanager
async def talk(*wires: Wire) -> AsyncIterator[Talk]:
    """A composition with these routes, each with a server of its own that plays the script."""
    async with composed(HttpClient()) as ctx:
        servers = [MockModelServer(SCRIPT * 9, dialect=spelling(wire)) for wire in wires]
        try:
            for wire, server in zip(wires, servers, strict=True):
                await server.start()
                await wire.mount(ctx, url_of(wire, server))
            yield Talk(Line(ctx, wires[0]))
            assert [server.refused for server in servers] == [[]] * len(servers)
        finally:
            for server in servers:
                await server.stop()


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda wire: wire.name)
@aio
async def test_history_of_one_wire_is_taken_by_the_other(first: Wire, second: Wire) -> None:
    async with talk(first, second) as held:
        for number in range(4):
            await held.turn(first, f"question {number}")
        for number in range(4):
            await held.turn(second, f"and {number}?")


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda wire: wire.name)
@aio
async def test_the_wires_may_take_turns(first: Wire, second: Wire) -> None:
    async with talk(first, second) as held:
        for number in range(10):
            await held.turn((first, second)[number % 2], f"question {number}")


@aio
async def test_all_of_them_may_take_turns() -> None:
    async with talk(*WIRES) as held:
        for number in range(24):
            await held.turn(WIRES[(number * 7 + number // 3) % len(WIRES)], f"question {number}")
