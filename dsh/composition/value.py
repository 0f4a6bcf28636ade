"""YAML values that know where they were written, and errors that say so.

Everything is plain JSON data (`dict`, `list`, `str`, `int`, `float`, `bool`, `None`) but for `Expr`.
"""

from typing import Any, NamedTuple

from dsh.errors import CompositionError

QUOTE_EXPRESSION = 'put the whole expression in double quotes: !expr "…"'
"""The hint where YAML reads something else than the text of an expression."""
MAX_PROBLEM = 2_000
"""How long a message gets that quotes what is written."""
MAX_SHOWN = 120
"""How many characters of an expression a message shows."""


class Mark(NamedTuple):
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def at(cls, text: str, position: int, file: str) -> "Mark":
        """The place of a character, counted from 0."""
        before = text[:position]
        return cls(file, before.count("\n") + 1, len(before) - before.rfind("\n"))

    @classmethod
    def of(cls, parsed: Any, file: str) -> "Mark":
        """The place that a mark of the parser means, which counts from 0; without one the file's start."""
        return cls(file, 1, 1) if parsed is None else cls(file, parsed.line + 1, parsed.column + 1)


class MarkedError(CompositionError):
    """Something is written wrongly. `mark` is where, `problem` says what without the place."""

    def __init__(self, problem: str, mark: Mark, *, hint: str = "") -> None:
        self.problem = problem if len(problem) <= MAX_PROBLEM else problem[: MAX_PROBLEM - 1] + "…"
        self.mark = mark
        super().__init__(f"{mark}: {self.problem}", hint=hint)


class Expr:
    """A tagged `!expr` scalar: source text and place. Compared by text, so that a dump equals its rows."""

    __slots__ = ("checked", "mark", "text")

    def __init__(self, text: str, mark: Mark) -> None:
        self.text = text
        self.mark = mark
        self.checked: Any = None
        """Its parsed form (`language.Checked`) once it was judged where it stands."""

    @property
    def shown(self) -> str:
        """How messages show it: tagged, on one line, cut where it is long."""
        text = " ".join(self.text.split())
        return f"!expr {text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + '…'}"

    def __repr__(self) -> str:
        return f"Expr({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Map(dict[str, Any]):
    """A mapping that knows its own place, those of its keys and those of their values."""

    __slots__ = ("keys_at", "mark", "values_at")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.keys_at: dict[str, Mark] = {}
        self.values_at: dict[str, Mark] = {}

    def key_at(self, key: str) -> Mark:
        """Where the key is written; the place of the mapping if it is not from a file."""
        return self.keys_at.get(key, self.mark)

    def value_at(self, key: str) -> Mark:
        """Where the value of the key starts."""
        return self.values_at.get(key, self.mark)


class Seq(list[Any]):
    """A list that knows its own place and those of its items."""

    __slots__ = ("items_at", "mark")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.items_at: list[Mark] = []

    def item_at(self, index: int) -> Mark:
        return self.items_at[index] if index < len(self.items_at) else self.mark


def copied(value: Any) -> Any:
    """A deep copy that keeps places. Expressions and scalars are shared: they never change."""
    if isinstance(value, Map):
        twin = type(value)(value.mark)
        twin.keys_at, twin.values_at = dict(value.keys_at), dict(value.values_at)
        for key, item in value.items():
            twin[key] = copied(item)
        return twin
    if isinstance(value, Seq):
        listed = Seq(value.mark)
        listed.items_at = list(value.items_at)
        listed.extend(copied(item) for item in value)
        return listed
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def type_name(value: Any) -> str:
    """What a message calls this kind of value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Expr):
        return "an expression"
    return "a mapping" if isinstance(value, dict) else "a list"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    """The text as a JSON string, which is also a double-quoted YAML scalar."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF):
        return f"\\u{code:04x}"
    return char
