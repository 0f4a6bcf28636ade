"""What a model server may do wrong, through the real program: code, streams, requests and log of each."""

from collections import Counter
from typing import Any, NamedTuple

import pytest

from dsh.testing.mock_server import BEHAVIOURS, MockModelServer, MockOptions
from dsh.testing.workspace import Finished, Workspace, log_rows

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1, retry_after_ms=0)
ANSWER = OPTIONS.success_text + "\n"
PATCH = """
- id: llm-deepseek
  config:
    streamIdleTimeoutMs: {idle}
    totalTimeoutMs: {total}
    retryPolicy: {{maxRetries: {budget}, backoff: {{initialDelayMs: 1, maxDelayMs: 2}}}}
"""

ANSWERED = {
    "success": ANSWER,
    "slow_success": ANSWER,
    "reasoning_success": ANSWER,
    "wrong_content_type": ANSWER,
    "keep_alive_comments": ANSWER,
    "empty_deltas": ANSWER,
    "crlf": ANSWER,
    "byte_order_mark": ANSWER,
    "done_without_blank_line": ANSWER,
    "malformed_usage": ANSWER,
    "unicode_separators": "line\u2028paragraph\u2029next\x85tab\x0bfeed\x0c\n",
    "split_utf8": "héllo wörld 🏷 한국어\n",
}
CALLED = {
    "tool_call_success": 1,
    "tool_call_without_id": 1,
    "tool_calls_without_index": 2,
    "tool_call_then_text": 1,
}
"""How many calls each makes."""
PASSING = {
    "connection_reset": "TRANSPORT",
    "stream_disconnect": "TRANSPORT",
    "partial_disconnect": "TRANSPORT",
    "empty": "EMPTY_RESPONSE",
    "no_content": "EMPTY_RESPONSE",
    "empty_body": "STREAM_CLOSED",
    "stream_eof": "STREAM_CLOSED",
    "partial_eof": "STREAM_CLOSED",
    "missing_done": "STREAM_CLOSED",
    "stall": "TIMEOUT",
    "endless_keep_alive": "TIMEOUT",
    "malformed_json": "MALFORMED_RESPONSE",
    "malformed_event": "MALFORMED_RESPONSE",
    "html_page": "MALFORMED_RESPONSE",
    "rate_limit": "RATE_LIMIT",
    "in_band_error": "RATE_LIMIT",
    "server_error": "SERVER",
    "service_unavailable": "SERVER",
    "gateway_page": "SERVER",
    "error_event": "SERVER",
    "json_error": "SERVER",
    "request_timeout": "HTTP_408",
    "too_early": "HTTP_425",
    "insufficient_resource": "INSUFFICIENT_SYSTEM_RESOURCE",
}
FINAL = {
    "auth_error": ("AUTH", 4),
    "invalid_request": ("INVALID_REQUEST", 1),
    "context_overflow": ("CONTEXT_WINDOW_EXCEEDED", 1),
    "quota_exceeded": ("QUOTA", 1),
    "content_filter": ("CONTENT_FILTER", 1),
    "redirect": ("HTTP_307", 1),
}
OTHERS = {"max_tokens"}


class Seen(NamedTuple):
    """A run, and what it left behind."""

    done: Finished
    server: MockModelServer
    rows: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == kind]

    @property
    def reason(self) -> dict[str, Any]:
        last = self.rows[-1]
        assert last["type"] == "turn/end"
        reason: dict[str, Any] = last["data"]["reason"]
        return reason


def against(space: Workspace, *script: str, budget: int = 1, idle: int = 20_000, total: int = 20_000) -> Seen:
    """Run one task against a server that plays this script, the last entry for ever."""
    space.write("p.yml", PATCH.format(budget=budget, idle=idle, total=total))
    with MockModelServer(script, repeat_last=True, options=OPTIONS).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", "p.yml", "say it")
    [log] = space.logs()
    assert "Traceback" not in done.stderr
    assert b"mock-key" not in repr(log_rows(log)).encode()
    return Seen(done, server, log_rows(log)[1:])


def covered(row: dict[str, Any]) -> range:
    """The seqs that a row of chunks stands for."""
    if row["type"] == "assistant/chunk":
        return range(row["seq"], row["seq"] + 1)
    return range(row["seq0"], row["seq0"] + len(row["data"]["texts"]))


def test_each_behaviour_is_tried_once() -> None:
    """Through the whole program; `tests/contract/wire/test_behaviours.py` has every one, on every wire."""
    tried = [*ANSWERED, *CALLED, *PASSING, *FINAL, *OTHERS]
    assert set(Counter(tried).values()) == {1}
    assert set(tried) <= set(BEHAVIOURS)


