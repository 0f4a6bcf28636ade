"""A real loop with a real shell and the hooks of a file, over a scripted model."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from dsh.agent.contract import Agent
from dsh.kernel import Context
from dsh.plugins import bash_local, hooks_claude_code, hooks_codex, subprocess
from tests.agent.kit import Loop, Reply, calls, data_of, loop, text

ROWS: tuple[ModuleType, ...] = (hooks_claude_code, hooks_codex)


def command(line: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": line, **fields}


def answering(**fields: Any) -> dict[str, Any]:
    """A hook that prints this JSON."""
    return command(f"cat > /dev/null; cat <<'END'\n{json.dumps(fields)}\nEND")


def permission(decision: str, reason: str = "", **fields: Any) -> dict[str, Any]:
    """A hook that gives a permission before a call."""
    inner = {"hookEventName": "PreToolUse", "permissionDecision": decision, **fields}
    if reason:
        inner["permissionDecisionReason"] = reason
    return answering(hookSpecificOutput=inner)


def adding(point: str, context: str) -> dict[str, Any]:
    """A hook that adds to the context."""
    return answering(hookSpecificOutput={"hookEventName": point, "additionalContext": context})


class Hooked:
    """The loop, the folder it works in, and what was told."""

    def __init__(self, it: Loop, folder: Path, told: list[str], ran: list[str]) -> None:
        self.it, self.folder, self.told, self.ran = it, folder, told, ran

    async def agent(self, **fields: Any) -> Agent:
        return await self.it.agent(cwd=str(self.folder), **fields)

    async def run(self, words: str = "go") -> Agent:
        """A new agent does one task."""
        agent = await self.agent()
        await self.it.prompt(agent, words)
        return agent

    def payload(self, name: str) -> Any:
        """What a hook read that writes its input to this file."""
        return json.loads((self.folder / name).read_bytes())


@asynccontextmanager
async def hooked(
    folder: Path,
    hooks: Mapping[str, Sequence[Any]] | str,
    *replies: Reply,
    row: ModuleType = hooks_claude_code,
    rows: Sequence[tuple[ModuleType, Mapping[str, Any]]] = (),
    shell: Mapping[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[Hooked]:
    """A loop with these hooks and a tool `work`, whose parameters are free.

    Args:
        hooks: by point a list of groups, or of hooks that run always; or the text of the file.
    """
    told: list[str] = []

    def listen(ctx: Context) -> None:
        ctx.export_logs(lambda entry: told.append(entry.text) if entry.level == "warning" else None)

    (path := folder / "hooks.json").write_text(hooks if isinstance(hooks, str) else file_of(hooks))
    mounted = [
        (subprocess, {}),
        (bash_local, {"graceMs": 300, **(shell or {})}),
        *rows,
        (row, {"configPath": str(path), **config}),
    ]
    async with loop(*replies, rows=mounted, first=listen) as it:
        ran: list[str] = []

        async def work(arguments: Any, execution: Any) -> str:
            ran.append(str(arguments.get("command", "")))
            return f"did {arguments.get('command', '')}"

        it.tool("work", work, parameters={"command": {"type": "string"}, "note": {"type": "string"}})
        yield Hooked(it, folder, told, ran)


def file_of(hooks: Mapping[str, Sequence[Any]]) -> str:
    groups = {
        point: [one if "hooks" in one else {"hooks": [one]} for one in ones] for point, ones in hooks.items()
    }
    return json.dumps({"hooks": groups})


def working(*commands: str) -> list[Reply]:
    """Steps that each call `work` once, then an answer."""
    steps: list[Reply] = [
        calls((f"c{at}", "work", json.dumps({"command": line}))) for at, line in enumerate(commands)
    ]
    return [*steps, text("done")]


def logged(agent: Agent) -> list[tuple[str, str]]:
    """Point and decision of each hook, in the order of the log."""
    return [(data["point"], data["decision"]) for data in data_of(agent.session, "hook/result")]


def results(agent: Agent) -> list[tuple[str, bool]]:
    """Text of each tool result and whether it is an error."""
    found = []
    for data in data_of(agent.session, "tool/result"):
        [block] = data["message"]["content"]
        found.append((block["content"][0]["text"], bool(block.get("isError"))))
    return found


def told_the_model(agent: Agent, owner: str = "hooks-claude-code") -> list[list[str]]:
    """The blocks of each message of the hooks."""
    return [
        [block["text"] for block in data["content"]]
        for data in data_of(agent.session, "user/message")
        if data["source"].get("plugin") == owner
    ]
