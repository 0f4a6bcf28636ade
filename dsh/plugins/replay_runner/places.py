"""The two directories of a live replay: where the session was recorded, and where its tools work now.

Both stand in texts and, escaped, in the JSON of arguments.
"""

import json
import re
from collections.abc import Callable

from dsh.unicode import valid

SAME = "<directory>"
_SPILLED = re.compile(r"[^\s'\"\]\)]*/dsh-(?:tmp|subprocess|spill)-[^\s'\"\]\)]*")


def moves(recorded: str | None, directory: str | None) -> Callable[[str], str] | None:
    """Puts the second directory in place of the first in JSON text; None where nothing is to be moved.

    The root directory is never moved: every path begins so.
    """
    if not directory or not recorded or recorded in (directory, "/"):
        return None
    found, there = _pattern(recorded), json.dumps(valid(directory))[1:-1]
    return lambda text: found.sub(lambda _: there, text)


def masks(recorded: str | None, directory: str | None) -> Callable[[str], str]:
    """Makes the two directories one; where output was spilled to is chance."""
    if not directory or not recorded:
        return lambda text: text
    found = _pattern(*({recorded, directory} - {"/"} or {SAME}))
    return lambda text: _SPILLED.sub("<spilled>", found.sub(SAME, text))


def _pattern(*paths: str) -> re.Pattern[str]:
    """Finds the paths as they are and as JSON, but no other name that only begins so."""
    forms = {form for path in paths for form in (path, *_escaped(path))}
    longest_first = sorted(map(re.escape, forms), key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(longest_first)})(?![\w-]|\.\w)")


def _escaped(path: str) -> tuple[str, str]:
    return json.dumps(path)[1:-1], json.dumps(path, ensure_ascii=False)[1:-1]
