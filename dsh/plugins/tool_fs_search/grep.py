"""The tool `grep`: lines that match a regular expression, file by file in order of their paths."""

import asyncio
import base64
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.error import SearchError
from dsh.plugins.tool_fs_search.page import LOST, longest_fitting, with_notes
from dsh.plugins.tool_fs_search.place import require_text, search_root, shown_path, working_directory
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

NOT_TEXT = "(line is not valid UTF-8)"

_MATCH = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "lineNumber": {"type": "integer", "required": True},
        "line": {"type": "string", "required": True},
    },
}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matches": {"type": "array", "items": _MATCH, "required": True},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


def grep_arguments(pattern: str, include: str | None) -> list[str]:
    """Arguments of the search program. Ignore files count and hidden files are left out."""
    return ["--json", f"--regexp={pattern}", *([f"--glob={include}"] if include is not None else [])]


def grep_tool(program: SearchProgram, config: Config) -> ToolDefinition:
    """The definition of `grep`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        pattern, include = args["pattern"], args.get("include")
        if not pattern:
            raise ToolError("pattern must not be empty")
        require_text("pattern", pattern)
        root, cwd = search_root(args), working_directory(execution)
        if include is not None:
            check_include(include)
        output = await program.run(grep_arguments(pattern, include), root, cwd, execution.signal)
        matches = await asyncio.to_thread(parse_matches, output.stdout, cwd)
        return {"matches": matches} | ({"notes": list(output.notes)} if output.notes else {})

    return typed_tool(
        name="grep",
        description=(
            "Search file contents with a regular expression (ripgrep syntax) and return the matching lines "
            "with their numbers, grouped by file. Ignored, hidden and binary files are skipped. Shows at "
            f"most {config.grep_max_matches} matches; narrow with `path` and `include`."
        ),
        parameters={
            "pattern": {"type": "string", "required": True, "description": "The regular expression."},
            "path": {
                "type": "string",
                "description": "File or directory to search; default is the working directory.",
            },
            "include": {
                "type": "string",
                "description": "Only files that match this one glob, such as `*.py` or `*.{ts,tsx}`.",
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


def parse_matches(stdout: bytes, cwd: str) -> list[dict[str, Any]]:
    """The match records of the program's JSON lines, sorted by path and line.

    Raises:
        SearchError: a record is malformed.
    """
    matches = []
    for raw in stdout.split(b"\n"):
        if not raw:
            continue
        try:
            record = json.loads(raw)
            if record["type"] == "match":
                matches.append(_match(record["data"], cwd))
        except (ValueError, KeyError, TypeError) as error:
            raise SearchError(
                "SEARCH_FAILED", f"the search program wrote a malformed record: {error}"
            ) from None
    return sorted(matches, key=lambda match: (match["path"], match["lineNumber"]))


def _match(data: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    number = data["line_number"]
    if type(number) is not int:
        raise ValueError("no line number")
    path, line = data["path"], data["lines"]
    name = path["text"] if "text" in path else base64.b64decode(path["bytes"]).decode("utf-8", "replace")
    text = line["text"].removesuffix("\n").removesuffix("\r") if "text" in line else NOT_TEXT
    return {"path": shown_path(name, cwd), "lineNumber": number, "line": text}


def cut_line(line: str, max_bytes: int) -> str:
    """The line, cut between characters and marked as such when it is longer than `max_bytes`."""
    data = line.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return line
    return data[:max_bytes].decode("utf-8", "ignore") + " (line truncated)"


def _by_file(matches: Sequence[Mapping[str, Any]], config: Config) -> list[dict[str, Any]]:
    return [
        {
            "path": path,
            "matches": [
                {
                    "lineNumber": match["lineNumber"],
                    "line": cut_line(match["line"], config.grep_max_line_bytes),
                }
                for match in group
            ],
        }
        for path, group in itertools.groupby(matches, key=lambda match: match["path"])
    ]


def _render(value: Mapping[str, Any], config: Config) -> str:
    total, page = len(value["matches"]), value["matches"][: config.grep_max_matches]
    notes = list(value.get("notes", ()))
    if not page:
        return with_notes("No matches found", notes)
    if len(page) < total:
        header = f"Found {len(page)} of {total} matches"
        notes.insert(0, f"Showing {len(page)} of {total} matches. {LOST}")
    else:
        header = "Found 1 match" if total == 1 else f"Found {total} matches"
    files = [
        "\n".join([file["path"], *(f"Line {m['lineNumber']}: {m['line']}" for m in file["matches"])])
        for file in _by_file(page, config)
    ]
    return with_notes("\n\n".join([header, *files]), notes)


def _meta(value: Mapping[str, Any], config: Config) -> Any:
    total, page = len(value["matches"]), value["matches"][: config.grep_max_matches]

    def made(count: int) -> dict[str, Any]:
        files = _by_file(page[:count], config)
        return {"shape": "matches", "files": files, "truncated": count < total, "total": total}

    return longest_fitting(len(page), made, config.search_meta_max_bytes)


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs_search import card  # only displays need it

    return card.grep_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs_search import card

    return card.search_result(args, outcome)
