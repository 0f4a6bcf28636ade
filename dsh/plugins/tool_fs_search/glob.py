"""The tool `glob`: paths of files whose names match a pattern, the newest first."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.kernel import Context
from dsh.plugins.tool_fs_search.allowed import allowed
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.hidden import hidden_below
from dsh.plugins.tool_fs_search.options import coverage, named, page_of, parameters
from dsh.plugins.tool_fs_search.page import LOST, cut_note, longest_fitting, paging, sampled, with_notes
from dsh.plugins.tool_fs_search.place import require_text, search_root, shown_path, working_directory
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.plugins.tool_fs_search.saving import Listing
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.files import session_policy
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "root": {"type": "string", "required": True},
        "paths": {"type": "array", "items": {"type": "string"}, "required": True},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


def glob_arguments(pattern: str, args: Args) -> list[str]:
    """Arguments of the search program: all files, hidden and ignored ones too unless the call says no."""
    return [named(pattern), *coverage(args, by_default=True)]


def glob_tool(ctx: Context, program: SearchProgram, config: Config) -> ToolDefinition:
    """The definition of `glob`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        pattern, root, cwd = args["pattern"], search_root(args), working_directory(execution)
        if not pattern.strip():
            raise ToolError("pattern must not be blank")
        require_text("pattern", pattern)
        page_of(args, config.glob_max_results)
        cut_at, signal = program.cut_at(), execution.signal
        hidden = await asyncio.to_thread(hidden_below, session_policy(ctx, execution), root, cwd)
        within = await allowed(program, args, hidden.root, cwd, signal)
        found = await program.paths(glob_arguments(pattern, args), hidden.root, cwd, signal, cut_at)

        def listed() -> list[str]:
            admitted = [path for path in found.paths if hidden.admits(path) and within.admits(path)]
            return [shown_path(path, cwd) for path in newest_first(admitted, cwd)]

        value = {"root": shown_path(hidden.root, cwd), "paths": await asyncio.to_thread(listed)}
        notes = list(dict.fromkeys([*found.notes, *within.notes, *hidden.notes]))
        return value | ({"notes": notes} if notes else {})

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
            **parameters("Paths", config.glob_max_results, by_default=True),
        },
        output=ToolOutput(
            _VALUE,
            lambda args, value: _render(args, value, config, LOST),
            lambda args, value: _meta(args, value, config),
        ),
        execute=execute,
        timeout_ms=config.timeout_ms,
        present_call=_call_card,
        present_result=_result_card,
    )


def glob_listing(config: Config) -> Listing:
    """How the whole list is kept."""
    return Listing(
        file_name="glob-results.txt",
        is_cut=lambda args, value: (
            not args.get("offset") and len(_page(args, value, config)) < len(value["paths"])
        ),
        whole=lambda args, value: "\n".join([*value["paths"], ""]),
        page=lambda args, value, where: _render(args, value, config, where),
    )


def newest_first(paths: list[str], cwd: str) -> list[str]:
    """By time of the last change, then by path; what has vanished comes last."""

    def age(path: str) -> tuple[int, str]:
        try:
            return -os.stat(os.path.join(cwd, path)).st_mtime_ns, path
        except OSError:
            return 1, path

    return sorted(paths, key=age)


def _page(args: Args, value: Mapping[str, Any], config: Config) -> list[str]:
    page, paths = page_of(args, config.glob_max_results), list(value["paths"])
    if config.sample_over_cap_glob_results and page.offset == 0 and len(paths) > page.limit:
        return sampled(paths, value["root"], page.limit)
    return paths[page.offset : page.stop]


def _render(args: Args, value: Mapping[str, Any], config: Config, where: str) -> str:
    shown, total = _page(args, value, config), len(value["paths"])
    notes = list(value.get("notes", ()))
    if len(shown) < total:
        page = page_of(args, config.glob_max_results)
        is_sample = config.sample_over_cap_glob_results and page.offset == 0
        more = "" if is_sample else paging(page, len(shown), total)
        notes.insert(0, cut_note(page, f"Showing {len(shown)} of {total} paths.", more, where))
    return with_notes("\n".join(shown) or ("No files found" if total == 0 else "No more files"), notes)


def _meta(args: Args, value: Mapping[str, Any], config: Config) -> Any:
    page, total = _page(args, value, config), len(value["paths"])

    def made(count: int) -> dict[str, Any]:
        return {"shape": "paths", "paths": page[:count], "truncated": count < total, "total": total}

    return longest_fitting(len(page), made, config.search_meta_max_bytes)


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs_search import card  # only displays need it

    return card.glob_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs_search import card

    return card.search_result(args, outcome)
