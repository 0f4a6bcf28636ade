"""What a provider's prompt cache needs, on each route and through the whole program (LS-11)."""

import json
from itertools import pairwise
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace
from tests.contract.wire.test_prefix import unmarked
from tests.e2e.route import ROUTES, Route
from tests.e2e.test_prompt_cache import rushing

SEEDS = ("0", "1", "2")
SCRIPT = ("reasoning_tool_call", "parallel_tool_calls", "tool_call_success", "success")


def frame(body: dict[str, Any]) -> str:
    """All that stands before the conversation and around it, as it was sent, the order of keys included."""
    system = [message for message in body["messages"] if message["role"] in ("system", "developer")]
    return json.dumps([system, {key: value for key, value in body.items() if key != "messages"}])


@pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
def test_neither_hash_seed_nor_clock_nor_step_changes_what_a_request_begins_with(
    space: Workspace, route: Route
) -> None:
    with MockModelServer(SCRIPT * len(SEEDS)).in_thread() as server:
        for at, seed in enumerate(SEEDS):
            space.program = rushing(60 * at)
            done = route.ask(space, route.base_of(server), env={"PYTHONHASHSEED": seed})
            assert done.code == 0, done.stderr

    assert server.refused == []
    bodies = [request.body for request in server.requests]
    assert len(bodies) == len(SCRIPT) * len(SEEDS)
    assert len({frame(body) for body in bodies}) == 1
    assert len(frame(bodies[0])) > 5000
    sessions = [bodies[at : at + len(SCRIPT)] for at in range(0, len(bodies), len(SCRIPT))]
    for session in sessions:
        for before, after in pairwise(session):
            old, new = (json.dumps(unmarked(body["messages"])) for body in (before, after))
            assert new.startswith(old.removesuffix("]"))
    assert len({json.dumps(session[0]) for session in sessions}) == 1
