"""Runs against servers that refuse what the real ones refuse: they never have a reason to."""

import pytest

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Workspace
from tests.e2e.route import ROUTES, Route

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1, retry_after_ms=1)
SCRIPT = (
    *("reasoning_tool_call", "parallel_tool_calls", "tool_call_bad_arguments", "partial_disconnect"),
    *("tool_call_empty_fragments", "reasoning_tool_call", "tool_call_then_text", "tool_call_success"),
    *("rate_limit_ms", "reasoning_success"),
)
"""Ids come again in later steps, arguments are no JSON, two attempts fail."""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_no_step_of_a_long_turn_is_a_request_that_a_server_would_refuse(
    space: Workspace, route: Route
) -> None:
    openai = route.name == "openai-compatible"
    server = MockModelServer(SCRIPT, options=OPTIONS, dialect="openai" if openai else "deepseek")
    with server.in_thread():
        url = server.anthropic_url if route.name == "anthropic" else server.base_url
        done = route.ask(space, url, budget=2)

    assert [refused.reason for refused in server.refused] == []
    assert (done.code, done.stdout, done.stderr) == (0, OPTIONS.success_text + "\n", "")
    assert [request.behavior for request in server.requests][: len(SCRIPT)] == list(SCRIPT)
