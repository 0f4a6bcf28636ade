"""Streams cut on their way into the whole program, on every route, at 16 seeded places each."""

import random
import socket
import time
from collections.abc import Sequence

import pytest

from dsh.testing.mock_server.part import Call, Part, Reasoning, Text, whole
from dsh.testing.workspace import Workspace, log_rows
from tests.contract.wire.wires import WIRES, Wire
from tests.e2e.raw_server import HEAD, Play, saying, serving
from tests.e2e.route import ROUTES, Route

PLACES = 16
ANSWER = "héllo 한국어\u2028🏷"
LAST: list[Part] = whole(Reasoning("hm ünd"), Text(ANSWER[:4]), Text(ANSWER[4:]))
COMMAND = '{"command": "echo ä한🏷", "description": "sag es"}'
over_routes = pytest.mark.parametrize(
    ("route", "wire"), list(zip(ROUTES, WIRES, strict=True)), ids=[route.name for route in ROUTES]
)


def calling(number: int) -> list[Part]:
    """A reply that reasons and calls a tool."""
    call = Call(f"c{number}", "bash", (COMMAND[:9], COMMAND[9:]))
    return whole(Reasoning("ich prüfe 🏷"), call, reason="tool-calls")


def in_turn(bodies: Sequence[Sequence[bytes]]) -> Play:
    """One body after the other, each in its pieces and ended by its connection."""
    left = iter(bodies)

    def play(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        for piece in next(left):
            saying(piece)(connection)
            time.sleep(0.002)  # so that the next one is a read of its own

    return play


@over_routes
def test_a_stream_that_ends_too_early_is_asked_for_again_wherever_it_was_cut(
    space: Workspace, route: Route, wire: Wire
) -> None:
    body = wire.plan(LAST).sent()
    stops = random.Random(46).sample(range(len(body.rstrip(b"\n"))), PLACES)
    with serving(in_turn([*([body[:stop]] for stop in stops), [body]])) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", budget=PLACES)

    assert (done.code, done.stdout, done.stderr) == (0, f"{ANSWER}\n", "")
    assert len(server.requests) == PLACES + 1
    bodies = {request.partition(b"\r\n\r\n")[2] for request in server.requests}
    assert len(bodies) == 1, "nothing of a failed attempt goes back"
    [log] = space.logs()
    codes = [row["data"]["failure"]["code"] for row in log_rows(log) if row["type"] == "llm/retry"]
    assert codes == ["STREAM_CLOSED"] * PLACES
    assert space.run("sessions", "verify", str(log)).code == 0


@over_routes
def test_a_stream_in_two_pieces_is_the_same_wherever_it_was_cut(
    space: Workspace, route: Route, wire: Wire
) -> None:
    rng, bodies = random.Random(46), []
    for number in range(PLACES):
        body = wire.plan(calling(number)).sent()
        at = rng.randrange(1, len(body))
        bodies.append([body[:at], body[at:]])
    with serving(in_turn([*bodies, [wire.plan(LAST).sent()]])) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}")

    assert (done.code, done.stdout) == (0, f"{ANSWER}\n")
    [log] = space.logs()
    said = [row["data"]["message"]["content"] for row in log_rows(log) if row["type"] == "assistant/message"]
    for number, (thought, call) in enumerate(said[:-1]):
        assert thought == {"type": "reasoning", "text": "ich prüfe 🏷"}
        assert call == {"type": "tool-call", "id": f"c{number}", "name": "bash", "arguments": COMMAND}
    assert len(said) == PLACES + 1
