"""Arguments of a call, from the model's raw text to what a typed tool may rely on."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.tools.error import ToolArgsError
from dsh.tools.schema import Schema, admits_null, validate
from dsh.unicode import valid

ROOT = "arguments"


class ParsedArguments(msgspec.Struct, frozen=True):
    """What the text says, or the text itself with the reason why it says nothing."""

    value: Any
    problem: str = ""


def parse_arguments(raw: str) -> ParsedArguments:
    """Read a model's arguments. Empty is `{}`; what is no JSON comes back as text with the parser's word.

    Strict: no NaN, no infinity, no number beyond a double's range. A repeated key's last value wins,
    `-0.0` is 0, an escaped lone surrogate becomes U+FFFD. Never raises.
    """
    if not raw:
        return ParsedArguments({})
    try:
        return ParsedArguments(_cleaned(_DECODER.decode(raw), raw))
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").removesuffix(" starting")
        found = f"{what} at line {error.lineno}, column {error.colno}"
    except _NoNumber as error:
        found = f"{error} at {error.place_in(raw)}"
    except RecursionError:
        found = "it is nested too deeply"
    return ParsedArguments(raw, f"the text is not valid JSON: {found}")


def check_arguments(schema: Schema, arguments: Any, problem: str = "") -> Mapping[str, Any]:
    """The arguments as a typed tool gets them: null for an optional property that admits none is dropped.

    Raises:
        ToolArgsError: they do not fit; the message lists each violation.
    """
    arguments = without_nulls(schema, arguments)
    violations = validate(schema, arguments, ROOT)
    if violations:
        if problem:
            violations[0] += f"; {problem}"
        raise ToolArgsError(violations)
    fitting: Mapping[str, Any] = arguments
    return fitting


def without_nulls(schema: Schema, value: Any) -> Any:
    """A copy without the nulls that mean "absent"; the value itself where it holds no null at all."""
    if not _holds_null(value):
        return value
    top: list[Any] = [value]
    stack: list[tuple[Schema, Any, Any]] = [(schema, top, 0)]
    while stack:
        node, holder, key = stack.pop()
        item = holder[key]
        if node.get("type") == "object" and isinstance(item, Mapping):
            declared, required = node.get("properties", {}), node.get("required", ())
            holder[key] = kept = {
                name: part
                for name, part in item.items()
                if part is not None or name not in declared or name in required or admits_null(declared[name])
            }
            stack.extend((declared[name], kept, name) for name in kept if name in declared)
        elif node.get("type") == "array" and "items" in node and isinstance(item, list | tuple):
            holder[key] = parts = list(item)
            stack.extend((node["items"], parts, at) for at in range(len(parts)))
    return top[0]


def _holds_null(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if item is None:
            return True
        if isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return False


class _NoNumber(Exception):
    """A word that the decoder takes for a number, and that is none here."""

    def __init__(self, word: str, problem: str) -> None:
        super().__init__(problem)
        self._word = word

    def place_in(self, raw: str) -> str:
        """Where the word stands: the decoder has stopped at the first one outside of a string."""
        start = next((found.start() for found in _WORD.finditer(raw) if found[0] == self._word), 0)
        return f"line {raw.count(chr(10), 0, start) + 1}, column {start - raw.rfind(chr(10), 0, start)}"


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NoNumber(text, f"the number {text[:40]} is out of range")
    return number or 0.0


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _NoNumber(text, f"an integer of {len(text)} digits is out of range") from None


def _constant(text: str) -> Any:
    raise _NoNumber(text, f"{text} is not a JSON number")


_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)


def _cleaned(value: Any, raw: str) -> Any:
    """Replace lone surrogates. Only an escape can bring one in, so most texts are not walked."""
    if raw.isascii() and not _SURROGATE_ESCAPE.search(raw):
        return value
    text = json.dumps(value, ensure_ascii=False)
    cleaned = valid(text)
    return value if cleaned == text else _DECODER.decode(cleaned)
