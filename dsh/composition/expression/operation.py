"""What one step of an expression may do: operators, functions, and the limits of every value."""

import ast
import json
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from dsh.composition.expression.language import INT_MAX, INT_MIN

MAX_ITEMS = 100_000
"""Longest string, list or mapping that any step may make, and longest input of `json`."""
MAX_EXPONENT = 64
MAX_RESULT_DEPTH = 32
MAX_WEIGHT = 1_000_000
"""How many values and characters a result may come to in all."""
MAX_COMPARED = 200_000
"""The same for each side of a comparison, of which a text of 2,000 characters can hold many."""
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Lone surrogates but for those that stand for undecodable bytes of a path or variable."""


class EvaluationFailed(Exception):
    """A step of an expression is not possible. The text goes into the row's error."""


class Environment(dict[str, Any]):
    """The `env` name: readable by key, never a value."""


def kind(value: Any) -> str:
    """What a message calls this kind of value."""
    if value is None:
        return "None"
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "a mapping" if isinstance(value, dict) else "something else")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def within(value: Any) -> Any:
    """The value, if it is inside the limits of every step."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise EvaluationFailed("an integer beyond 64 bits")
    if isinstance(value, complex) or (type(value) is float and not math.isfinite(value)):
        raise EvaluationFailed("a number that is not finite")
    if isinstance(value, str | list | dict) and len(value) > MAX_ITEMS:
        raise EvaluationFailed(f"more than {MAX_ITEMS} characters or items")
    return value


def _arithmetic(sign: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if not (_is_number(a) and _is_number(b)):
            raise EvaluationFailed(f"`{sign}` takes numbers, not {kind(a)} and {kind(b)}")
        try:
            return compute(a, b)
        except (ArithmeticError, ValueError) as error:
            raise EvaluationFailed(str(error)) from None

    return apply


def _add(a: Any, b: Any) -> Any:
    if (_is_number(a) and _is_number(b)) or (type(a) is type(b) and type(a) in (str, list)):
        if isinstance(a, str | list) and len(a) + len(b) > MAX_ITEMS:
            raise EvaluationFailed(f"more than {MAX_ITEMS} characters or items")
        return a + b
    raise EvaluationFailed(f"`+` takes two numbers, strings or lists, not {kind(a)} and {kind(b)}")


def _multiply(a: Any, b: Any) -> Any:
    if _is_number(a) and _is_number(b):
        return a * b
    if type(a) is int and isinstance(b, str | list):
        a, b = b, a
    if isinstance(a, str | list) and type(b) is int:
        if len(a) * b > MAX_ITEMS:
            raise EvaluationFailed(f"more than {MAX_ITEMS} characters or items")
        return a * b
    raise EvaluationFailed(
        f"`*` takes numbers, or text or a list and an integer, not {kind(a)} and {kind(b)}"
    )


def _power(a: Any, b: Any) -> Any:
    if abs(b) > MAX_EXPONENT:
        raise EvaluationFailed(f"an exponent beyond {MAX_EXPONENT}")
    return a**b


def _ordered(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def apply(a: Any, b: Any) -> bool:
        if (_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
            return compare(a, b)
        raise EvaluationFailed(f"`{sign}` takes two numbers or two strings, not {kind(a)} and {kind(b)}")

    return apply


def _weighed(value: Any) -> Any:
    """The value, if comparing it takes bounded time: repeated lists share their items in memory only."""
    weight, left = 0, [value]
    while left:
        item = left.pop()
        weight += 1 + (len(item) if isinstance(item, str) else 0)
        if weight > MAX_COMPARED:
            raise EvaluationFailed("the values compared are too large")
        if isinstance(item, list):
            left.extend(item)
        elif isinstance(item, dict):
            left.extend(item.values())
    return value


def _equal(a: Any, b: Any) -> bool:
    return bool(_weighed(a) == _weighed(b))


def _contains(item: Any, holder: Any) -> bool:
    if isinstance(holder, str) and not isinstance(item, str):
        raise EvaluationFailed(f"`in` a string takes a string, not {kind(item)}")
    if isinstance(holder, dict):
        return isinstance(item, str) and item in holder
    if isinstance(holder, str | list):
        return _weighed(item) in _weighed(holder)
    raise EvaluationFailed(f"`in` takes a string, a list or a mapping, not {kind(holder)}")


def _negative(a: Any) -> Any:
    if not _is_number(a):
        raise EvaluationFailed(f"`-` takes a number, not {kind(a)}")
    return -a


OPERATORS: dict[Any, Callable[..., Any]] = {
    ast.Add: _add,
    ast.Sub: _arithmetic("-", operator.sub),
    ast.Mult: _multiply,
    ast.Div: _arithmetic("/", operator.truediv),
    ast.FloorDiv: _arithmetic("//", operator.floordiv),
    ast.Mod: _arithmetic("%", operator.mod),
    ast.Pow: _arithmetic("**", _power),
    ast.USub: _negative,
    ast.Not: operator.not_,
    ast.Eq: _equal,
    ast.NotEq: lambda a, b: not _equal(a, b),
    ast.Lt: _ordered("<", operator.lt),
    ast.LtE: _ordered("<=", operator.le),
    ast.Gt: _ordered(">", operator.gt),
    ast.GtE: _ordered(">=", operator.ge),
    ast.In: _contains,
    ast.NotIn: lambda item, holder: not _contains(item, holder),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def text_of(name: str, value: Any) -> str:
    """A path argument of the function `name`."""
    if not isinstance(value, str):
        raise EvaluationFailed(f"{name} takes text, not {kind(value)}")
    if "\0" in value:
        raise EvaluationFailed(f"{name} takes a path without zero bytes")
    return value


def to_int(value: Any) -> int:
    """Function `int`: decimal text or a number."""
    if _is_number(value):
        return int(value)
    text = value.strip() if isinstance(value, str) else ""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise EvaluationFailed(f"int takes a number or decimal text, not {kind(value)} like this")
    return int(text)


def to_float(value: Any) -> float:
    """Function `float`: decimal text or a number."""
    if _is_number(value):
        return float(value)
    try:
        if isinstance(value, str) and len(value) <= 400 and "_" not in value and value.isascii():
            number = float(value)
            if math.isfinite(number):
                return number
    except ValueError:
        pass
    raise EvaluationFailed(f"float takes a number or decimal text, not {kind(value)} like this")


def to_str(value: Any) -> str:
    """Function `str`: scalars only."""
    if value is None or isinstance(value, str | int | float):
        return str(value)
    raise EvaluationFailed(f"str takes a scalar, not {kind(value)}")


def length(value: Any) -> int:
    """Function `len`."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise EvaluationFailed(f"len takes a string, a list or a mapping, not {kind(value)}")


