"""A run with nobody to ask, as a process: what needs an approval is refused, told and logged at once."""

import json
import signal
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, finish, log_rows
from dsh.tools.pipeline import REFUSALS
from tests.process import wait_until

GATE = """
from dsh.tools.event import TOOLS_PRE_EXECUTE, Ask

def apply(ctx):
    async def gate(execution, following):
        return Ask("runs a command") if execution.name == "bash" else await following()

    ctx.on(TOOLS_PRE_EXECUTE, gate)
"""
DEAF = """
import asyncio
from dsh.capabilities.approval import APPROVAL_REQUEST

def apply(ctx):
    async def deaf(request, following):
        open("asked", "w").close()
        await asyncio.Event().wait()

    ctx.on(APPROVAL_REQUEST, deaf)
"""
YES = """
from dsh.capabilities.approval import APPROVAL_REQUEST

def apply(ctx):
    async def yes(request, following):
        return "allowed-once"

    ctx.on(APPROVAL_REQUEST, yes)
"""
SWITCH = """
from dsh.agent.contract import AGENT_SESSION_START
from dsh.capabilities.commands import COMMANDS

inject = [COMMANDS]

def apply(ctx):
    def started(event):
        async def switch():
            outcome = await ctx.use(COMMANDS).execute(event.agent, "/permission careful")
            open("outcome", "w").write(repr(outcome))

        ctx.spawn(switch(), "switch")

    ctx.on(AGENT_SESSION_START, started)
"""
NOBODY = "bash needed an approval and nobody is there to give it"
CAREFUL = "- {id: permission, merge: {presets: {careful: {sandbox: danger-full-access, approval: ask}}}}\n"
ASK = f"{CAREFUL}- {{id: permission, merge: {{defaultPreset: careful}}}}\n"
NEVER = ""
NO_ROW = "- {id: approval, remove: true}\n- {id: permission, remove: true}\n"


def patch(space: Workspace, patch: str, **plugins: str) -> None:
    """A patch that also mounts these plugin files."""
    for name, text in plugins.items():
        space.write(f"{name}.py", text)
    rows = ", ".join(f"{{id: {name}, name: ./{name}.py}}" for name in plugins)
    space.write("p.yml", f"{patch}- insert: [{rows}]\n")


def logged(space: Workspace, *types: str) -> list[tuple[str, Any]]:
    [log] = space.logs()
    return [(row["type"], row["data"]) for row in log_rows(log) if row.get("type") in types]


def run(space: Workspace, words: str = "Run: echo ran > ran", **env: str | None) -> Any:
    done = space.run("--profile", "demo", "--patch", "p.yml", words, env=env)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("rows", "variable", "outcome", "told", "line"),
    [
        (
            NEVER,
            "danger-full-access",
            "rejected",
            REFUSALS["rejected"],
            "bash needed an approval, refused by policy never",
        ),
        (
            ASK,
            None,
            "unavailable",
            REFUSALS["unavailable"],
            "bash needed an approval and nobody is there to give it",
        ),
        (NO_ROW, "danger-full-access", None, "runs a command", None),
    ],
)
def test_a_call_that_asks_is_refused_and_the_run_goes_on(
    space: Workspace, rows: str, variable: str | None, outcome: str | None, told: str, line: str | None
) -> None:
    patch(space, rows, gate=GATE)

    done = run(space, DSH_PERMISSION_MODE=variable)

    assert (done.code, done.stdout) == (0, f"Error: {told}\n")
    assert not (space.work / "ran").exists()
    found = logged(space, "tool/call", "approval/asked", "approval/decided", "tool/result", "turn/end")
    kinds = [kind for kind, _ in found]
    pair = ["approval/asked", "approval/decided"] if outcome else []
    assert kinds == ["tool/call", *pair, "tool/result", "turn/end"]
    if outcome is not None:
        question, answer = found[1][1], found[2][1]
        assert question == {
            "id": question["id"], "toolName": "bash", "callId": "demo-1", "reason": "runs a command",
        }  # fmt: skip
        assert answer == {"id": question["id"], "outcome": outcome}
    assert "error" not in found[-2][1]
    assert found[-1][1]["reason"] == {"kind": "completed"}
    assert sum("approval" in one for one in done.errors) == (line is not None)
    assert line is None or any(one.endswith(line) for one in done.errors), done.stderr


