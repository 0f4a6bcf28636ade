"""What the program itself says: help texts, flags, exit codes, the variables it reads."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

from docs.generate.markdown import code, fenced, table
from docs.generate.schema import keys_of
from docs.generate.source import REPOSITORY, loaded, module_names, texts
from dsh.capabilities.headless import USAGE
from dsh.cli import app as typer_app
from dsh.cli.process import EXIT_CODES
from dsh.cli.sessions.commands import add_commands
from dsh.composition.explain.shape import Explanation
from dsh.errors import PIPE_CLOSED, DshError

WIDTH = "100"
_VARIABLE = re.compile(r"\bDSH_[A-Z][A-Z_]*[A-Z]\b")


@cache
def commands() -> dict[str, Any]:
    """Every command by its words (`sessions inspect`), the launcher itself under no words."""
    import typer.main

    made: dict[str, Any] = {}
    add_commands(typer_app.sessions)

    def walk(command: Any, words: str) -> None:
        made[words] = command
        for name, child in getattr(command, "commands", {}).items():
            walk(child, f"{words} {name}".strip())

    walk(typer.main.get_command(typer_app.app), "")
    return made


def _is_group(words: str) -> bool:
    return hasattr(commands()[words], "commands")


@cache
def help_of(words: str) -> str:
    """What `dsh WORDS --help` prints, at a fixed width."""
    if words == "run":
        return USAGE
    output = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}),
        contextlib.redirect_stdout(output),
    ):
        typer_app.run([*words.split(), "--help"])
    return "\n".join(line.rstrip() for line in output.getvalue().strip().splitlines())


def help_pages() -> str:
    """The help of every command that does something, and of the launcher."""
    parts = []
    for words in commands():
        if words and _is_group(words):
            continue
        title = f"dsh {words}".strip()
        parts.append(f"### {title}\n\n{fenced(help_of(words), 'text')}")
    return "\n".join(parts)


def explain_shape() -> str:
    """The keys of what `dsh explain --json` prints. A place is shown once, as the origin of a row."""
    keys = [key for key in keys_of(Explanation) if ".place." not in key.path]
    return table(("key", "type", "meaning"), [(code(key.path), key.kind, key.meaning) for key in keys])


def flags() -> Iterator[tuple[str, str]]:
    """Every command's words with each of its options, in every spelling."""
    for words, command in commands().items():
        for param in command.params:
            for spelling in (*param.opts, *param.secondary_opts):
                if spelling.startswith("-"):
                    yield words, spelling
    for spelling in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", USAGE):
        yield "run", spelling


def exit_codes() -> dict[int, str]:
    """Every code the program may end with on its own account, and an error or signal that gives it."""
    for module in module_names():
        if not module.startswith("dsh.testing"):
            loaded(module)
    made = {0: "success", PIPE_CLOSED: "a closed pipe"}
    made.update({code: f"signal {number}" for number, code in EXIT_CODES.items()})
    for cls in _subclasses(DshError):
        made.setdefault(cls.exit_code, cls.__name__)
    return made


def _subclasses(cls: type[DshError]) -> Iterator[type[DshError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__.startswith("dsh."):
            yield from _subclasses(child)


def variables() -> set[str]:
    """Every `DSH_` variable that the program or a shipped bundle names."""
    found = {name for module in module_names() for text in texts(module) for name in _VARIABLE.findall(text)}
    for file in (REPOSITORY / "bundles").glob("*.yml"):
        found |= set(_VARIABLE.findall(file.read_text(encoding="utf-8")))
    return found
