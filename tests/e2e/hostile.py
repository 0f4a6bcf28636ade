"""Runs with one more row whose plugin misbehaves, and what must hold of each of them, however it went."""

import json
from collections.abc import Callable
from typing import Any

from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, text
from tests.e2e.sound import errors_in
from tests.e2e.test_kill import AGAIN, RESUMER, check_request

Answering = Callable[..., Model]
PATCH = "- insert:\n    - {id: odd, name: ./plugin.py}\n"

TOOLS = """
import asyncio, gc, os, signal, subprocess, sys, threading, time
from dsh.session.message import user_message
from dsh.tools.definition import TEXT_OUTPUT, ToolOutput
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [TOOLS]

class Own(Exception):
    def __str__(self): raise ValueError

class Rare(BaseException):
    def __str__(self): raise SystemExit(3)

def deep(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made
"""
BODY = """
async def {name}(args, execution):
    {body}
"""
REGISTERED = """
def apply(ctx):
    for body in ({bodies},):
        ctx.use(TOOLS).register(typed_tool(
            name=body.__name__, description="odd", parameters={{}}, execute=body, output={output}{more}
        ))
"""


def tools(*bodies: str, output: str = "TEXT_OUTPUT", more: str = "") -> str:
    """A plugin with tools `t0`, `t1`, …, one for each body."""
    names = [f"t{number}" for number in range(len(bodies))]
    made = "".join(
        BODY.format(name=name, body=body.replace("\n", "\n    "))
        for name, body in zip(names, bodies, strict=True)
    )
    return TOOLS + made + REGISTERED.format(bodies=", ".join(names), output=output, more=more)


def calls(*names: str, arguments: str = "{}") -> Reply:
    """A reply that calls these tools in turn, with ids `c0`, `c1`, …"""
    return {"tools": [{"id": f"c{at}", "name": name, "args": [arguments]} for at, name in enumerate(names)]}


class Hostile:
    """One run in a workspace, against a model of its own."""

    def __init__(self, space: Workspace, answering: Answering) -> None:
        self.space, self._answering = space, answering
        self.model: Model

    def words(self, code: str, *replies: Reply, rows: str = "") -> list[str]:
        """The command line of a run with this plugin and these patches; its model gives these replies."""
        self.model = self._answering(*replies)
        self.space.write("plugin.py", code)
        self.space.write("p.yml", (PATCH if code else "") + rows or "[]")
        return ["run", "--patch", "p.yml", "do it"]

    def run(self, code: str, *replies: Reply, rows: str = "") -> Finished:
        done = self.space.run(*self.words(code, *replies, rows=rows))
        self.check(done)
        return done

    def check(self, done: Finished, *, is_closed: bool = True) -> None:
        """What always holds: no traceback; what was begun has its end in the log, and the log verifies."""
        assert "Traceback" not in done.stderr
        kinds = [row["type"] for row in self.rows()]
        pairs = (("turn/start", "turn/end"), ("step/start", "step/end"), ("tool/call", "tool/result"))
        assert is_closed == all(kinds.count(start) == kinds.count(end) for start, end in pairs), kinds
        assert errors_in(self.space) == []

    def goes_on(self) -> None:
        """Another process takes the session up again; its requests are valid, and the log still verifies."""
        [path] = self.space.logs()
        model = self._answering(text("fine"))
        folder = self.space.home / "profiles" / "again"
        folder.mkdir(parents=True)
        (folder / "profile.yml").write_text("bundles: [base]\n")
        (folder / "resumer.py").write_text(RESUMER)
        (folder / "dsh.patch.yml").write_text(AGAIN.format(id=log_rows(path)[0]["id"]))
        done = self.space.run("--profile", "again")
        assert done.code == 0, done
        assert model.bodies()
        for body in model.bodies():
            check_request(body)
        assert errors_in(self.space) == []

    def rows(self) -> list[dict[str, Any]]:
        [path] = self.space.logs()
        return log_rows(path)[1:]

    def results(self) -> list[tuple[str, str | None]]:
        """Text and error code of each result, in order."""
        found = [row["data"] for row in self.rows() if row["type"] == "tool/result"]
        return [
            (_text(data["message"]["content"][0]["content"]), data.get("error", {}).get("code"))
            for data in found
        ]

    def reason(self) -> Any:
        """How the last turn ended."""
        return [row for row in self.rows() if row["type"] == "turn/end"][-1]["data"]["reason"]


def _text(blocks: list[dict[str, Any]]) -> str:
    return "".join(block["text"] if block["type"] == "text" else json.dumps(block) for block in blocks)
