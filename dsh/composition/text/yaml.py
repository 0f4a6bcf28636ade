"""Reads composition files: YAML 1.2's JSON schema plus `!expr`, with a place for every value.

The only module that imports ruamel.yaml. It takes the parser's nodes and makes values by the table of
`spec/composition.md` §1.1 itself: the library's own readings (dates, `1_000`, `<<`, dropped duplicates)
are other ones.
"""

import math
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.resolver import Resolver
from ruamel.yaml.tag import Tag

from dsh.composition.text.source import MAX_BYTES, MAX_SLOW_CHARACTERS, read_bytes
from dsh.composition.value import QUOTE_EXPRESSION, Expr, Map, Mark, MarkedError, Seq
from dsh.errors import CompositionError

MAX_DEPTH = 100
MAX_VALUES = 200_000
"""How many values one file may come to once its aliases are written out."""
MAX_CHARACTERS = 16 * MAX_BYTES
"""And how many characters its texts."""
MAX_DIGITS = 400
MAX_TAG = 64 * 1024
"""Longest tag, in characters: the fast parser takes the square of its length."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = "plain"
_INT = re.compile(r"[-+]?(?:0b[01]+|0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_SLOW_KNOWS_BETTER = (
    "found unexpected ':'",  # inside a plain flow scalar: `{name: cordis:group}`
    "did not find expected node content",
    "found invalid Unicode character escape code",  # half of a pair, as JSON escapes what needs two
)
"""Problems of the fast parser with what the slow one reads."""
_LONG_WORD = re.compile(rf"(?<!\S)\S{{{MAX_TAG},}}")
_TAG_START = re.compile(r"(?:\A|(?<=[\[{,]))!")
_NON_SPECIFIC = re.compile(r"(?:&\S+\s+)?!(?=\s)")
"""What stands before a plain scalar that is text whatever it looks like: `! 12`."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTE_TEXT = "quote it if text is meant"
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])


class YamlError(MarkedError):
    """A file cannot be read as YAML of our dialect."""


class _Resolver(Resolver):
    """Tells a plain scalar from a quoted or tagged one, and counts depth before the parser recurses."""

    def __init__(self, version: Any = None, loadumper: Any = None, loader: Any = None) -> None:
        super().__init__(loadumper or loader)
        self.depth = 0

    @property
    def processing_version(self) -> tuple[int, int]:
        """Whatever `%YAML` says: the scanner's rules are those of 1.2."""
        return (1, 2)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Tag:
        if kind is ScalarNode:
            return Tag(suffix=_PLAIN if implicit[0] else _TAG + "str")
        return Tag(suffix=_TAG + ("seq" if kind is SequenceNode else "map"))

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _TooDeep(current_node.start_mark if current_node is not None else None)

    def ascend_resolver(self) -> None:
        self.depth -= 1


class _TooDeep(Exception):
    def __init__(self, mark: Any) -> None:
        self.mark = mark


def read_yaml(path: Path, *, missing_ok: bool = False) -> Any:
    """The value of a YAML file; None for one that is empty or holds comments only, or may be missing and is.

    Raises:
        CompositionError: it cannot be opened, or is not of our dialect (`YamlError`, with its place).
    """
    try:
        data = read_bytes(path)
    except (OSError, ValueError) as error:
        if missing_ok and isinstance(error, FileNotFoundError):
            return None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CompositionError(f"failed to read {path}: {reason}") from None
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, file: str) -> Any:
    """The value of a YAML text. `file` names it in places and messages.

    Raises:
        YamlError: with the place and, where there is one, the way to repair it.
    """
    if len(data) > MAX_BYTES:
        raise YamlError(f"the file is larger than {MAX_BYTES} bytes", Mark(file, 1, 1))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        mark = Mark.at(before, len(before), file)
        raise YamlError("not UTF-8 text", mark, hint="save the file as UTF-8") from None
    text = text.removeprefix("\ufeff")
    _refuse_long_tags(text, file)
    try:
        node = _composed(text, file)
    except MarkedYAMLError as error:
        from dsh.composition.text.problem import explained

        problem = explained(error, text, file)
        raise YamlError(problem.text, problem.mark, hint=problem.hint) from None
    except _TooDeep as error:
        raise YamlError(f"nested more than {MAX_DEPTH} levels deep", Mark.of(error.mark, file)) from None
    except (YAMLError, ValueError, OverflowError, AssertionError):  # the slow parser: escapes beyond Unicode
        from dsh.composition.text.problem import bad_character

        problem = bad_character(text, file)
        raise YamlError(problem.text, problem.mark) from None
    return None if node is None else _Construction(file, text).value(node)