def test_a_channel_that_grants_lets_the_call_run(space: Workspace) -> None:
    patch(space, ASK, gate=GATE, yes=YES)

    done = run(space, DSH_PERMISSION_MODE=None)

    assert done.code == 0
    assert (space.work / "ran").read_text() == "ran\n"
    assert logged(space, "approval/decided")[0][1]["outcome"] == "allowed-once"


def test_a_channel_that_never_answers_ends_with_the_run(space: Workspace) -> None:
    patch(space, ASK, gate=GATE, deaf=DEAF)

    process = space.start(
        "--profile", "demo", "--patch", "p.yml", "Run: echo ran > ran", env={"DSH_PERMISSION_MODE": None}
    )
    wait_until((space.work / "asked").exists, process)
    process.send_signal(signal.SIGINT)
    done = finish(process)

    assert done.code == 130, done.stderr
    found = logged(space, "approval/decided", "tool/result", "turn/end")
    assert found[0][1]["outcome"] == "cancelled"
    assert found[1][1]["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
    assert found[2][1]["reason"]["kind"] == "aborted"
    assert not (space.work / "ran").exists()


def test_the_policy_is_told_to_the_model(space: Workspace) -> None:
    patch(space, ASK, gate=GATE)

    run(space, "hello", DSH_PERMISSION_MODE=None)

    sections = [
        section["text"]
        for _, data in logged(space, "user/message")
        for section in data["source"].get("sections", ())
        if section["name"] == "approval:policy"
    ]
    assert len(sections) == 1
    assert sections[0].startswith("Approval policy: ask.")


def test_a_command_changes_the_preset_of_a_live_session_and_the_log_verifies(space: Workspace) -> None:
    patch(space, CAREFUL, gate=GATE, switch=SWITCH)

    done = run(space)

    assert done.code == 0
    assert (space.work / "outcome").read_text() == (
        "CommandSuccess(text='Permission preset: careful.', source_event_seq=None)"
    )
    types = ("command/run", "command/done", "permission/preset", "sandbox/mode", "approval/policy")
    found = logged(space, *types, "approval/decided")
    assert [kind for kind, _ in found] == [
        "permission/preset", "sandbox/mode", "approval/policy",
        "command/run", "permission/preset", "approval/policy", "command/done",
        "approval/decided",
    ]  # fmt: skip
    assert found[3][1]["args"] == " careful"
    assert found[-1][1]["outcome"] == "unavailable"
    [message] = [
        data for _, data in logged(space, "user/message") if data["source"].get("plugin") == "user-approval"
    ]
    assert "Approval policy: ask." in message["content"][0]["text"]
    [log] = space.logs()
    verified = space.run("sessions", "verify", str(log))
    assert verified.code == 0, verified.stdout


QUESTIONS = json.dumps({"questions": [{"id": "go", "question": "Go on?"}]})


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ("", "UNKNOWN_TOOL"),
        ("- insert: [{id: ask, name: tool-ask-user-question}]\n", "NO_PROVIDER"),
    ],
)
def test_a_question_that_nobody_can_answer_is_a_result(
    space: Workspace, answering: Any, rows: str, code: str
) -> None:
    model = answering(
        {"tools": [{"id": "call_1", "name": "ask_user_question", "args": [QUESTIONS]}]},
        {"text": ["decided alone"]},
    )
    space.write("p.yml", rows or "- insert: []\n")

    done = space.run("--profile", "headless", "--patch", "p.yml", "x")

    assert (done.code, done.stdout) == (0, "decided alone\n"), done.stderr
    [(_, result)] = logged(space, "tool/result")
    assert result["error"]["code"] == code
    read = model.bodies()[1]["messages"][-1]["content"]
    assert read.startswith("Error: ") and (code != "NO_PROVIDER" or "nobody is there" in read)
