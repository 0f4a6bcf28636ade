"""The tool `glob`: paths of files whose names match a pattern, the newest first."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.page import LOST, longest_fitting, sampled, with_notes
from dsh.plugins.tool_fs_search.place import require_text, search_root, shown_path, working_directory
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

VERSION_CONTROL = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "root": {"type": "string", "required": True},
        "paths": {"type": "array", "items": {"type": "string"}, "required": True},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


def glob_arguments(pattern: str) -> list[str]:
    """Arguments of the search program: all files, hidden and ignored ones too, but no version control."""
    excluded = [f"--glob=!**/{name}{rest}" for name in VERSION_CONTROL for rest in ("", "/**")]
    return ["--files", "--null", f"--glob={pattern}", "--no-ignore", "--hidden", *excluded]


def glob_tool(program: SearchProgram, config: Config) -> ToolDefinition:
    """The definition of `glob`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        pattern, root, cwd = args["pattern"], search_root(args), working_directory(execution)
        if not pattern.strip():
            raise ToolError("pattern must not be blank")
        require_text("pattern", pattern)
        output = await program.run(glob_arguments(pattern), root, cwd, execution.signal)
        found = [os.fsdecode(name) for name in output.stdout.split(b"\0") if name]
        paths = await asyncio.to_thread(newest_first, found, cwd)
        value = {"root": shown_path(root, cwd), "paths": [shown_path(path, cwd) for path in paths]}
        return value | ({"notes": list(output.notes)} if output.notes else {})

    return typed_tool(
        name="glob",
        description=(
            "Find files by name. `pattern` is a glob such as `**/*.py` or `src/*.{ts,tsx}`: without a slash "
            "it is matched against file names at any depth, with one against the path from the working "
            "directory. Hidden and ignored files are included, version control folders are not. Returns "
            f"paths, the most recently changed first, at most {config.glob_max_results}."
        ),
        parameters={
            "pattern": {"type": "string", "required": True, "description": "The glob to match."},
            "path": {
                "type": "string",
                "description": "Directory to search in; default is the working directory.",
            },
        },
        output=ToolOutput(
            _VALUE, lambda args, value: _render(value, config), lambda args, value: _meta(value, config)
        ),
        execute=execute,
        timeout_ms=config.timeout_ms,
        present_call=_call_card,
        present_result=_result_card,
    )


def newest_first(paths: list[str], cwd: str) -> list[str]:
    """By time of the last change, then by path; what has vanished comes last."""

    def age(path: str) -> tuple[int, str]:
        try:
            return -os.stat(os.path.join(cwd, path)).st_mtime_ns, path
        except OSError:
            return 1, path

    return sorted(paths, key=age)


def _page(value: Mapping[str, Any], config: Config) -> list[str]:
    paths = list(value["paths"])
    if len(paths) > config.glob_max_results and config.sample_over_cap_glob_results:
        return sampled(paths, value["root"], config.glob_max_results)
    return paths[: config.glob_max_results]


def _render(value: Mapping[str, Any], config: Config) -> str:
    page, total = _page(value, config), len(value["paths"])
    text = "\n".join(page) or "No files found"
    notes = list(value.get("notes", ()))
    if len(page) < total:
        notes.insert(0, f"Showing {len(page)} of {total} paths. {LOST}")
    return with_notes(text, notes)


def _meta(value: Mapping[str, Any], config: Config) -> Any:
    page, total = _page(value, config), len(value["paths"])

    def made(count: int) -> dict[str, Any]:
        return {"shape": "paths", "paths": page[:count], "truncated": count < total, "total": total}

    return longest_fitting(len(page), made, config.search_meta_max_bytes)


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs_search import card  # only displays need it

    return card.glob_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs_search import card

    return card.search_result(args, outcome)
