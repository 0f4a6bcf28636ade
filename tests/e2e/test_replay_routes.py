"""`dsh replay` of sessions that were recorded on each route, faults and the provider's own state included."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.route import ANTHROPIC, ROUTES, Route
from tests.replaying import Rows, replayed, rewritten

SCRIPTS = [
    ["reasoning_tool_call", "parallel_tool_calls", "reasoning_success"],
    ["rate_limit", "partial_eof", "server_error", "malformed_json", "tool_call_success", "success"],
    ["stall_after_text", "empty", "connection_reset", "tool_call_without_arguments", "success"],
    ["tool_call_bad_arguments", "max_tokens"],
    ["auth_error"],
    ["tool_call_success", "content_filter"],
    ["context_overflow"],
]
OPTIONS = MockOptions(retry_after_ms=0, chunk_delay_ms=1, disconnect_delay_ms=1)


def recorded(space: Workspace, route: Route, script: list[str]) -> Path:
    """The log of one task on a route; on Anthropic's the model thinks."""
    options: dict[str, Any] = {"reasoningEffort": "low"} if route is ANTHROPIC else {}
    with MockModelServer(script, options=OPTIONS).in_thread() as server:
        url = route.base_of(server)
        done = route.ask(space, url, budget=4, streamIdleTimeoutMs=500, **options)
    assert (len(server.requests), server.refused) == (len(script), []), done.stderr
    [log] = space.logs()
    return log


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
@pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
def test_what_any_route_recorded_replays(space: Workspace, route: Route, script: list[str]) -> None:
    outcome = replayed(recorded(space, route, script))

    assert outcome.code == 0, outcome.told
    replies = f", {len(script)} model " + ("reply, " if len(script) == 1 else "replies, ")
    assert replies in outcome.told


def in_stream(change: Callable[[Any], None], rows: Rows) -> None:
    chunks = [row["data"]["chunk"] for row in rows if row["type"] == "assistant/chunk"]
    change(next(chunk for chunk in chunks if "replayState" in chunk))


def in_message(change: Callable[[Any], None], rows: Rows) -> None:
    source = next(r["data"]["message"]["source"] for r in rows if r["type"] == "assistant/message")
    change(source)


def other_signature(holder: Any) -> None:
    holder["replayState"]["blocks"][0]["signature"] += "x"


def no_state(holder: Any) -> None:
    del holder["replayState"]


@pytest.mark.parametrize("place", [in_stream, in_message])
@pytest.mark.parametrize("change", [other_signature, no_state])
def test_changed_state_of_the_provider_is_a_difference(
    space: Workspace, place: Callable[..., None], change: Callable[[Any], None]
) -> None:
    log = recorded(space, ANTHROPIC, SCRIPTS[0])
    assert any("replayState" in str(row) for row in log_rows(log))

    outcome = replayed(rewritten(log, partial(place, change)))

    assert outcome.code == 1, outcome.told
    assert outcome.difference.turn == 1
