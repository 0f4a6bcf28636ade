"""What hooks read, to the byte, for each event and dialect."""

import json
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.agent.contract import AgentOptions
from dsh.plugins import hooks_claude_code, hooks_codex
from dsh.session.message import user_message
from tests.agent.hooks.kit import ROWS, Hooked, command, hooked, working
from tests.agent.kit import calls, text
from tests.aio import aio

POINTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
BOTH = pytest.mark.parametrize("row", ROWS, ids=["claude-code", "codex"])


def saving(point: str) -> dict[str, Any]:
    return command(f"cat > {point}.json")


async def played(it: Hooked) -> tuple[str, dict[str, bytes]]:
    agent = await it.run("do it ✓")
    return agent.id, {point: (it.folder / f"{point}.json").read_bytes() for point in POINTS}


@BOTH
@aio
async def test_the_payload_of_each_event(row: ModuleType, tmp_path: Path) -> None:
    hooks = {point: [saving(point)] for point in POINTS}
    async with hooked(tmp_path, hooks, *working("a b"), row=row) as it:
        session, found = await played(it)

    is_codex = row is hooks_codex

    def golden(point: str, own: dict[str, Any]) -> bytes:
        common: dict[str, Any] = {
            "session_id": session,
            "transcript_path": None if is_codex else "",
            "cwd": str(tmp_path),
            "hook_event_name": point,
        }
        if is_codex:
            common |= {"model": "m", "permission_mode": "default"}
            if point != "SessionStart":
                common["turn_id"] = "1"
        line = json.dumps(common | own, ensure_ascii=False, separators=(",", ":"))
        return line.encode() + (b"" if is_codex else b"\n")

    call = {"tool_name": "work", "tool_input": {"command": "a b"}, "tool_use_id": "c0"}
    last = {"last_assistant_message": None} if is_codex else {}
    assert found == {
        "SessionStart": golden("SessionStart", {"source": "startup"}),
        "UserPromptSubmit": golden("UserPromptSubmit", {"prompt": "do it ✓"}),
        "PreToolUse": golden("PreToolUse", call),
        "PostToolUse": golden("PostToolUse", {**call, "tool_response": "did a b"}),
        "Stop": golden("Stop", {"stop_hook_active": False, **last}),
    }


@aio
async def test_the_model_of_the_row_beats_the_agents(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"Stop": [saving("Stop")]}, row=hooks_codex, model="mine") as it:
        await it.run()

        assert it.payload("Stop.json")["model"] == "mine"


@BOTH
@aio
async def test_codex_sees_of_a_shell_command_the_command_and_of_other_tools_all(
    row: ModuleType, tmp_path: Path
) -> None:
    async def bash(_: Any, __: Any) -> str:
        return "ok"

    asked = calls(
        ("c1", "bash", '{"command": "ls", "description": "x"}'),
        ("c2", "work", '{"command": "ls", "note": "x"}'),
        ("c3", "bash", '{"oops'),
    )
    hooks = {"PreToolUse": [command('IN=$(cat); printf %s "$IN" > "$(date +%N)-$RANDOM.seen"')]}
    async with hooked(tmp_path, hooks, asked, text("done"), row=row) as it:
        it.it.tool(
            "bash", bash, parameters={"command": {"type": "string"}, "description": {"type": "string"}}
        )
        await it.run()
        seen = [json.loads(path.read_text()) for path in tmp_path.glob("*.seen")]

    inputs = {one["tool_use_id"]: one["tool_input"] for one in seen}
    assert inputs == {
        "c1": {"command": "ls"} if row is hooks_codex else {"command": "ls", "description": "x"},
        "c2": {"command": "ls", "note": "x"},
        "c3": '{"oops',
    }


@BOTH
@aio
async def test_half_a_surrogate_pair_reaches_no_hook(row: ModuleType, tmp_path: Path) -> None:
    raw = '{"command": "현\\ud99c", "note": "\\ud83d\\ude00"}'
    async with hooked(
        tmp_path, {"PreToolUse": [saving("PreToolUse")]}, calls(("c1", "work", raw)), text("done"), row=row
    ) as it:
        await it.run()
        raw_payload = (tmp_path / "PreToolUse.json").read_bytes()

    assert b"\\ud" not in raw_payload
    assert json.loads(raw_payload)["tool_input"] == {"command": "현\ufffd", "note": "😀"}


