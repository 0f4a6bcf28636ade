"""The tool `grep`: lines that match a regular expression, file by file in order of their paths."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.kernel import Context
from dsh.plugins.tool_fs_search.allowed import Allowed, allowed
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.hidden import hidden_below
from dsh.plugins.tool_fs_search.matches import by_file, parse_matches, shown_files
from dsh.plugins.tool_fs_search.options import coverage, named, page_of, parameters, whole_number
from dsh.plugins.tool_fs_search.page import LOST, cut_note, longest_fitting, paging, with_notes
from dsh.plugins.tool_fs_search.place import require_text, search_root, working_directory
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.plugins.tool_fs_search.saving import Listing
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.files import session_policy
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

MAX_CONTEXT = 100
"""Lines that may be asked for on each side of a match."""

_LINES = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "path": {"type": "string", "required": True},
            "lineNumber": {"type": "integer", "required": True},
            "line": {"type": "string", "required": True},
        },
    },
}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matches": {**_LINES, "required": True},
        "around": {**_LINES, "description": "Lines around matches, where they were asked for."},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "pattern": {"type": "string", "required": True, "description": "The regular expression."},
    "path": {
        "type": "string",
        "description": "File or directory to search; default is the working directory.",
    },
    "include": {
        "type": "string",
        "description": (
            "Only files that match this one glob, such as `*.py` or `*.{ts,tsx}`; a hidden or ignored file "
            "that it names is searched, too."
        ),
    },
    "ignore_case": {
        "type": "boolean",
        "description": "Capitals and small letters are the same. Default false.",
    },
    "context": {
        "type": "number",
        "description": f"Lines to show before and after each match, at most {MAX_CONTEXT}. Default 0.",
    },
    "multiline": {
        "type": "boolean",
        "description": "The pattern may match over several lines (`\\n`, `(?s)`). Default false.",
    },
}


def grep_arguments(pattern: str, args: Args) -> list[str]:
    """Arguments of the search program. Ignore files count and hidden files are left out by default."""
    include, reach = args.get("include"), context_of(args)
    return [
        "--json",
        f"--regexp={pattern}",
        *(["--ignore-case"] if args.get("ignore_case") else []),
        *(["--multiline"] if args.get("multiline") else []),
        *([f"--context={reach}"] if reach else []),
        *([named(include)] if include is not None else []),
        *coverage(args, by_default=False),
    ]


def context_of(args: Args) -> int:
    """How many lines around a match are shown.

    Raises:
        ToolError: it is no number of lines.
    """
    reach = whole_number(args, "context", 0)
    if not 0 <= reach <= MAX_CONTEXT:
        raise ToolError(f"context must be between 0 and {MAX_CONTEXT}, got {reach}")
    return reach


def grep_tool(ctx: Context, program: SearchProgram, config: Config) -> ToolDefinition:
    """The definition of `grep`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        pattern, include = args["pattern"], args.get("include")
        if not pattern:
            raise ToolError("pattern must not be empty")
        require_text("pattern", pattern)
        root, cwd = search_root(args), working_directory(execution)
        if include is not None:
            check_include(include)
        page_of(args, config.grep_max_matches)
        arguments = grep_arguments(pattern, args)
        cut_at, signal = program.cut_at(), execution.signal
        hidden = await asyncio.to_thread(hidden_below, session_policy(ctx, execution), root, cwd)
        within = Allowed() if include is None else await allowed(program, args, hidden.root, cwd, signal)
        output = await program.run(arguments, hidden.root, cwd, signal, cut_at)

        def admits(path: str) -> bool:
            return hidden.admits(path) and within.admits(path)

        matches, around = await asyncio.to_thread(parse_matches, output.stdout, cwd, admits)
        value: dict[str, Any] = {"matches": matches}
        if around:
            value["around"] = around
        if notes := dict.fromkeys([*output.notes, *within.notes, *hidden.notes]):
            value["notes"] = list(notes)
        return value

    return typed_tool(
        name="grep",
        description=(
            "Search file contents with a regular expression (ripgrep syntax) and return the matching lines "
            "with their numbers, grouped by file. Ignored, hidden and binary files are skipped. Shows at "
            f"most {config.grep_max_matches} matches; narrow with `path` and `include`."
        ),
        parameters={**_PARAMETERS, **parameters("Matches", config.grep_max_matches, by_default=False)},
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


def grep_listing(config: Config) -> Listing:
    """How the whole list is kept."""

    def whole(args: Args, value: Mapping[str, Any]) -> str:
        return _text(_found(len(value["matches"])), value, value["matches"], args, config) + "\n"

    return Listing(
        file_name="grep-results.txt",
        is_cut=lambda args, value: (
            not args.get("offset") and len(_page(args, value, config)) < len(value["matches"])
        ),
        whole=whole,
        page=lambda args, value, where: _render(args, value, config, where),
    )


def check_include(include: str) -> None:
    """One positive glob.

    Raises:
        ToolError: it is blank, negated, or a list.
    """
    if not include.strip():
        raise ToolError("include must not be blank")
    if include.startswith("!"):
        raise ToolError("include must not start with '!': it names what to search, not what to leave out")
    depth = 0
    for character in include:
        depth += (character == "{") - (character == "}")
        if character == "," and depth <= 0:
            raise ToolError("include takes one glob; write alternatives as *.{ts,tsx}")
    require_text("include", include)


def _page(args: Args, value: Mapping[str, Any], config: Config) -> Sequence[Mapping[str, Any]]:
    page = page_of(args, config.grep_max_matches)
    matches: Sequence[Mapping[str, Any]] = value["matches"]
    return matches[page.offset : page.stop]


def _found(total: int) -> str:
    return "Found 1 match" if total == 1 else f"Found {total} matches"


def _text(
    header: str, value: Mapping[str, Any], shown: Sequence[Mapping[str, Any]], args: Args, config: Config
) -> str:
    reach = context_of(args)
    files = shown_files(shown, value.get("around", ()), reach, config.grep_max_line_bytes)
    return "\n\n".join([header, *files])


def _render(args: Args, value: Mapping[str, Any], config: Config, where: str) -> str:
    total, shown = len(value["matches"]), _page(args, value, config)
    notes = list(value.get("notes", ()))
    if total == 0:
        return with_notes("No matches found", notes)
    header = _found(total)
    if len(shown) < total:
        header = f"Found {len(shown)} of {total} matches"
        page = page_of(args, config.grep_max_matches)
        more = paging(page, len(shown), total)
        notes.insert(0, cut_note(page, f"Showing {len(shown)} of {total} matches.", more, where))
    return with_notes(_text(header, value, shown, args, config), notes)


def _meta(args: Args, value: Mapping[str, Any], config: Config) -> Any:
    total, page = len(value["matches"]), _page(args, value, config)

    def made(count: int) -> dict[str, Any]:
        files = by_file(page[:count], config.grep_max_line_bytes)
        return {"shape": "matches", "files": files, "truncated": count < total, "total": total}

    return longest_fitting(len(page), made, config.search_meta_max_bytes)


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs_search import card  # only displays need it

    return card.grep_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs_search import card

    return card.search_result(args, outcome)
