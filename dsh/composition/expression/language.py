"""What an `!expr` may say, checked without running it.

The language is that of `spec/composition.md` §13.2: one Python expression over plain data. Everything is
judged by an allow-list of syntax nodes when the file is read; `evaluation.py` runs what passed here. The
node classes come from `_ast`, since a dump has no time for the module `ast` around them.
"""

import _ast
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from dsh.composition.value import Expr, MarkedError

MAX_TEXT = 2_000
MAX_DEPTH = 32
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

NAMES = ("env", "svc", "cwd", "platform", "python", "profile")
FUNCTIONS = {
    "home": (0, None),
    "here": (1, 1),
    "get": (2, 3),
    "int": (1, 1),
    "float": (1, 1),
    "str": (1, 1),
    "bool": (1, 1),
    "len": (1, 1),
    "json": (1, 1),
}
"""Each function with the fewest and the most arguments it takes; None for any number."""

_PLAIN_NODES: tuple[type[_ast.AST], ...] = (
    _ast.IfExp, _ast.BoolOp, _ast.And, _ast.Or, _ast.UnaryOp, _ast.Not, _ast.USub, _ast.BinOp, _ast.Add,
    _ast.Sub, _ast.Mult, _ast.Div, _ast.FloorDiv, _ast.Mod, _ast.Pow, _ast.Compare, _ast.Eq, _ast.NotEq,
    _ast.Lt, _ast.LtE, _ast.Gt, _ast.GtE, _ast.In, _ast.NotIn, _ast.Is, _ast.IsNot, _ast.List, _ast.Dict,
    _ast.Load,
)  # fmt: skip
_CALLED = {
    _ast.Lambda: "lambda", _ast.ListComp: "a comprehension", _ast.SetComp: "a comprehension",
    _ast.DictComp: "a comprehension", _ast.GeneratorExp: "a comprehension", _ast.JoinedStr: "an f-string",
    _ast.Set: "a set", _ast.Tuple: "a tuple", _ast.Slice: "a slice", _ast.NamedExpr: "`:=`",
    _ast.Await: "await", _ast.Yield: "yield", _ast.YieldFrom: "yield", _ast.Starred: "`*` outside a list",
    _ast.UAdd: "unary plus", _ast.Invert: "a bit operator", _ast.BitAnd: "a bit operator",
    _ast.BitOr: "a bit operator", _ast.BitXor: "a bit operator", _ast.LShift: "a shift",
    _ast.RShift: "a shift", _ast.MatMult: "`@`",
}  # fmt: skip


class ExpressionError(MarkedError):
    """An expression is wrong or failed; the message shows it."""

    def __init__(self, problem: str, expr: Expr, *, hint: str = "") -> None:
        super().__init__(f"{expr.shown}: {problem}", expr.mark, hint=hint)
        self.problem = problem


class Checked(NamedTuple):
    """An expression that may be evaluated."""

    tree: _ast.Expression
    services: frozenset[str]
    """Names of the services it may read."""


def check(expr: Expr, *, allow_services: bool = True) -> Checked:
    """Parse an expression and judge every node of it.

    Args:
        allow_services: False in `disabled`, which is evaluated before anything is mounted.

    Raises:
        ExpressionError: it is not of the language; names the place inside the file.
    """
    if len(expr.text) > MAX_TEXT:
        raise ExpressionError(f"longer than {MAX_TEXT} characters", expr)
    text = expr.text.strip()
    if "\0" in text:
        raise ExpressionError("a zero byte", expr)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(text, "<expr>", "eval", 0x400)  # ast.PyCF_ONLY_AST
    except SyntaxError as error:
        raise ExpressionError(f"not one Python expression ({error.msg})", expr) from None
    except (RecursionError, MemoryError):
        raise ExpressionError(f"nested more than {MAX_DEPTH} levels deep", expr) from None
    except ValueError as error:  # an integer literal of thousands of digits, a lone surrogate
        raise ExpressionError(f"cannot be read ({error})", expr) from None
    assert isinstance(tree, _ast.Expression)
    walk = _Walk(expr, allow_services)
    walk.visit(tree.body, 1)
    return Checked(tree, frozenset(walk.services))


