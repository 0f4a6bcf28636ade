"""Titles by a model in the real program: off as shipped, on by a patch, and never a reason to fail."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text

Answering = Callable[..., Model]
ON = "- {id: session-title-llm, disabled: false, require: true}\n"
ELSEWHERE = """
- id: session-title-llm
  disabled: false
  config: {provider: deepseek-official, model: deepseek-v4-pro, timeoutMs: 1500}
"""
"""Titles from another model than the session's, so that the two replies cannot be mistaken."""


def rows(space: Workspace, kind: str) -> list[dict[str, Any]]:
    [log] = space.logs()
    return [row["data"] for row in log_rows(log) if row["type"] == kind]


def titles(space: Workspace) -> list[tuple[str, str]]:
    return [(row["title"], row["source"]["kind"]) for row in rows(space, "session/title")]


def demo(space: Workspace) -> Finished:
    """A job of two seconds on the stand-in for a model; the server is asked for the title alone."""
    space.write("title.yml", ELSEWHERE)
    return space.run("--profile", "demo", "--patch", "title.yml", "Run: sleep 2; echo ok")


def test_as_shipped_nobody_is_asked(space: Workspace, answering: Answering) -> None:
    model = answering(text("ok"))
    assert space.run("run", "port the parser").code == 0

    assert len(model.bodies()) == 1
    assert rows(space, "session/title-llm-request") == []
    assert titles(space) == [("port the parser", "fallback")]


def test_enabled_it_asks_once_and_the_log_holds_the_request_and_the_title(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("Sleep, then ", "say ok"))
    done = demo(space)

    assert (done.code, done.stdout) == (0, "ok\n\n")
    assert titles(space)[-1] == ("Sleep, then say ok", "provider")
    [asked], [logged] = model.bodies(), rows(space, "session/title-llm-request")
    assert (asked["model"], asked["max_tokens"]) == ("deepseek-v4-pro", 64)
    assert asked["thinking"] == {"type": "disabled"}
    assert "tools" not in asked
    assert logged["route"] == {"provider": "deepseek-official", "model": "deepseek-v4-pro"}
    assert [message["content"] for message in asked["messages"]] == [
        logged["system"],
        logged["messages"][0]["content"][0]["text"],
    ]
    question = asked["messages"][1]["content"]
    prompts = json.loads(question[question.index("[") :])
    assert prompts == [{"seq": logged["messageSeqs"][0], "text": "Run: sleep 2; echo ok"}]


def test_without_a_route_of_its_own_the_sessions_model_is_asked(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("Port it", delay_ms=200))
    space.write("title.yml", ON)
    done = space.run("run", "--patch", "title.yml", "port the parser")

    assert (done.code, done.stdout, done.stderr) == (0, "Port it\n", "")
    [logged] = rows(space, "session/title-llm-request")
    assert logged["route"] == {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
    assert len(model.bodies()) <= 2


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (failure(400, "no such thing"), "no such thing"),
        (bash("rm -rf /"), "ended with tool-calls"),
        (text("cut", finish="length"), "ended with max-tokens"),
        (text("late", delay_ms=60_000), "within 1500 ms"),
        (failure(500, "down"), "within 1500 ms"),
    ],
)
def test_a_failure_costs_the_title_only(
    space: Workspace, answering: Answering, reply: dict[str, Any], problem: str
) -> None:
    answering(reply)
    done = demo(space)

    assert (done.code, done.stdout) == (0, "ok\n\n")
    [told] = [line for line in done.errors if "keeps its title" in line]
    assert problem in told
    assert titles(space) == [("Run: sleep 2; echo ok", "fallback")]
    assert len(rows(space, "session/title-llm-request")) == 1
    assert rows(space, "turn/end")[0]["reason"] == {"kind": "completed"}


def test_a_run_that_is_over_waits_for_no_title(space: Workspace, answering: Answering) -> None:
    answering(text("late", delay_ms=60_000))
    space.write("title.yml", ELSEWHERE.replace("1500", "50000"))
    done = space.run("--profile", "demo", "--patch", "title.yml", "hello", timeout_s=30)

    assert done.code == 0
    assert not [line for line in done.errors if "title" in line]
    assert titles(space) == [("hello", "fallback")]