def _refuse_long_tags(text: str, file: str) -> None:
    for word in _LONG_WORD.finditer(text):
        tag = _TAG_START.search(word[0])
        if tag is not None and len(word[0]) - tag.start() >= MAX_TAG:
            mark = Mark.at(text, word.start() + tag.start(), file)
            raise YamlError(f"a tag of {MAX_TAG} characters or more", mark, hint=_QUOTE_TEXT)


def _composed(text: str, file: str) -> Any:
    """The root node: of the fast parser, where it can, else of the slow one.

    Raises:
        YamlError: only the slow one could read the text, and it is too long for it.
    """
    try:
        return _parser(pure=False).compose(text)
    except MarkedYAMLError as error:
        if error.problem not in _SLOW_KNOWS_BETTER:
            raise
        if len(text) > MAX_SLOW_CHARACTERS:
            raise YamlError(
                f"a file of more than {MAX_SLOW_CHARACTERS} characters cannot have this",
                Mark.of(error.problem_mark, file),
                hint="quote each text that holds a colon, and write characters instead of escapes",
            ) from None
    return _parser(pure=True).compose(text)


def _parser(*, pure: bool) -> YAML:
    yaml = YAML(typ="safe", pure=pure)
    yaml.Resolver = _Resolver
    return yaml