class _Walk:
    """Judges the nodes of one expression and collects the services that it reads."""

    def __init__(self, expr: Expr, allow_services: bool) -> None:
        self._expr = expr
        self._allow_services = allow_services
        self.services: set[str] = set()

    def visit(self, node: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, _ast.Constant):
            self._constant(node)
        elif isinstance(node, _ast.Name):
            self._name(node)
        elif isinstance(node, _ast.Attribute):
            self._attribute(node, depth)
        elif isinstance(node, _ast.Subscript):
            if isinstance(node.value, _ast.Name) and node.value.id == "svc":
                raise self._error(node, "services are written svc.NAME, not svc['NAME']")
            self._visit_all(node, depth)
        elif isinstance(node, _ast.Call):
            self._call(node, depth)
        elif isinstance(node, _ast.List):
            for item in node.elts:
                self.visit(item.value if isinstance(item, _ast.Starred) else item, depth + 1)
        elif isinstance(node, _ast.Dict):
            for child in (*node.keys, *node.values):
                if child is not None:  # the key of `**mapping`
                    self.visit(child, depth + 1)
            self._no_env_spread(node)
        elif isinstance(node, _ast.Compare):
            self._compare(node)
            self._visit_all(node, depth)
        elif isinstance(node, _PLAIN_NODES):
            self._visit_all(node, depth)
        else:
            what = _CALLED.get(type(node), type(node).__name__)
            raise self._error(node, f"{what} is not part of the expression language")

    def _visit_all(self, node: _ast.AST, depth: int) -> None:
        for child in _children(node):
            self.visit(child, depth + (1 if isinstance(child, _ast.expr) else 0))

    def _constant(self, node: _ast.Constant) -> None:
        value = node.value
        if value is None or isinstance(value, bool):
            return
        if isinstance(value, str):
            if node.kind is not None:
                raise self._error(node, "a prefixed string is not part of the expression language")
            if any("\ud800" <= char <= "\udfff" for char in value):
                raise self._error(node, "half of a surrogate pair is no text")
            return
        if isinstance(value, int):
            if not INT_MIN <= value <= INT_MAX:
                raise self._error(node, "an integer beyond 64 bits")
            return
        if isinstance(value, float):
            if value in (float("inf"), float("-inf")):
                raise self._error(node, "a number that is not finite")
            return
        what = "bytes" if isinstance(value, bytes) else "`...`" if value is ... else type(value).__name__
        raise self._error(node, f"{what} is not part of the expression language")

    def _name(self, node: _ast.Name) -> None:
        if node.id == "svc":
            raise self._error(node, "svc may stand only as svc.NAME")
        if node.id not in NAMES:
            known = ", ".join(NAMES)
            if node.id in FUNCTIONS:
                raise self._error(node, f"{node.id} is a function; call it")
            raise self._error(node, f"unknown name {node.id!r}", hint=f"known names: {known}")

    def _attribute(self, node: _ast.Attribute, depth: int) -> None:
        if node.attr.startswith("_"):
            raise self._error(node, f".{node.attr} is not readable; write ['{node.attr}']")
        if isinstance(node.value, _ast.Name) and node.value.id == "svc":
            if not self._allow_services:
                raise self._error(node, "services cannot be read here: nothing is mounted yet")
            self.services.add(node.attr)
            return
        self.visit(node.value, depth + 1)

    def _call(self, node: _ast.Call, depth: int) -> None:
        if not isinstance(node.func, _ast.Name) or node.func.id not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise self._error(node, "only named functions can be called", hint=f"functions: {known}")
        name = node.func.id
        if node.keywords or any(isinstance(arg, _ast.Starred) for arg in node.args):
            raise self._error(node, f"{name} takes plain arguments only")
        fewest, most = FUNCTIONS[name]
        if len(node.args) < fewest or (most is not None and len(node.args) > most):
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise self._error(node, f"{name} takes {wanted} arguments, not {len(node.args)}")
        for argument in node.args:
            self.visit(argument, depth + 1)

    def _compare(self, node: _ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, operands, node.comparators, strict=False):
            if not isinstance(op, _ast.Is | _ast.IsNot):
                continue
            if not any(isinstance(side, _ast.Constant) and side.value is None for side in (left, right)):
                raise self._error(node, "`is` compares with None only; write ==")

    def _no_env_spread(self, node: _ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None and isinstance(value, _ast.Name) and value.id == "env":
                raise self._error(node, "the environment cannot be copied as a whole")

    def _error(self, node: _ast.AST, problem: str, *, hint: str = "") -> ExpressionError:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        where = f" (character {column + 1})" if line == 1 else f" (line {line})"
        return ExpressionError(problem + where, self._expr, hint=hint)


def _children(node: _ast.AST) -> Iterator[_ast.AST]:
    for field in node._fields:
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, _ast.AST):
                yield child


def find_expressions(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Expr]]:
    """Every expression inside a value, with the keys and positions that lead to it."""
    if isinstance(value, Expr):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from find_expressions(item, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from find_expressions(item, (*path, str(position)))