@pytest.mark.parametrize("behaviour", ANSWERED)
def test_an_odd_but_whole_reply_is_an_answer(space: Workspace, behaviour: str) -> None:
    seen = against(space, behaviour)

    assert (seen.done.code, seen.done.stdout, seen.done.stderr) == (0, ANSWERED[behaviour], "")
    assert len(seen.server.requests) == 1
    assert seen.of("llm/retry") == []


@pytest.mark.parametrize("behaviour", CALLED)
def test_a_call_runs_however_it_is_spelled(space: Workspace, behaviour: str) -> None:
    seen = against(space, behaviour, "success")

    assert (seen.done.code, seen.done.stdout, seen.done.stderr) == (0, ANSWER, "")
    results = [m for m in seen.server.requests[1].body["messages"] if m["role"] == "tool"]
    assert ["mock" in result["content"] for result in results] == [True] * CALLED[behaviour]
    assert len({result["tool_call_id"] for result in results}) == CALLED[behaviour]


@pytest.mark.parametrize("behaviour", PASSING)
def test_a_passing_fault_costs_a_retry_and_leaves_no_trace_in_the_answer(
    space: Workspace, behaviour: str
) -> None:
    limits = {"stall": {"idle": 2000}, "endless_keep_alive": {"total": 2000}}
    seen = against(space, behaviour, "success", **limits.get(behaviour, {}))

    assert (seen.done.code, seen.done.stdout, seen.done.stderr) == (0, ANSWER, "")
    first, second = seen.server.requests
    assert first.body == second.body
    [retry], [started], [message] = (
        seen.of("llm/retry"),
        seen.of("llm/retry-started"),
        seen.of("assistant/message"),
    )
    assert retry["data"]["failure"]["code"] == PASSING[behaviour]
    chunks = [row for row in seen.rows if row["type"].endswith(("assistant/chunk", "-chunks"))]
    failed = {seq for row in chunks for seq in covered(row) if seq < retry["seq"]}
    retried = [seq for row in chunks for seq in covered(row) if seq > started["seq"]]
    assert failed and message["sourceEventSeqs"] == retried


@pytest.mark.parametrize(
    "behaviour", ["connection_reset", "partial_disconnect", "rate_limit", "malformed_json"]
)
@pytest.mark.parametrize("budget", [0, 2])
def test_a_used_up_budget_is_1_with_the_last_failure(space: Workspace, behaviour: str, budget: int) -> None:
    seen = against(space, behaviour, budget=budget)

    assert (seen.done.code, seen.done.stdout) == (1, "\n")
    [line] = seen.done.errors
    assert line.startswith(f"dsh: {PASSING[behaviour]}: ")
    assert len(seen.server.requests) == budget + 1
    assert len(seen.of("llm/retry")) == len(seen.of("llm/retry-started")) == budget
    assert seen.of("assistant/message") == []
    assert seen.reason["error"]["code"] == PASSING[behaviour]


@pytest.mark.parametrize("behaviour", FINAL)
def test_a_fault_that_stays_is_not_tried_again(space: Workspace, behaviour: str) -> None:
    code, exit_code = FINAL[behaviour]
    seen = against(space, behaviour)

    assert (seen.done.code, seen.done.stdout) == (exit_code, "\n")
    *warnings, line = seen.done.errors
    assert line.startswith(f"dsh: {code}: ")
    assert len(warnings) == (code == "CONTEXT_WINDOW_EXCEEDED"), "it is told what fills the request"
    assert len(seen.server.requests) == 1
    assert seen.of("llm/retry") == seen.of("assistant/message") == []
    assert seen.reason["error"]["code"] == code


def test_a_refused_key_names_where_it_came_from_and_what_to_do_once(space: Workspace) -> None:
    [line] = against(space, "auth_error").done.errors

    assert "the key came from the environment variable DEEPSEEK_API_KEY" in line
    assert line.count("DEEPSEEK_API_KEY") == 1 and ".credentials.yaml" in line


def test_an_answer_cut_by_its_limit_is_printed_and_told(space: Workspace) -> None:
    seen = against(space, "max_tokens")

    assert (seen.done.code, seen.done.stdout) == (1, OPTIONS.partial_text + "\n")
    assert len(seen.done.errors) == 1
    assert seen.reason == {"kind": "max-tokens"}


def test_a_fault_in_a_later_step_repeats_that_step_alone(space: Workspace) -> None:
    seen = against(space, "tool_call_success", "partial_disconnect", "success")

    assert (seen.done.code, seen.done.stdout) == (0, ANSWER)
    assert len(seen.of("tool/call")) == 1
    assert [row["data"]["step"] for row in seen.of("llm/retry")] == [2]
    assert seen.server.requests[1].body == seen.server.requests[2].body
