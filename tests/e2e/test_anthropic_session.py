"""A long session on the route `anthropic`: what is found in its cache, and what thinking it takes."""

from itertools import pairwise
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.test_anthropic import bash, run
from tests.llm.anthropic_rules import THINKING, cached_blocks, problems, texts

STEERING = """\
from dsh.agent.contract import AGENT_PRE_STEP
from dsh.session.message import user_message
def apply(ctx):
    async def on(payload, following):
        if payload.step % 4 == 0:
            payload.agent.steer(user_message(f"a hint for step {payload.step}"))
        return await following()
    ctx.on(AGENT_PRE_STEP, on)
"""


def step(number: int, calls: int = 1) -> dict[str, Any]:
    """The model thinks of its own and makes that many calls."""
    tools = [bash(f"c{number}-{call}", f"echo {number} {call}") for call in range(calls)]
    return {"reasoning": [f"think {number}"], "tools": tools}


FIRST: list[Any] = [
    *map(step, range(6)),
    step(6, calls=12),  # more blocks than the provider looks back over
    "rate_limit_ms",
    *map(step, range(7, 12)),
    "partial_disconnect",
    *map(step, range(12, 15)),
    "context_overflow",
    {"text": ["## Goal: the gist"]},
    *map(step, range(15, 20)),
    "success",
]
AGAIN: list[Any] = [step(20), step(21), "success"]


def thinking_of(body: Any) -> list[tuple[str, list[str]]]:
    """Each block of thinking that goes back, with all that stands before it."""
    words, at, found = texts(body), len(body.get("tools", [])) + len(body.get("system", [])), []
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] in THINKING:
                found.append((block["thinking"], words[:at]))
            at += 1
    return found


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-opus-5-5"])
def test_a_long_session_is_read_from_the_cache_and_its_thinking_is_taken(
    space: Workspace, model: str
) -> None:
    space.write("steering.py", STEERING)
    with MockModelServer([*FIRST, *AGAIN]).in_thread() as server:
        first = run(space, server, "go", model=model, reasoningEffort="low", plugins=["./steering.py"])
        assert first.code == 0, first.stderr
        again = run(space, server, model=model, reasoningEffort="low", plugins=["./steering.py"])
        assert again.code == 0, again.stderr

    assert [refused.reason for refused in server.refused] == []
    asked = [request for request in server.requests if request.behavior != "context_overflow"]
    bodies = [request.body for request in asked]
    assert [problems(body) for body in bodies] == [[]] * len(bodies)
    summary = next(at for at, body in enumerate(bodies) if "the gist" in str(bodies[at + 1]["messages"][0]))
    turns = bodies[:summary] + bodies[summary + 1 :]
    assert len(turns) == 20 + 2 + 1 + 3, "steps, repeated attempts, the answer, the second turn"

    for at, (before, now) in enumerate(pairwise(turns)):
        fixed = len(before["tools"]) + len(before["system"])
        if at + 1 == summary:  # the history is another one
            assert cached_blocks(turns[: at + 1], now) == fixed
            continue
        assert texts(now)[: len(texts(before))] == texts(before)
        assert cached_blocks(turns[: at + 1], now) == len(texts(before))

    thought_behind = {
        reply["reasoning"][0]: texts(request.body)
        for reply, request in zip([*FIRST, *AGAIN], server.requests, strict=True)
        if isinstance(reply, dict) and "reasoning" in reply
    }
    for body in bodies:
        for thought, behind in thinking_of(body):
            if model == "claude-opus-5-5":  # it refuses it behind anything else
                assert behind == thought_behind[thought]
    assert [thought for thought, _ in thinking_of(turns[-1])][-7:] == [f"think {n}" for n in range(15, 22)]
    [log] = space.logs()
    assert space.run("sessions", "verify", str(log)).code == 0
    assert any(row["type"] == "compaction/end" for row in log_rows(log))