@aio
async def test_prompts_that_enter_together_are_one_text(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"UserPromptSubmit": [saving("UserPromptSubmit")]}) as it:
        agent = await it.agent()
        agent.inject(user_message("plugin says", {"kind": "plugin", "plugin": "x"}))
        agent.inject(user_message("first"))
        agent.steer(user_message([{"type": "text", "text": "sec"}, {"type": "text", "text": "ond"}]))
        await agent.when_idle()

        assert it.payload("UserPromptSubmit.json")["prompt"] == "first\n\nsecond"


@aio
async def test_claude_sees_children_begin_and_end_as_their_parents_session(tmp_path: Path) -> None:
    hooks = {
        point: [command(f"cat > {point}.json")]
        for point in ("SubagentStart", "SubagentStop", "SessionStart", "Stop")
    }
    async with hooked(tmp_path, hooks) as it:
        parent = await it.agent()
        child = await it.agent(session_id=f"c-{uuid.uuid4()}", parent_session=parent.id, origin="subagent")
        await it.it.prompt(child, "go")

        begun, ended = it.payload("SubagentStart.json"), it.payload("SubagentStop.json")
        assert not (tmp_path / "Stop.json").exists()
        await it.it.prompt(parent, "go")

        assert it.payload("Stop.json")["session_id"] == parent.id

    own = {"agent_id": child.id, "agent_type": "general-purpose"}
    assert {key: begun[key] for key in ("session_id", *own)} == {"session_id": parent.id, **own}
    assert {key: ended[key] for key in ("session_id", "stop_hook_active", *own)} == {
        "session_id": parent.id,
        "stop_hook_active": False,
        **own,
    }


@aio
async def test_codex_knows_no_children(tmp_path: Path) -> None:
    hooks = {point: [saving(point)] for point in ("SessionStart", "Stop")}
    async with hooked(tmp_path, hooks, row=hooks_codex) as it:
        parent = await it.agent(options=AgentOptions(provider="p", model="m"))
        await it.it.prompt(parent, "go")
        for point in hooks:
            (tmp_path / f"{point}.json").unlink()
        child = await it.agent(parent_session=parent.id, origin="subagent")
        await it.it.prompt(child, "go")

        assert list(tmp_path.glob("S*.json")) == []


@aio
async def test_claudes_variables_stand_for_their_folders(tmp_path: Path) -> None:
    project = tmp_path / "a b"
    project.mkdir()
    line = (
        'cat > /dev/null; printf "%s\\n" "$CLAUDE_PROJECT_DIR" "${CLAUDE_PROJECT_DIR}"'
        " '${CLAUDE_PROJECT_DIR}' ${CLAUDE_PLUGIN_ROOT} > vars"
    )
    async with hooked(
        tmp_path, {"Stop": [command(line)]}, projectDir=str(project), pluginRoot="/plug/in"
    ) as it:
        await it.run()

    assert (tmp_path / "vars").read_text().splitlines() == [*[str(project)] * 3, "/plug/in"]


@aio
async def test_a_path_that_a_shell_would_read_as_code_is_left_to_the_variable(tmp_path: Path) -> None:
    project = str(tmp_path / "$(touch owned)`touch owned`\"'")
    line = 'cat > /dev/null; printf %s "${CLAUDE_PROJECT_DIR}" > vars'
    async with hooked(tmp_path, {"Stop": [command(line)]}, projectDir=project) as it:
        await it.run()

    assert (tmp_path / "vars").read_text() == project
    assert not (tmp_path / "owned").exists()


@aio
async def test_without_a_project_folder_it_is_the_sessions(tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"Stop": [command('cat >/dev/null; pwd > "$CLAUDE_PROJECT_DIR/vars"')]}
    ) as it:
        await it.run()

    assert (tmp_path / "vars").read_text() == f"{tmp_path}\n"
    assert hooks_claude_code.Config(config_path="x").project_dir is None