class _Construction:
    """Makes values of nodes; counts them, and knows which aliases and rows it is inside of."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text
        self._count = 0
        self._characters = 0
        self._open: set[int] = set()
        self._rows: list[str] = []

    def value(self, node: Any) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._error(node, f"more than {MAX_VALUES} values once aliases are written out")
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        tag = str(node.tag)
        if tag not in (_TAG + "seq", _TAG + "map"):
            raise self._unknown_tag(node, tag)
        if id(node) in self._open:
            raise self._error(node, "an alias that stands inside its own anchor")
        self._open.add(id(node))
        made = self._sequence(node) if isinstance(node, SequenceNode) else self._mapping(node)
        self._open.discard(id(node))
        return made

    def _sequence(self, node: SequenceNode) -> Seq:
        if str(node.tag) != _TAG + "seq":
            raise self._error(node, "a list cannot be tagged as a mapping")
        made = Seq(self._at(node))
        for item in node.value:
            made.items_at.append(self._at(item))
            made.append(self.value(item))
        return made

    def _mapping(self, node: MappingNode) -> Map:
        if str(node.tag) != _TAG + "map":
            raise self._error(node, "a mapping cannot be tagged as a list")
        made = Map(self._at(node))
        row = next((v.value for k, v in node.value if k.value == "id" and isinstance(v, ScalarNode)), None)
        if row is not None:
            self._rows.append(str(row))
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in made:
                raise self._error(
                    key_node, f"the key {key!r} stands twice; first in line {made.keys_at[key].line}"
                )
            made.keys_at[key] = self._at(key_node)
            made.values_at[key] = self._at(value_node)
            made[key] = self.value(value_node)
        if row is not None:
            self._rows.pop()
        return made

    def _key(self, node: Any) -> str:
        if not isinstance(node, ScalarNode):
            raise self._error(node, "a key must be a scalar")
        key = self._scalar(node)
        if isinstance(key, str):
            return key
        if isinstance(key, Expr):
            raise self._error(node, "a key cannot be an expression", hint=QUOTE_EXPRESSION)
        if key is None or isinstance(key, bool):
            return "null" if key is None else str(key).lower()
        return str(key)

    def _scalar(self, node: ScalarNode) -> Any:
        tag, text = str(node.tag), str(node.value)
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise self._error(node, f"more than {MAX_CHARACTERS} characters once aliases are written out")
        if not text.isascii() and _SURROGATE.search(text):
            text = self._whole(node, text)
        is_quoted = node.style in ("'", '"', "|", ">")
        if tag == _PLAIN and not is_quoted and not self._is_non_specific(node):
            return self._plain(node, text)
        if tag in (_TAG + "str", _PLAIN):
            return text
        if tag == "!expr":
            return self._expression(node, text)
        if tag == _TAG + "null" and text in _NULLS:
            return None
        if tag == _TAG + "bool" and text in _BOOLS:
            return _BOOLS[text]
        if tag == _TAG + "int" and _INT.match(text):
            return self._integer(node, text)
        if tag == _TAG + "float" and (_FLOAT.match(text) or _NOT_FINITE.match(text)):
            return self._number(node, text)
        raise self._unknown_tag(node, tag)

    def _is_non_specific(self, node: ScalarNode) -> bool:
        """Whether a lone `!` makes a plain scalar text. Neither parser tells; nothing plain starts so."""
        return _NON_SPECIFIC.match(self._text, node.start_mark.index) is not None

    def _whole(self, node: ScalarNode, text: str) -> str:
        """The text with each pair of escapes as the one character it means."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error(node, "half of a surrogate pair is no text") from None

    def _plain(self, node: ScalarNode, text: str) -> Any:
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        if _INT.match(text):
            return self._integer(node, text)
        if _FLOAT.match(text) or _NOT_FINITE.match(text):
            return self._number(node, text)
        return text

    def _integer(self, node: ScalarNode, text: str) -> int:
        if len(text) > MAX_DIGITS:
            raise self._error(node, f"an integer of more than {MAX_DIGITS} digits", hint=_QUOTE_TEXT)
        digits = text.lstrip("+-")
        base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2], 10)
        number = int(digits[2:] if base != 10 else digits, base)
        return -number if text.startswith("-") else number

    def _number(self, node: ScalarNode, text: str) -> int | float:
        number = math.inf if _NOT_FINITE.match(text) else float(text)
        if not math.isfinite(number):
            raise self._error(node, f"{text} is not a finite number", hint=_QUOTE_TEXT)
        return int(number) if number.is_integer() else number

    def _expression(self, node: ScalarNode, text: str) -> Expr:
        if not text.strip():
            raise self._error(node, "!expr without an expression")
        return Expr(text, self._at(node))

    def _unknown_tag(self, node: Any, tag: str) -> YamlError:
        shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        if tag == _TAG + "js":
            from dsh.composition.expression.legacy_js import as_scalar, expression_for

            row = f" (row {self._rows[-1]!r})" if self._rows else ""
            ours = expression_for(node.value) if isinstance(node, ScalarNode) else None
            hint = f"write: !expr {as_scalar(ours)}" if ours else "write a Python expression: !expr …"
            return self._error(node, f"!!js is not run here{row}; expressions are tagged !expr", hint=hint)
        if tag == "!expr":
            return self._error(
                node, "a list or mapping follows !expr, which takes text", hint=QUOTE_EXPRESSION
            )
        if tag in (_TAG + "null", _TAG + "bool", _TAG + "int", _TAG + "float"):
            return self._error(node, f"this does not fit its tag {shown}")
        return self._error(node, f"unknown tag {shown}")

    def _at(self, node: Any) -> Mark:
        return Mark.of(node.start_mark, self._file)

    def _error(self, node: Any, problem: str, *, hint: str = "") -> YamlError:
        return YamlError(problem, self._at(node), hint=hint)
