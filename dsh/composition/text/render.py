"""Writes values as YAML of our dialect, in lines of their own or in brackets."""

import re
from typing import Any, NamedTuple

from dsh.composition.value import Expr, quoted

_FIRST = re.compile(r"[A-Za-z_./<\xa1-\ud7ff]")
"""What a plain text may start with; a digit or a sign might make it a number."""
_VERSION_LIKE = re.compile(r"[0-9]+\.[0-9]+\.[0-9.]*[0-9]\Z")
_NUMBER_LIKE = re.compile(r"\.[0-9]|\.(?:inf|nan)\Z", re.IGNORECASE)
_WORDS = frozenset(["true", "false", "null", "<<", "..."])
_IN_BRACKETS = re.compile(r"[,\[\]{}:?]")
"""What ends a plain text there, for at least one of the parsers in use."""
_LITERAL = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that a literal block cannot hold."""
_LONGEST_KEY = 120
"""YAML reads a key of 1,024 characters at most, unless it stands on a line of its own."""


class Layout(NamedTuple):
    """How a file is written."""

    map_indent: int = 2
    """Of a mapping inside a mapping."""
    list_indent: int = 2
    """Of the dashes of a list inside a mapping: 0 or more."""
    has_literals: bool = False
    """Whether a text of several lines stands as it is, behind a `|`."""


def scalar(value: Any, *, in_brackets: bool = False, style: str = "") -> str:
    """A scalar, or an empty collection. `style` is the quote that stands there already: it is kept."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Expr):
        return f"!expr {expression(value.text, in_brackets=in_brackets)}"
    if isinstance(value, str):
        return text(value, in_brackets=in_brackets, style=style)
    return "[]" if isinstance(value, list) else "{}"


def text(value: str, *, in_brackets: bool = False, style: str = "") -> str:
    """A string: plain where nothing else could be read from it, else quoted."""
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return value if style != '"' and _is_plain(value, in_brackets) else quoted(value)


def _is_plain(value: str, in_brackets: bool) -> bool:
    if not value.isprintable() or value != value.strip() or value.lower() in _WORDS:
        return False
    if not _FIRST.match(value) or _NUMBER_LIKE.match(value):
        return bool(_VERSION_LIKE.match(value))
    if in_brackets and _IN_BRACKETS.search(value):
        return False
    return ": " not in value and " #" not in value and not value.endswith(":")


def expression(source: str, *, in_brackets: bool = False) -> str:
    """The text of an `!expr`: verbatim where YAML takes it plain, else in double quotes."""
    is_plain = re.match(r"[A-Za-z0-9_(]", source) and source.isprintable() and source == source.strip()
    if not is_plain or ": " in source or " #" in source or source.endswith(":"):
        return quoted(source)
    return quoted(source) if in_brackets and _IN_BRACKETS.search(source) else source


def inline(value: Any, *, style: str = "") -> str:
    """Any value in brackets, on one line."""
    if isinstance(value, dict) and value:
        pairs = (f"{text(key, in_brackets=True)}: {inline(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list) and value:
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return scalar(value, in_brackets=True, style=style)


def entry(key: str, value: Any, layout: Layout) -> list[str]:
    """The lines of one key of a mapping, relative to that mapping's column."""
    written = text(key)
    if len(written) > _LONGEST_KEY:
        first, *others = item(value, layout)
        return [f"? {written}", f":{first.removeprefix('-')}", *others]
    if is_block(value):
        return [f"{written}:", *under_key(value, layout)]
    first, *others = _lines(value, layout)
    return [f"{written}: {first}", *("  " + line if line else "" for line in others)]


def under_key(value: Any, layout: Layout) -> list[str]:
    """The lines of a non-empty collection below its key, relative to the key's column."""
    width = layout.list_indent if isinstance(value, list) else layout.map_indent
    return [" " * width + line if line else "" for line in block(value, layout)]


def item(value: Any, layout: Layout) -> list[str]:
    """The lines of one item of a list, dash included, relative to the dash's column."""
    first, *others = block(value, layout) if is_block(value) else _lines(value, layout)
    return [f"- {first}", *("  " + line if line else "" for line in others)]


def block(value: Any, layout: Layout) -> list[str]:
    """The lines of a non-empty collection, relative to its own column."""
    if isinstance(value, list):
        return [line for one in value for line in item(one, layout)]
    return [line for key, one in value.items() for line in entry(key, one, layout)]


def is_block(value: Any) -> bool:
    """Whether a value takes lines of its own."""
    return isinstance(value, dict | list) and bool(value)


def _lines(value: Any, layout: Layout) -> list[str]:
    """A value that starts behind its key or dash; what follows is relative to the column of that."""
    if layout.has_literals and isinstance(value, str) and _is_literal(value):
        return [f"|{'' if value.endswith(chr(10)) else '-'}", *value.removesuffix("\n").split("\n")]
    return [scalar(value)]


def _is_literal(value: str) -> bool:
    """Whether a text is easier to read, and safe, as a literal block."""
    if "\n" not in value.rstrip("\n") or value.endswith("\n\n") or _LITERAL.search(value):
        return False
    first = value.split("\n", 1)[0]
    return bool(first) and not first.startswith(" ")
