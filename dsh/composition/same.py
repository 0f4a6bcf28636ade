"""Whether two parts of a composition say the same, as far as what runs is concerned."""

from typing import Any

from dsh.composition.row import Row
from dsh.composition.value import Expr


def same(one: Any, other: Any) -> bool:
    """Deep equality of configs; the order of keys does not count, the kind of a scalar does.

    Expressions are the same when their text is, and the folder too where `here()` starts from it.
    """
    if isinstance(one, Expr) or isinstance(other, Expr):
        return isinstance(one, Expr) and isinstance(other, Expr) and _same_expression(one, other)
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return False
        return all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        if not isinstance(other, list) or len(one) != len(other):
            return False
        return all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def same_row(one: Row, other: Row) -> bool:
    """Whether two rows say the same in every field, and mean the same file by a relative name."""
    return same(one, other) and (not one.name.startswith(".") or one.folder == other.folder)


def _same_expression(one: Expr, other: Expr) -> bool:
    if one.text != other.text:
        return False
    return "here" not in one.text or _folder(one) == _folder(other)


def _folder(expr: Expr) -> str:
    return expr.mark.file.rpartition("/")[0]
