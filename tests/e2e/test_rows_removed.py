"""Each shipped row taken away: the rows that need it are named, or nothing needs it."""

from pathlib import Path

import pytest

from dsh.composition.compose import compose
from dsh.testing.workspace import Workspace
from tests.e2e.model import serve
from tests.e2e.reply import text

NEEDED = {
    "llm": [
        "llm-deepseek", "llm-openai", "llm-anthropic", "agent-loop", "compaction-basic", "command-compact",
        "web-search-deepseek", "headless-runner",
    ],
    "session": [
        "session-title", "session-persistence-jsonl", "session-checkpoint-policy", "session-projection",
        "session-stats", "session-projection-cache", "session-query-sqlite", "session-telemetry-otel",
        "agent-loop", "compaction-basic", "command-compact", "headless-runner",
    ],
    "session-projection": ["session-stats", "session-projection-cache"],
    "agent": ["agent-loop", "compaction-basic", "command-compact", "headless-runner"],
    "agent-default-model": ["headless-runner"],
    "agent-loop": ["headless-runner"],
    "system-prompt": ["agent-loop", "headless-runner"],
    "sandbox": [
        "sandbox-policy", "permission", "bash-sandbox", "fs-sandbox", "tool-bash", "tool-fs",
        "tool-str-replace-editor", "skill-filesystem",
    ],
    "sandbox-policy": [
        "permission", "bash-sandbox", "fs-sandbox", "tool-bash", "tool-fs", "tool-str-replace-editor",
        "skill-filesystem",
    ],
    "approval": ["permission"],
    "subprocess": [
        "sandbox-policy", "permission", "sandbox", "bash-sandbox", "fs-sandbox", "tool-bash", "tool-fs",
        "tool-fs-search", "tool-str-replace-editor", "skill-filesystem",
    ],
    "shell-env": ["tool-bash"],
    "bash-sandbox": ["tool-bash"],
    "jobs": ["tool-jobs"],
    "fs-sandbox": ["tool-fs", "tool-str-replace-editor", "skill-filesystem"],
    "commands": ["command-compact"],
    "token-meter": ["compaction-basic", "command-compact"],
    "compaction-basic": ["command-compact"],
    "tools": [
        "agent-loop", "system-prompt", "timeout-policy", "tool-bash", "tool-jobs", "tool-fs",
        "tool-fs-search", "tool-str-replace-editor", "tool-todo", "tool-skill", "tool-web", "headless-runner",
    ],
    "skill": ["skill-filesystem", "tool-skill"],
    "web": ["web-search-deepseek", "tool-web"],
    "headless-startup": [
        "sandbox-policy", "approval", "permission", "bash-sandbox", "fs-sandbox", "tool-bash", "tool-fs",
        "tool-str-replace-editor", "skill-filesystem", "headless-runner",
    ],
}  # fmt: skip
"""The rows that then wait, by the row that is gone."""
DISPENSABLE = [
    "agent-instructions", "timer", "llm-openai", "llm-anthropic", "model-catalogue", "llm-retry",
    "credentials", "settings", "session-title", "session-title-llm",
    "session-persistence-jsonl", "session-checkpoint-policy", "session-stats",
    "session-projection-cache", "session-composition", "session-query-sqlite", "session-telemetry-otel",
    "permission", "user-questions", "command-compact", "tool-result-pruner",
    "fs-observation-policy", "timeout-policy", "spill-local", "spill-policy", "repeat-tool-reminder",
    "tool-bash", "tool-jobs", "tool-fs", "tool-fs-search", "tool-str-replace-editor", "tool-todo",
    "skill-filesystem", "tool-skill", "web-search-deepseek", "tool-web",
]  # fmt: skip
"""Without these a question is answered all the same."""
OTHERWISE = ["llm-deepseek", "headless-runner"]
NOT_STORED = (
    "dsh: sessions are not stored: no row provides sessionPersistence (row session-persistence-jsonl does)\n"
)


def test_every_row_is_in_one_of_the_lists() -> None:
    rows = [row.id for row in compose("headless", [], Path("/nonexistent"), environ={}).rows]
    assert sorted(map(str, rows)) == sorted([*NEEDED, *DISPENSABLE, *OTHERWISE])


def without(space: Workspace, row: str, *, how: str = "remove: true") -> list[str]:
    space.write("p.yml", f"- {{id: {row}, require: true, {how}}}\n")
    return ["run", "--patch", "p.yml", "hello"]


@pytest.mark.parametrize("row", NEEDED)
def test_rows_that_need_it_are_named_with_the_service_they_wait_for(space: Workspace, row: str) -> None:
    done = space.run(*without(space, row))
    assert (done.code, done.stdout, space.logs()) == (3, "", [])
    summary, *lines, hint = done.errors
    assert hint == f"hint: dsh explain {NEEDED[row][0]}, with the same --profile and --patch, says why"
    count = len(NEEDED[row])
    assert summary == f"dsh: {count} {'entry' if count == 1 else 'entries'} did not activate:"
    assert [line.partition(" ")[0] for line in lines] == NEEDED[row]
    assert all("pending (waiting for service(s): " in line for line in lines)


@pytest.mark.parametrize("row", DISPENSABLE)
def test_a_row_that_nothing_waits_for_can_be_taken_away(space: Workspace, row: str) -> None:
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run(*without(space, row))
    stored = row != "session-persistence-jsonl"
    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "" if stored else NOT_STORED)
    assert len(space.logs()) == stored


@pytest.mark.parametrize("how", ["remove: true", "disabled: true"])
def test_without_what_runs_the_task_there_is_no_app(space: Workspace, how: str) -> None:
    done = space.run(*without(space, "headless-runner", how=how), timeout_s=30)
    assert (done.code, done.stdout, space.logs()) == (3, "", [])
    assert "has no app" in done.errors[0]


def test_without_the_model_s_adapter_the_route_is_named_when_the_task_starts(space: Workspace) -> None:
    done = space.run(*without(space, "llm-deepseek"))
    assert done.code == 1
    assert "deepseek-official" in done.stderr
