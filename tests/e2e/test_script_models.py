"""A script or a recording in place of a model, in the real program."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text

SCRIPTED = """
- insert:
    - {id: llm-scripted, name: llm-scripted, config: {file: replies.yml}}
- {id: agent-default-model, config: {provider: scripted, model: script}}
"""
REPLAY = "- insert: [{id: llm-replay, name: llm-replay}]\n"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def scripted(space: Workspace, replies: str, *words: str) -> Finished:
    space.write("scripted.yml", SCRIPTED)
    space.write("replies.yml", replies)
    return space.run("run", "--patch", "scripted.yml", *words, "do it")


def test_a_script_calls_real_tools_and_gives_the_answer(space: Workspace) -> None:
    replies = """
- tools: [{name: write, args: {file_path: a.txt, content: "made\\n"}}]
- tools: [{name: bash, args: {command: cat a.txt, description: look}}]
- expect: made
  text: done
"""
    done = scripted(space, replies)

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert (space.work / "a.txt").read_text() == "made\n"


@pytest.mark.parametrize(
    ("replies", "code", "told"),
    [
        ("- tools: [{name: bash, args: {command: 'true', description: x}}]\n", 1, "dsh: SCRIPT_EXHAUSTED: "),
        ("- {text: x, expect: nowhere}\n", 1, "dsh: SCRIPT_UNEXPECTED_REQUEST: "),
        ("- error: {code: AUTH, status: 401, message: no such key}\n", 4, "dsh: AUTH: no such key"),
        ("- text: [x]\n", 3, "llm-scripted (llm-scripted): "),
    ],
)
def test_what_does_not_fit_is_one_line_and_an_exit_code(
    space: Workspace, replies: str, code: int, told: str
) -> None:
    done = scripted(space, replies)

    assert done.code == code
    assert done.errors[-1].startswith(told)
    assert "Traceback" not in done.stderr


def logged(path: Path) -> list[dict[str, Any]]:
    """The rows of a log without ids, times, digests and delays."""
    rows = []
    for row in log_rows(path)[1:]:
        bare = {key: value for key, value in row.items() if key not in ("time", "time0")}
        data = bare["data"]
        if isinstance(data, dict):
            bare["data"] = {k: v for k, v in data.items() if k not in ("dt", "digest", "delayMs")}
        rows.append(bare)
    seen: dict[str, str] = {}
    numbered = UUID.sub(lambda found: seen.setdefault(found[0], f"id-{len(seen)}"), json.dumps(rows))
    answer: list[dict[str, Any]] = json.loads(numbered)
    return answer


def test_a_live_session_is_replayed_without_a_network_to_the_same_log(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    model = answering(failure(503, "busy"), bash("echo hello"), text("the ", "end"))
    first = space.run("run", "say hello")
    assert (first.code, first.stdout) == (0, "the end\n")
    asked = len(model.bodies())
    [live] = space.logs()

    space.write("replay.yml", REPLAY)
    env = {
        "DSH_SNAPSHOT_FILE": str(live),
        "DEEPSEEK_API_KEY": None,
        "DEEPSEEK_BASE_URL": "http://127.0.0.1:1",
    }
    second = space.run("run", "--patch", "replay.yml", "say hello", env=env)
    assert (second.code, second.stdout) == (0, "the end\n")
    assert len(model.bodies()) == asked
    [played] = set(space.logs()) - {live}

    assert [row["type"] for row in logged(played)] == [row["type"] for row in logged(live)]
    assert logged(played) == logged(live)


def test_a_recording_that_is_none_is_exit_3_and_one_line(space: Workspace) -> None:
    space.write("replay.yml", REPLAY)
    space.write(
        "s.jsonl", '{"type":"session","version":0,"id":"a","createdAt":0,"delegationDepth":0}\n{"type":\n'
    )

    done = space.run("run", "--patch", "replay.yml", "x", env={"DSH_SNAPSHOT_FILE": "s.jsonl"})
    assert done.code == 3
    assert "s.jsonl:2: not JSON" in done.errors[-1]


def test_replies_that_nobody_asked_for_are_told_at_the_end(space: Workspace) -> None:
    done = scripted(space, "- text: done\n- text: more\n- text: more\n")

    assert (done.code, done.stdout) == (0, "done\n")
    assert done.errors == [
        f"dsh: 2 of 3 replies were not played, the first is at {space.work / 'replies.yml'}:2:3"
    ]
