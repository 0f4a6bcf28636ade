"""What a person is told of a text that is no YAML: where, what is wrong, and how to repair it.

Loaded when there is something to tell. The parser's own words name its states, not the mistake.
"""

import re
from typing import Any, NamedTuple

from dsh.composition.value import QUOTE_EXPRESSION, Mark

_INDENT = "check the indentation"
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a colon where no key can stand",
        f"{_INDENT}; quote a text that holds `: `",
    ),
    (
        "expected '-' indicator",
        "this line belongs neither to the entry above nor to a new one",
        f"{_INDENT}, or start the line with `- `",
    ),
    ("expected key", "this does not belong to the mapping above", _INDENT),
    ("sequence entries are not allowed", "a list cannot start here", "start it on a line of its own"),
    ("unknown escape", "an unknown escape", "write a backslash twice, or use single quotes"),
    ("undefined alias", "an alias of nothing that stands above", "quote it if text is meant"),
    (
        "could not find expected ':'",
        "this is neither a key nor an entry",
        f"{_INDENT}; a blank follows `-` and `:`",
    ),
    ("incompatible YAML document", "another version of YAML than 1.2", "delete the line `%YAML`"),
)
"""Part of the parser's words, ours, and the hint."""
_FORBIDDEN_CHARACTER = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_BEYOND_UNICODE = re.compile(r"\\U(?!0010|000)[0-9A-Fa-f]{8}")


class Problem(NamedTuple):
    """One mistake in a file."""

    text: str
    mark: Mark
    hint: str = ""


def explained(error: Any, text: str, file: str) -> Problem:
    """The mistake behind an error of the parser that knows its marks."""
    words = " ".join(str(error.problem or error.context or error).split())
    mark = Mark.of(error.problem_mark or error.context_mark, file)
    lines = text.split("\n")
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    context = str(error.context or "")
    if "another document" in words:
        problem = "a second document starts here; the file must be one top-level list"
        return Problem(problem, mark, "delete the line `---`")
    if "<document start>" in words:
        if any(above.partition("#")[0].strip() == "[]" for above in lines[: mark.line - 1]):
            problem = "the file must be one top-level list, and the list ends at `[]` above"
            return Problem(problem, mark, "delete the line `[]`")
        problem = "the file must be one top-level list; this does not belong to what stands before"
        return Problem(problem, mark)
    if line[: mark.column].lstrip(" -").startswith("\t") or line.startswith("\t"):
        return Problem("a tab indents this line", mark, "indent with spaces")
    if "!expr" in line:
        return Problem(f"{words} after !expr", mark, QUOTE_EXPRESSION)
    if "quoted scalar" in context and "end of stream" in words:
        return Problem("a quoted text starts here and never ends", Mark.of(error.context_mark, file))
    if "flow" in context and error.context_mark is not None:
        opened = Mark.of(error.context_mark, file)
        if opened != mark:
            kind = "list" if "sequence" in context else "mapping"
            expected = "`,` or `]`" if kind == "list" else "`,` or `}`"
            return Problem(f"the {kind} that starts in line {opened.line} needs {expected} here", mark)
    if "cannot start any token" in words:
        character = line[mark.column - 1 : mark.column]
        return Problem(f"a text cannot start with {character!r}", mark, "quote it")
    for part, ours, hint in _KNOWN:
        if part in words:
            return Problem(ours, mark, hint)
    return Problem(words, mark)


def bad_character(text: str, file: str) -> Problem:
    """The first character that YAML does not allow; the parser gives only its offset."""
    found = _FORBIDDEN_CHARACTER.search(text)
    if found is None:
        beyond = _BEYOND_UNICODE.search(text)
        at = Mark(file, 1, 1) if beyond is None else Mark.at(text, beyond.start(), file)
        return Problem("this cannot be read as YAML" if beyond is None else "an escape beyond Unicode", at)
    mark = Mark.at(text, found.start(), file)
    return Problem(f"the character U+{ord(found[0]):04X} is not allowed", mark)
