"""What a hook reads from its standard input, for each point and dialect."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from dsh.agent.hooks.dialect import AGENT_TYPE, Dialect, Point
from dsh.session.message import Block, text_in
from dsh.session.value import clean, encode, freeze
from dsh.tools.execution import ToolExecution, ToolResult


def common(
    dialect: Dialect,
    point: Point,
    *,
    session_id: str,
    transcript_path: str | None,
    cwd: str,
    model: str = "",
    turn: int | None = None,
) -> dict[str, Any]:
    """The fields of every payload.

    Args:
        transcript_path: of the session's log; None where it is not stored.
        turn: the open turn, for the points that lie in one.
    """
    if dialect.name == "claude-code":
        return {
            "session_id": session_id,
            "transcript_path": transcript_path or "",
            "cwd": cwd,
            "hook_event_name": point,
        }
    fields: dict[str, Any] = {
        "session_id": session_id,
        "transcript_path": transcript_path,
        "cwd": cwd,
        "hook_event_name": point,
        "model": model,
        "permission_mode": "default",
    }
    if turn is not None:
        fields["turn_id"] = str(turn)
    return fields


def tool_input(dialect: Dialect, execution: ToolExecution) -> Any:
    """The arguments of a call as hooks see them: of a shell command Codex knows nothing else."""
    arguments = execution.arguments
    if dialect.name != "codex" or execution.name != "bash":
        return arguments
    is_command = isinstance(arguments, Mapping) and "command" in arguments
    return {"command": arguments["command"]} if is_command else arguments


def tool_use(dialect: Dialect, execution: ToolExecution) -> dict[str, Any]:
    """What is added before a call."""
    return {
        "tool_name": execution.name,
        "tool_input": tool_input(dialect, execution),
        "tool_use_id": execution.call_id,
    }


def tool_response(result: ToolResult) -> dict[str, Any]:
    """What is added after it."""
    return {"tool_response": text_in(cast("Sequence[Block]", result.content))}


def stop(dialect: Dialect, *, is_forced: bool) -> dict[str, Any]:
    """What is added at the end of a turn; `is_forced`: a hook has kept it going before."""
    fields: dict[str, Any] = {"stop_hook_active": is_forced}
    if dialect.name == "codex":
        fields["last_assistant_message"] = None
    return fields


def subagent(agent_id: str) -> dict[str, Any]:
    """What is added for a child agent."""
    return {"agent_id": agent_id, "agent_type": AGENT_TYPE}


def encoded(dialect: Dialect, fields: Mapping[str, Any]) -> bytes:
    """The bytes: one line of JSON in UTF-8, ended in Claude Code's dialect only."""
    text = encode({key: clean(freeze(value, key, stored=True)) for key, value in fields.items()})
    return text + b"\n" if dialect.name == "claude-code" else text
