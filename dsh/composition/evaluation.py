"""Evaluates a checked `!expr`: data in, data out. Imported when the first expression is evaluated.

A subclass of simpleeval's evaluator with its operator table, name look-up and functions replaced, behind
the allow-list of `expr.py`. No Python object is ever read by attribute; inputs are never changed.
"""

import ast
import json
import math
import operator
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import simpleeval

from dsh.composition.expr import INT_MAX, INT_MIN, Checked, ExpressionError, check
from dsh.composition.value import Expr
from dsh.kernel import Context, ServiceKey, ServiceUnavailable

MAX_ITEMS = 100_000
"""Longest string, list or mapping that any step may make, and longest input of `json`."""
MAX_EXPONENT = 64
MAX_RESULT_DEPTH = 32
MAX_WEIGHT = 1_000_000
"""How many values and characters a result, or what is compared, may come to in all."""


class EvaluationFailed(Exception):
    """A step of an expression is not possible. The text goes into the row's error."""


class Scope:
    """The names that one evaluation sees."""

    __slots__ = ("ctx", "cwd", "env", "home", "profile")

    def __init__(
        self, *, env: Mapping[str, str], cwd: str, profile: str, home: Path, ctx: Context | None
    ) -> None:
        self.env, self.cwd, self.profile, self.home = env, cwd, profile, home
        self.ctx = ctx
        """The context of the row, for `svc`; None where services cannot be read."""

    def service(self, name: str) -> Any:
        """A fresh copy of the data a service publishes.

        That is the service itself if it is a mapping or a struct, else the answer of its method
        `expression_data()`.

        Raises:
            EvaluationFailed: there is no such service here, or it publishes no data.
        """
        value = None if self.ctx is None else self._read(self.ctx, name)
        if value is None:
            raise EvaluationFailed(f'service "{name}" is not available')
        publish = getattr(value, "expression_data", None)
        if callable(publish):
            value = publish()
        elif not isinstance(value, Mapping | msgspec.Struct):
            raise EvaluationFailed(f'service "{name}" publishes no data')
        try:
            plain = dict(value) if isinstance(value, Mapping) else value
            return _plain(msgspec.to_builtins(plain, str_keys=True))
        except TypeError:
            raise EvaluationFailed(f'service "{name}" publishes what is not JSON data') from None

    @staticmethod
    def _read(ctx: Context, name: str) -> Any:
        try:
            return ctx.use(ServiceKey(name))
        except ServiceUnavailable:
            return ctx.get(name)


def evaluate(expr: Expr, scope: Scope) -> Any:
    """The value of an expression: JSON data that shares nothing with its inputs.

    Raises:
        ExpressionError: a step failed, or the result is not JSON data.
    """
    checked: Checked = expr.checked or check(expr)
    try:
        return _plain(_Evaluator(expr, scope).eval(expr.text, previously_parsed=checked.tree.body))
    except EvaluationFailed as error:
        raise ExpressionError(str(error), expr) from None
    except (simpleeval.InvalidExpression, RecursionError, MemoryError) as error:
        raise ExpressionError(f"cannot be evaluated ({type(error).__name__})", expr) from None


def config_data(config: Any, scope: Scope) -> Any:
    """A row's config as fresh plain data, every expression evaluated.

    An expression that gives None drops its key.

    Raises:
        ExpressionError: an expression failed, or gives None as a list item or as the whole config; names
            the key path.
    """

    def value_of(value: Any, path: str) -> Any:
        if isinstance(value, Expr):
            try:
                return evaluate(value, scope)
            except ExpressionError as error:
                where = f"{path}: " if path else ""
                raise ExpressionError(where + error.problem, value, hint=error.hint) from None
        if isinstance(value, dict):
            made = {key: value_of(item, f"{path}.{key}" if path else key) for key, item in value.items()}
            return {k: v for k, v in made.items() if v is not None or not isinstance(value[k], Expr)}
        if isinstance(value, list):
            return [required(item, f"{path}[{n}]") for n, item in enumerate(value)]
        return value

    def required(value: Any, path: str) -> Any:
        made = value_of(value, path)
        if made is None and isinstance(value, Expr):
            raise ExpressionError(f"{path or 'config'}: None can only stand for the value of a key", value)
        return made

    return required(config, "")


