"""Paths of a search: where it starts, and how what it found is shown."""

import os

from dsh.tools.definition import Args
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution

HERE = "."


def working_directory(execution: ToolExecution) -> str:
    """The session's directory, else the process's."""
    return execution.cwd or os.getcwd()


def search_root(args: Args) -> str:
    """The `path` argument, the working directory when absent. ripgrep needs one: else it may read stdin.

    Raises:
        ToolError: it is blank.
    """
    path: str = args.get("path", HERE)
    if not path.strip():
        raise ToolError("path must not be blank")
    return path


def require_text(name: str, value: str) -> None:
    """Raises `ToolError` for what no command line can hold."""
    if "\0" in value:
        raise ToolError(f"{name} must not hold a NUL character")


def shown_path(path: str, cwd: str) -> str:
    """Relative to the working directory where it lies below it, else as it was found; valid Unicode."""
    path = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace").removeprefix("./")
    if not path.startswith("/"):
        return path
    if path == cwd:
        return HERE
    return path.removeprefix(cwd.rstrip("/") + "/")
