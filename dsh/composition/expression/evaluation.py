"""Evaluates a checked `!expr`: data in, data out. Imported when the first expression is evaluated.

A subclass of simpleeval's evaluator with its operator table, name look-up and functions replaced, behind
the allow-list of `language.py`. No Python object is ever read by attribute; inputs are never changed.
"""

import ast
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import simpleeval

from dsh.composition.expression.language import Checked, ExpressionError, check
from dsh.composition.expression.operation import (
    OPERATORS,
    Environment,
    EvaluationFailed,
    from_json,
    kind,
    length,
    plain,
    text_of,
    to_float,
    to_int,
    to_str,
    within,
)
from dsh.composition.value import Expr

if TYPE_CHECKING:
    from dsh.kernel import Context


class Scope:
    """The names that one evaluation sees."""

    __slots__ = ("ctx", "cwd", "env", "home", "profile")

    def __init__(
        self, *, env: Mapping[str, str], cwd: str, profile: str, home: Path, ctx: "Context | None"
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
        if not isinstance(value, Mapping | msgspec.Struct):
            publish = getattr(value, "expression_data", None)
            if not callable(publish):
                raise EvaluationFailed(f'service "{name}" publishes no data')
            try:
                value = publish()
            except Exception as error:
                raise EvaluationFailed(f'service "{name}" cannot publish its data ({error!r})') from error
        try:
            data = dict(value) if isinstance(value, Mapping) else value
            return plain(msgspec.to_builtins(data, str_keys=True))
        except (TypeError, ValueError, OverflowError):
            raise EvaluationFailed(f'service "{name}" publishes what is not JSON data') from None

    @staticmethod
    def _read(ctx: "Context", name: str) -> Any:
        from dsh.kernel import ServiceKey, ServiceUnavailable  # where there is a context it is loaded already

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
        return plain(_Evaluator(expr, scope).eval(expr.text, previously_parsed=checked.tree.body))
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


class _Evaluator(simpleeval.EvalWithCompoundTypes):  # type: ignore[misc]
    """One evaluation. Every step's result passes the limits."""

    def __init__(self, expr: Expr, scope: Scope) -> None:
        self._written = expr
        self._scope = scope
        names = {
            "env": Environment(scope.env),
            "cwd": scope.cwd,
            "platform": "linux" if sys.platform.startswith("linux") else sys.platform,
            "python": sys.executable,
            "profile": scope.profile,
        }
        functions: dict[str, Callable[..., Any]] = {
            "home": self._home,
            "here": self._here,
            "get": self._get,
            "int": to_int,
            "float": to_float,
            "str": to_str,
            "bool": bool,
            "len": length,
            "json": from_json,
        }
        super().__init__(operators=OPERATORS, functions=functions, names=names)
        self.functions = functions

    def _eval(self, node: Any) -> Any:
        return within(self.nodes[type(node)](node))

    def _eval_name(self, node: Any) -> Any:
        return self.names[node.id]

    def _eval_attribute(self, node: Any) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "svc":
            return self._scope.service(node.attr)
        holder = self._eval(node.value)
        if not isinstance(holder, dict):
            raise EvaluationFailed(f".{node.attr} reads a mapping, not {kind(holder)}")
        if node.attr not in holder:
            raise self._missing(holder, node.attr)
        return holder[node.attr]

    def _eval_subscript(self, node: Any) -> Any:
        holder, key = self._eval(node.value), self._eval(node.slice)
        if isinstance(holder, dict) and isinstance(key, str):
            if key not in holder:
                # a key that was computed may be a secret
                raise self._missing(holder, key if isinstance(node.slice, ast.Constant) else None)
            return holder[key]
        if isinstance(holder, list) and type(key) is int:
            if not -len(holder) <= key < len(holder):
                raise EvaluationFailed(f"position {key} in a list of {len(holder)}")
            return holder[key]
        raise EvaluationFailed(
            f"[…] reads a mapping by text or a list by position, not {kind(holder)} by {kind(key)}"
        )

    @staticmethod
    def _missing(holder: Any, key: str | None) -> EvaluationFailed:
        if isinstance(holder, Environment):
            return EvaluationFailed(f"the environment variable {key or 'of this name'} is not set")
        return EvaluationFailed("there is no such key" if key is None else f"there is no {key!r}")

    def _eval_call(self, node: Any) -> Any:
        return self.functions[node.func.id](*(self._eval(argument) for argument in node.args))

    def _eval_list(self, node: Any) -> list[Any]:
        made: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                spread = self._eval(item.value)
                if not isinstance(spread, list):
                    raise EvaluationFailed(f"`*` spreads a list, not {kind(spread)}")
                made.extend(spread)
            else:
                made.append(self._eval(item))
            within(made)
        return made

    def _eval_dict(self, node: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                spread = self._eval(value_node)
                if isinstance(spread, Environment):
                    raise EvaluationFailed("the environment cannot be copied as a whole")
                if not isinstance(spread, dict):
                    raise EvaluationFailed(f"`**` spreads a mapping, not {kind(spread)}")
                made.update(spread)
            else:
                key = self._eval(key_node)
                if not isinstance(key, str):
                    raise EvaluationFailed(f"a key is text, not {kind(key)}")
                made[key] = self._eval(value_node)
            within(made)
        return made

    def _home(self, *segments: Any) -> str:
        return str(self._scope.home.joinpath(*(text_of("home", segment) for segment in segments)))

    def _here(self, relative: Any) -> str:
        folder = Path(self._written.mark.file).absolute().parent
        return str(Path(folder, text_of("here", relative)))

    def _get(self, holder: Any, key: Any, default: Any = None) -> Any:
        if not isinstance(holder, dict) or not isinstance(key, str):
            raise EvaluationFailed(f"get reads a mapping by text, not {kind(holder)} by {kind(key)}")
        found = holder.get(key)
        return default if found is None else found
