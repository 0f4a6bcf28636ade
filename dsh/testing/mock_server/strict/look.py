"""Looking at foreign JSON: each look says in one line what is wrong, and where."""

from collections.abc import Collection, Mapping
from typing import Any


class RequestProblem(ValueError):
    """A request that a real server would refuse."""


def need(is_so: bool, problem: str) -> None:
    """
    Raises:
        RequestProblem: it is not so.
    """
    if not is_so:
        raise RequestProblem(problem)


def mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestProblem(f"{where}: expected an object, found {_kind(value)}")
    return value


def items(value: object, where: str) -> list[Any]:
    """A list with something in it."""
    if not isinstance(value, list):
        raise RequestProblem(f"{where}: expected a list, found {_kind(value)}")
    need(bool(value), f"{where}: [] is too short")
    return value


def string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise RequestProblem(f"{where}: expected a string, found {_kind(value)}")
    return value


def filled(value: object, where: str) -> str:
    """A string that is more than white space."""
    text = string(value, where)
    need(bool(text.strip()), f"{where}: text must be non-empty and more than white space")
    return text


def count(value: object, where: str, *, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RequestProblem(f"{where}: expected an integer from {least}, found {value!r}")
    return value


def number(value: object, where: str, low: float, high: float) -> None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    need(sound, f"{where}: expected a number from {low} to {high}, found {value!r}")


def one_of(value: object, where: str, known: Collection[str]) -> str:
    need(isinstance(value, str) and value in known, f"{where}: found {value!r}, expected {sorted(known)}")
    return str(value)


def only(value: Mapping[str, Any], where: str, known: Collection[str]) -> None:
    """No other members than these."""
    unknown = sorted(set(value) - set(known))
    need(not unknown, f"{where}{', '.join(unknown)}: extra inputs are not permitted")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