class _Environment(dict[str, Any]):
    """The `env` name: readable by key, never a value."""


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "a mapping" if isinstance(value, dict) else "something else")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _within(value: Any) -> Any:
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
            raise EvaluationFailed(f"`{sign}` takes numbers, not {_kind(a)} and {_kind(b)}")
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
    raise EvaluationFailed(f"`+` takes two numbers, strings or lists, not {_kind(a)} and {_kind(b)}")


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
        f"`*` takes numbers, or text or a list and an integer, not {_kind(a)} and {_kind(b)}"
    )


def _power(a: Any, b: Any) -> Any:
    if abs(b) > MAX_EXPONENT:
        raise EvaluationFailed(f"an exponent beyond {MAX_EXPONENT}")
    return a**b


def _ordered(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def apply(a: Any, b: Any) -> bool:
        if (_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
            return compare(a, b)
        raise EvaluationFailed(f"`{sign}` takes two numbers or two strings, not {_kind(a)} and {_kind(b)}")

    return apply


def _weighed(value: Any) -> Any:
    """The value, if comparing it takes bounded time: repeated lists share their items in memory only."""
    weight, left = 0, [value]
    while left:
        item = left.pop()
        weight += 1 + (len(item) if isinstance(item, str) else 0)
        if weight > MAX_WEIGHT:
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
        raise EvaluationFailed(f"`in` a string takes a string, not {_kind(item)}")
    if isinstance(holder, dict):
        return isinstance(item, str) and item in holder
    if isinstance(holder, str | list):
        return _weighed(item) in _weighed(holder)
    raise EvaluationFailed(f"`in` takes a string, a list or a mapping, not {_kind(holder)}")


def _negative(a: Any) -> Any:
    if not _is_number(a):
        raise EvaluationFailed(f"`-` takes a number, not {_kind(a)}")
    return -a


_OPERATORS: dict[Any, Callable[..., Any]] = {
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


class _Evaluator(simpleeval.EvalWithCompoundTypes):  # type: ignore[misc]
    """One evaluation. Every step's result passes the limits."""

    def __init__(self, expr: Expr, scope: Scope) -> None:
        self._written = expr
        self._scope = scope
        names = {
            "env": _Environment(scope.env),
            "cwd": scope.cwd,
            "platform": "linux" if sys.platform.startswith("linux") else sys.platform,
            "python": sys.executable,
            "profile": scope.profile,
        }
        functions: dict[str, Callable[..., Any]] = {
            "home": self._home,
            "here": self._here,
            "get": self._get,
            "int": _to_int,
            "float": _to_float,
            "str": _to_str,
            "bool": bool,
            "len": _length,
            "json": _from_json,
        }
        super().__init__(operators=_OPERATORS, functions=functions, names=names)
        self.functions = functions

    def _eval(self, node: Any) -> Any:
        return _within(self.nodes[type(node)](node))

    def _eval_name(self, node: Any) -> Any:
        return self.names[node.id]

    def _eval_attribute(self, node: Any) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "svc":
            return self._scope.service(node.attr)
        holder = self._eval(node.value)
        if not isinstance(holder, dict):
            raise EvaluationFailed(f".{node.attr} reads a mapping, not {_kind(holder)}")
        if node.attr not in holder:
            raise self._missing(holder, node.attr)
        return holder[node.attr]

    def _eval_subscript(self, node: Any) -> Any:
        holder, key = self._eval(node.value), self._eval(node.slice)
        if isinstance(holder, dict) and isinstance(key, str):
            if key not in holder:
                raise self._missing(holder, key)
            return holder[key]
        if isinstance(holder, list) and type(key) is int:
            if not -len(holder) <= key < len(holder):
                raise EvaluationFailed(f"position {key} in a list of {len(holder)}")
            return holder[key]
        raise EvaluationFailed(
            f"[…] reads a mapping by text or a list by position, not {_kind(holder)} by {_kind(key)}"
        )

    @staticmethod
    def _missing(holder: Any, key: str) -> EvaluationFailed:
        if isinstance(holder, _Environment):
            return EvaluationFailed(f"the environment variable {key} is not set")
        return EvaluationFailed(f"there is no {key!r}")

    def _eval_call(self, node: Any) -> Any:
        return self.functions[node.func.id](*(self._eval(argument) for argument in node.args))

    def _eval_list(self, node: Any) -> list[Any]:
        made: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                spread = self._eval(item.value)
                if not isinstance(spread, list):
                    raise EvaluationFailed(f"`*` spreads a list, not {_kind(spread)}")
                made.extend(spread)
            else:
                made.append(self._eval(item))
            _within(made)
        return made

    def _eval_dict(self, node: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                spread = self._eval(value_node)
                if isinstance(spread, _Environment):
                    raise EvaluationFailed("the environment cannot be copied as a whole")
                if not isinstance(spread, dict):
                    raise EvaluationFailed(f"`**` spreads a mapping, not {_kind(spread)}")
                made.update(spread)
            else:
                key = self._eval(key_node)
                if not isinstance(key, str):
                    raise EvaluationFailed(f"a key is text, not {_kind(key)}")
                made[key] = self._eval(value_node)
            _within(made)
        return made

    def _home(self, *segments: Any) -> str:
        return str(self._scope.home.joinpath(*(_text("home", segment) for segment in segments)))

    def _here(self, relative: Any) -> str:
        folder = Path(self._written.mark.file).absolute().parent
        return str(Path(folder, _text("here", relative)))

    def _get(self, holder: Any, key: Any, default: Any = None) -> Any:
        if not isinstance(holder, dict) or not isinstance(key, str):
            raise EvaluationFailed(f"get reads a mapping by text, not {_kind(holder)} by {_kind(key)}")
        found = holder.get(key)
        return default if found is None else found


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationFailed(f"{name} takes text, not {_kind(value)}")
    if "\0" in value:
        raise EvaluationFailed(f"{name} takes a path without zero bytes")
    return value


def _to_int(value: Any) -> int:
    if _is_number(value):
        return int(value)
    text = value.strip() if isinstance(value, str) else ""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise EvaluationFailed(f"int takes a number or decimal text, not {_kind(value)} like this")
    return int(text)


def _to_float(value: Any) -> float:
    if _is_number(value):
        return float(value)
    try:
        if isinstance(value, str) and len(value) <= 400 and "_" not in value and value.isascii():
            number = float(value)
            if math.isfinite(number):
                return number
    except ValueError:
        pass
    raise EvaluationFailed(f"float takes a number or decimal text, not {_kind(value)} like this")


def _to_str(value: Any) -> str:
    if value is None or isinstance(value, str | int | float):
        return str(value)
    raise EvaluationFailed(f"str takes a scalar, not {_kind(value)}")


def _length(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise EvaluationFailed(f"len takes a string, a list or a mapping, not {_kind(value)}")


def _from_json(text: Any) -> Any:
    if not isinstance(text, str):
        raise EvaluationFailed(f"json takes text, not {_kind(text)}")
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


def _plain(result: Any) -> Any:
    """A copy that is JSON data and nothing else."""
    count = 0

    def copy(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1 + (len(value) if isinstance(value, str) else 0)
        if depth > MAX_RESULT_DEPTH or count > MAX_WEIGHT:
            raise EvaluationFailed("the result is too deep or too large")
        if isinstance(value, _Environment):
            raise EvaluationFailed("the environment is not a value")
        if isinstance(value, dict):
            return {str(key): copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy(item, depth + 1) for item in value]
        if value is None or isinstance(value, bool | str):
            return value
        if _is_number(value):
            return _within(value)
        raise EvaluationFailed("the result is not plain data")

    return copy(result, 0)
