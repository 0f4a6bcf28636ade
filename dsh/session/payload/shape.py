"""How payloads are described and checked: types for numbers, and checks that are put together.

A form is a TypedDict; msgspec checks a payload against it. What a TypedDict cannot say, such as which of
several forms a key chooses, is a check beside it. Extra keys are tolerated unless a form is closed. Absent
and null are different things: an optional field may be missing, it is never null.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from dsh.session.value import MAX_SAFE_INT, clean

SafeInt: TypeAlias = Annotated[int, Meta(ge=-MAX_SAFE_INT, le=MAX_SAFE_INT)]
"""An integer that every reader keeps exact."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_SAFE_INT)]
"""How many, or a position, from 0."""
Ordinal: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_SAFE_INT)]
"""A number that counts from 1."""
Number: TypeAlias = int | float
"""Any JSON number."""
Name: TypeAlias = Annotated[str, Meta(min_length=1)]
"""A string that is not empty."""

Check: TypeAlias = Callable[[Any], None]
"""Raises `Misfit` where a value does not have the wanted shape."""


class Misfit(Exception):
    """What is wrong with a value; `path` says where in it, as in `.goal.id`."""

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}")

    def within(self, path: str) -> "Misfit":
        """The same, seen from the value that holds this one."""
        return Misfit(self.problem, path + self.path)


class Payload(NamedTuple):
    """What the payload of one event type may look like."""

    forms: tuple[Any, ...]
    """The TypedDicts that describe it; a key tells several apart."""
    check: Check
    """The whole definition."""
    refuse: Check | None = None
    """The part of it without which a stored log is not read."""


def payload(form: Any, *more: Check, refuse: Check | None = None) -> Payload:
    """A payload of one form, with what else holds for it."""
    return Payload((form,), shape(form, *more), refuse)


def shape(form: Any, *more: Check) -> Check:
    """A check against a type, then the further ones in turn."""

    def check(value: Any) -> None:
        try:
            _convert(value, form)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            raise Misfit(problem[:1].lower() + problem[1:], path.rstrip("`")) from None
        for another in more:
            another(value)

    return check


def _convert(value: Any, form: Any) -> None:
    try:
        msgspec.convert(value, form)
    except UnicodeEncodeError:  # a key, or a string that is compared, holds half of a surrogate pair
        msgspec.convert(clean(value), form)


def at(key: str, check: Check) -> Check:
    """A check of one field, where it is present."""

    def of_field(value: Any) -> None:
        if key in value:
            try:
                check(value[key])
            except Misfit as misfit:
                raise misfit.within(f".{key}") from None

    return of_field


def each(check: Check) -> Check:
    """A check of every item of a list."""

    def of_items(value: Any) -> None:
        for index, item in enumerate(listed(value)):
            try:
                check(item)
            except Misfit as misfit:
                raise misfit.within(f"[{index}]") from None

    return of_items


def choice(key: str, forms: Mapping[str, Check], *, is_open: bool = False) -> Check:
    """A check that a field of the object chooses; a value with none is refused unless the choice is open."""

    def check(value: Any) -> None:
        chosen = mapped(value).get(key)
        if type(chosen) is not str or chosen == "":
            raise Misfit(f"expected a string that says which, found {chosen!r:.60}", f".{key}")
        form = forms.get(chosen)
        if form is not None:
            form(value)
        elif not is_open:
            raise Misfit(f"expected one of {', '.join(forms)}, found {chosen!r:.60}", f".{key}")

    return check


def closed(*allowed: str) -> Check:
    """A check that an object has no other keys than these."""
    names = frozenset(allowed)

    def check(value: Any) -> None:
        if extra := mapped(value).keys() - names:
            raise Misfit(f"unknown key {min(extra)!r:.60}, there are {', '.join(allowed)}")

    return check


def mapped(value: Any) -> Mapping[str, Any]:
    """The value, which is an object. Raises `Misfit` if it is none."""
    if not isinstance(value, dict):
        raise Misfit(f"expected object, found {type(value).__name__}")
    return value


def listed(value: Any) -> Sequence[Any]:
    """The value, which is a list. Raises `Misfit` if it is none."""
    if not isinstance(value, list | tuple):
        raise Misfit(f"expected array, found {type(value).__name__}")
    return value
