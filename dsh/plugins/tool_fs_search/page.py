"""Which of too many results are shown, and how much of them the log keeps. Pure."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from dsh.plugins.tool_fs_search.options import Page

LOST = "The full list could not be saved; narrow the pattern or the path."


def sampled(paths: Sequence[str], root: str, cap: int) -> list[str]:
    """At most `cap` paths, taken in turn from each folder (or file) directly below `root`.

    Groups and their members keep the order in which they came; the result is grouped.
    """
    groups: dict[str, list[str]] = {}
    for path in paths:
        below = path.removeprefix(root.rstrip("/") + "/")
        groups.setdefault(below.split("/", 1)[0], []).append(path)
    shares = dict.fromkeys(groups, 0)
    left = min(cap, len(paths))
    while left > 0:
        for name, members in groups.items():
            if left > 0 and shares[name] < len(members):
                shares[name] += 1
                left -= 1
    return [path for name, members in groups.items() for path in members[: shares[name]]]


def longest_fitting(count: int, make: Callable[[int], Any], max_bytes: int) -> Any:
    """`make(n)` for the largest n up to `count` whose JSON has at most `max_bytes`, but at least one item."""
    low, high = min(1, count), count
    while low < high:
        middle = (low + high + 1) // 2
        if _size(make(middle)) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return make(low)


def paging(page: Page, shown: int, total: int) -> str:
    """How to come to the results after those that are shown."""
    if shown == 0:
        return f"Offset {page.offset} is beyond the last one."
    last = page.offset + shown
    return f"Use offset={last} to see more." if last < total else "These are the last ones."


def cut_note(page: Page, shown: str, more: str, where: str) -> str:
    """The note on a page that lacks results. Only that of the first page says where all of them are."""
    return " ".join(part for part in (shown, more, where if page.offset == 0 else "") if part)


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The text with each note as a parenthesised line at its end."""
    return "\n".join([text, "", *(f"({note})" for note in notes)]) if notes else text


def _size(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass"))
