"""Whole jobs on the route `anthropic`, against a server that refuses what the API would refuse."""

import json
from collections.abc import Sequence
from typing import Any

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.test_kill import RESUMER

MODEL = "claude-sonnet-4-5"


def run(
    space: Workspace,
    server: MockModelServer,
    *words: str,
    model: str = MODEL,
    plugins: Sequence[str] = (),
    **options: Any,
) -> Finished:
    """One run on the route, with these options of it; without a task another turn of the session there is.

    Args:
        plugins: files of more rows.
    """
    quick = {"maxRetries": 1, "backoff": {"initialDelayMs": 1, "maxDelayMs": 2}}
    rows: list[Any] = [
        {"id": "llm-anthropic", "merge": {"providers": {"anthropic": {"retryPolicy": quick, **options}}}},
        {"id": "agent-default-model", "merge": {"provider": "anthropic", "model": model}},
    ]
    rows += [{"insert": [{"id": f"more-{at}", "name": name}]} for at, name in enumerate(plugins)]
    if not words:
        space.write("resumer.py", RESUMER)
        [log] = space.logs()
        agent = {
            "id": "main",
            "resumeSessionId": log_rows(log)[0]["id"],
            "provider": "anthropic",
            "model": model,
        }
        rows += [
            {"id": "agent-loop", "config": {"agents": [agent]}},
            {"id": "headless-runner", "remove": True},
            {"insert": [{"id": "resumer", "name": "./resumer.py"}]},
        ]
    space.write("route.yml", json.dumps(rows))
    variables = {"ANTHROPIC_API_KEY": "mock-secret-key", "ANTHROPIC_BASE_URL": server.anthropic_url}
    return space.run("run", "--patch", "route.yml", *(words or ("ignored",)), env=variables)


def bash(call_id: str, command: str) -> dict[str, Any]:
    return {"id": call_id, "name": "bash", "args": [json.dumps({"command": command, "description": "do it"})]}


def kinds(request: Any) -> list[list[str]]:
    """The types of the blocks of each message that was sent."""
    return [[block["type"] for block in message["content"]] for message in request.body["messages"]]


def test_a_call_before_an_error_event_is_not_executed_and_the_attempt_is_repeated(space: Workspace) -> None:
    early = json.dumps({"command": "touch early", "description": "too early"})
    options = MockOptions(tool_arguments=early)
    with MockModelServer(["error_after_call", "pings"], options=options).in_thread() as server:
        done = run(space, server, "go")

    assert (done.code, done.stdout, done.stderr) == (0, options.success_text + "\n", "")
    assert not (space.work / "early").exists()
    [log] = space.logs()
    [retry] = [row["data"] for row in log_rows(log) if row["type"] == "llm/retry"]
    assert retry["failure"]["code"] == "SERVER"


def test_turns_without_words_and_results_without_output_leave_no_blank_text_behind(space: Workspace) -> None:
    script: list[Any] = [
        {"tools": [bash("a", "true"), {"id": "b", "name": "no_such_tool", "args": ["{}"]}]},
        {"text": [" \n"]},
        "success",
        "success",
    ]
    with MockModelServer(script).in_thread() as server:
        assert run(space, server, "go").code == 0
        assert run(space, server).code == 0
        assert run(space, server).code == 0

    assert server.refused == []
    [first, second] = server.requests[1].body["messages"][-1]["content"][:2]
    assert first["content"].strip()
    assert (first["tool_use_id"], first.get("is_error")) == ("a", None)
    assert (second["tool_use_id"], second["is_error"]) == ("b", True)
    assert '"text":" \\n"' not in json.dumps([request.body for request in server.requests])


def test_thinking_goes_back_signed_within_a_turn_over_a_resume_and_not_to_another_model(
    space: Workspace,
) -> None:
    script: list[Any] = [
        {"reasoning": ["think", " first"], "redacted": ["c2VjcmV0"], "tools": [bash("a", "echo hi")]},
        "success",
    ]
    with MockModelServer(script, repeat_last=True).in_thread() as server:
        assert run(space, server, "go", reasoningEffort="high").code == 0
        assert run(space, server, reasoningEffort="high").code == 0
        assert run(space, server, model="claude-other").code == 0

    assert server.refused == []
    signed, resumed, other = (kinds(request)[1] for request in server.requests[1:])
    assert sorted(signed[:2]) == ["redacted_thinking", "thinking"]
    assert signed[2:] == ["tool_use"]
    assert resumed == signed
    assert other == ["tool_use"]
    assert server.requests[1].body["thinking"] == {"type": "enabled", "budget_tokens": 6144}
    assert "thinking" not in server.requests[3].body
    [log] = space.logs()
    replies = [row["data"]["message"] for row in log_rows(log) if row["type"] == "assistant/message"]
    assert replies[0]["source"]["replayState"]["response"] == {"version": 1}
    assert space.run("sessions", "verify", str(log)).code == 0


def test_what_the_wire_cannot_express_ends_the_turn_by_its_name(space: Workspace) -> None:
    with MockModelServer().in_thread() as server:
        done = run(space, server, "go", reasoningEffort="high", defaultMaxTokens=4096)

    assert done.code == 1
    assert done.errors[-1].startswith("dsh: UNSUPPORTED_OPTION: ")
    assert "raise maxTokens" in done.errors[-1]
    assert server.requests == []