def from_json(text: Any) -> Any:
    """Function `json`: strict, without duplicate keys or numbers that are not finite."""
    if not isinstance(text, str):
        raise EvaluationFailed(f"json takes text, not {kind(text)}")
    if len(text) > MAX_ITEMS:
        raise EvaluationFailed(f"json takes at most {MAX_ITEMS} characters")
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise EvaluationFailed(f"json: not valid JSON{where}") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise EvaluationFailed("json: a key stands twice")
    return made


def _not_finite(text: str) -> Any:
    raise EvaluationFailed(f"json: {text} is not a finite number")


def plain(result: Any) -> Any:
    """A copy that is JSON data and nothing else."""
    count = 0

    def copy(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1 + (len(value) if isinstance(value, str) else 0)
        if depth > MAX_RESULT_DEPTH or count > MAX_WEIGHT:
            raise EvaluationFailed("the result is too deep or too large")
        if isinstance(value, Environment):
            raise EvaluationFailed("the environment is not a value")
        if isinstance(value, dict):
            return {str(key): copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy(item, depth + 1) for item in value]
        if isinstance(value, str) and not value.isascii() and _HALF.search(value):
            raise EvaluationFailed("half of a surrogate pair is no text")
        if value is None or isinstance(value, bool | str):
            return value
        if _is_number(value):
            return within(value)
        raise EvaluationFailed("the result is not plain data")

    return copy(result, 0)
