"""A loop with real files, file tools and the row `agent-instructions`, over a temporary project."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.agent.contract import Agent
from dsh.plugins import agent_instructions, fs_local, fs_observation_policy, tool_fs
from dsh.session.log import Session
from tests.agent.kit import Item, Loop, Reply, calls, loop

KIND = "agent-instructions"


class Project:
    """A directory with a home beside it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.root = root / "ws"
        self.root.mkdir()

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write_global(self, content: str) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "AGENTS.md").write_text(content)

    @asynccontextmanager
    async def loop(self, *replies: Reply, rows: Sequence[Any] = (), **config: Any) -> AsyncIterator[Loop]:
        """The rows over this project; `config` is the row's."""
        files: list[Any] = [(fs_local, {}), (fs_observation_policy, {}), (tool_fs, {})]
        row = (agent_instructions, {"maxBytes": 65536, "dshHome": str(self.home), **config})
        async with loop(*replies, rows=[*files, row, *rows]) as run:
            yield run

    async def agent(self, run: Loop, directory: str = ".", **fields: Any) -> Agent:
        return await run.agent(cwd=str((self.root / directory).resolve()), **fields)


def read(*paths: str) -> list[Item]:
    """A reply that reads these files at once."""
    return calls(*((f"c{n}-{p}", "read", json.dumps({"file_path": p})) for n, p in enumerate(paths)))


def written(path: str, content: str) -> list[Item]:
    return calls((f"w-{path}", "write", json.dumps({"file_path": path, "content": content})))


def messages(session: Session) -> list[Any]:
    """The messages of instructions that entered a step."""
    return [e.data for e in session.events() if e.type == "user/message" and e.data["source"]["kind"] == KIND]


def texts(message: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in message["content"]]


def changes(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Action and scope of each change, with `/` for the zero byte."""
    return [(one["action"], one["scope"].replace("\0", "/")) for one in message["source"]["changes"]]


def all_changes(session: Session) -> list[list[tuple[str, str]]]:
    return [changes(message) for message in messages(session)]
