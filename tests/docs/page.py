"""Runs a document: its named blocks are files, its `console` blocks are commands with what they print.

A block with a name behind its language is written to the working folder (`~/…` to the home) when its turn
comes. In a `console` block, lines that begin with `$ ` run in bash, one after the other; what is below is
what they print, standard error first. `…` alone in a line stands for any lines, inside one for any text.
The working folder is shown as `~/project`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.generate.source import REPOSITORY
from dsh.testing.workspace import Workspace

_BLOCK = re.compile(r"^```([a-z]+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROJECT = "~/project"
TIMEOUT_S = 100.0


class Block(NamedTuple):
    """One fenced block."""

    language: str
    name: str
    """The file it is; empty where the page only shows it."""
    text: str
    line: int


class Step(NamedTuple):
    """A command of a `console` block, and what the page says it prints."""

    command: str
    expected: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def steps(block: Block) -> Iterator[Step]:
    """The commands of a `console` block in order; a line that ends in a backslash goes on."""
    command, at = "", block.line
    expected: list[str] = []
    is_open = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ ") or is_open:
            if not is_open:
                if command:
                    yield Step(command, "\n".join(expected), at)
                command, expected, at = "", [], number
            is_open = line.endswith("\\")
            command += line.removeprefix("$ ") + "\n"
        else:
            expected.append(line)
    if command:
        yield Step(command, "\n".join(expected), at)


def matches(expected: str, printed: str) -> bool:
    """Whether a text is what a page says, `…` standing for anything."""
    lines = (
        r"(?:[^\n]*\n)*" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"\n"
        for line in expected.strip("\n").splitlines()
    )
    return re.fullmatch("".join(lines), printed.strip("\n") + "\n" if printed.strip("\n") else "") is not None


class Reader:
    """Somebody who does what a page says, in a folder and with a home of their own."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.workspace = Workspace(root)
        (self.workspace.home / ".dsh").mkdir()

    def path(self, name: str) -> Path:
        if name.startswith("~/"):
            return self.workspace.home / name.removeprefix("~/")
        return self.workspace.work / name

    def write(self, block: Block) -> None:
        path = self.path(block.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run(self, step: Step) -> str:
        """What the command prints: standard error, then standard output."""
        env = self.workspace.environment({"DSH_HOME": None, "COLUMNS": "100"})
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=self.workspace.work,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return self.shown(done.stderr + done.stdout)

    def shown(self, text: str) -> str:
        """A text as the page shows it, without the folders of this test."""
        work, home = self.workspace.work, self.workspace.home
        for folder in (work.resolve(), work):
            text = text.replace(str(folder), PROJECT)
        for folder in (home.resolve(), home):
            text = text.replace(str(folder), "~")
        return text.replace(str(REPOSITORY), "DSH")

    def follow(self, page: Path) -> list[str]:
        """Do all of it; answers what was not as the page says."""
        wrong = []
        for block in blocks(page):
            if block.language == "console":
                for step in steps(block):
                    printed = self.run(step)
                    if not matches(step.expected, printed):
                        wrong.append(f"{page.name}:{step.line}: {step.command}{printed}")
            elif block.name:
                self.write(block)
        return wrong
