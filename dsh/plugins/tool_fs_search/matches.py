"""What the search program says of each matching line, and how it is shown. Pure."""

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dsh.capabilities.retention import head
from dsh.plugins.tool_fs_search.error import SearchError
from dsh.plugins.tool_fs_search.place import shown_path

NOT_TEXT = "(line is not valid UTF-8)"
GAP = "--"

Found = Mapping[str, Any]
"""`{path, lineNumber, line}`. A match over several lines has them all in `line`, the first one's number."""


def parse_matches(
    stdout: bytes, cwd: str, admits: Callable[[str], bool] = lambda path: True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The matches of the program's JSON lines and the lines around them, both sorted by path and line.

    Args:
        admits: whether a file may be shown, by the path that the program printed.

    Raises:
        SearchError: a record is malformed.
    """
    matches: list[dict[str, Any]] = []
    around: list[dict[str, Any]] = []
    for raw in stdout.split(b"\n"):
        if not raw:
            continue
        try:
            record = json.loads(raw)
            kind = record["type"]
            if kind in ("match", "context"):
                path, found = _found(record["data"], cwd)
                if admits(path):
                    (matches if kind == "match" else around).append(found)
        except (ValueError, KeyError, TypeError) as error:
            raise SearchError(
                "SEARCH_FAILED", f"the search program wrote a malformed record: {error}"
            ) from None
    return sorted(matches, key=_place), sorted(around, key=_place)


def _place(found: Found) -> tuple[str, int]:
    return found["path"], found["lineNumber"]


def _found(data: Mapping[str, Any], cwd: str) -> tuple[str, dict[str, Any]]:
    """The path as it was printed, and the line."""
    number = data["line_number"]
    if type(number) is not int:
        raise ValueError("no line number")
    path, line = data["path"], data["lines"]
    raw = path["text"].encode() if "text" in path else base64.b64decode(path["bytes"])
    name = raw.decode("utf-8", "surrogateescape")
    text = line["text"].removesuffix("\n").removesuffix("\r") if "text" in line else NOT_TEXT
    return name, {"path": shown_path(name, cwd), "lineNumber": number, "line": text}


def cut_line(line: str, max_bytes: int) -> str:
    """The line, cut between characters and marked as such when it is longer than `max_bytes`."""
    kept = head(line, max_bytes)
    return kept.head + " (line truncated)" if kept.omitted_bytes else line


def by_file(matches: Sequence[Found], max_bytes: int) -> list[dict[str, Any]]:
    """The matches grouped as displays want them, lines cut."""
    return [
        {
            "path": path,
            "matches": [
                {"lineNumber": match["lineNumber"], "line": cut_line(match["line"], max_bytes)}
                for match in group
            ],
        }
        for path, group in itertools.groupby(matches, key=lambda match: match["path"])
    ]


def shown_files(
    matches: Sequence[Found], around: Sequence[Found], reach: int, max_bytes: int
) -> Iterator[str]:
    """One text a file: its path, then `Line N: …` for what matches and `Line N- …` for what is around it.

    Args:
        reach: how many lines around a match are shown; with any, a gap between lines is marked.
    """
    nearby = {path: list(group) for path, group in itertools.groupby(around, key=lambda one: one["path"])}
    for path, group in itertools.groupby(matches, key=lambda one: one["path"]):
        rows: dict[int, str] = {}
        wanted: set[int] = set()
        for match in group:
            first = match["lineNumber"]
            lines = cut_line(match["line"], max_bytes).split("\n")
            rows.update((first + at, f"Line {first + at}: {text}") for at, text in enumerate(lines))
            last = first + match["line"].count("\n")
            wanted.update(range(first - reach, first), range(last + 1, last + reach + 1))
        for one in nearby.get(path, ()):
            number = one["lineNumber"]
            if number in wanted and number not in rows:
                rows[number] = f"Line {number}- {cut_line(one['line'], max_bytes)}"
        yield "\n".join([path, *_with_gaps(rows, reach)])


def _with_gaps(rows: Mapping[int, str], reach: int) -> Iterator[str]:
    before: int | None = None
    for number in sorted(rows):
        if reach and before is not None and number > before + 1:
            yield GAP
        yield rows[number]
        before = number
