"""Typed names: what a service is called and what it is, what an event is called and how it is dispatched."""

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

Mode = Literal["emit", "parallel", "serial", "bail", "waterfall"]


class ServiceKey(Generic[T]):
    """The name of a service together with the type of what is provided under it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"ServiceKey({self.name!r})"


class Event(Generic[P, R]):
    """The declaration of an event: its name, the one dispatch mode that is legal for it, its types.

    `P` is the payload that every listener receives, `R` what a listener answers: nothing for `emit`
    and `parallel`, a bail value for `serial` and `bail`, the value of the chain for `waterfall` (an
    awaitable or an async iterator where the chain is asynchronous).

    A `contained` emit calls every listener and logs what fails; only a broken invariant (an error with the
    code INVARIANT) still reaches the emitter, after all were called. Otherwise the first exception stops the
    dispatch and reaches the emitter.

    A `scoped` event is about somebody, and listeners in a scope hear it only where it concerns that scope.
    So each of its dispatches says about whom, as `subject=ScopeTarget(key)`: of any key where `scoped` is
    True, of the key that the function finds in the payload where it is one. A dispatch without it, or for
    another key, would reach the wrong listeners without a word; it is refused where it is made.
    """

    __slots__ = ("contained", "mode", "name", "scoped")

    def __init__(
        self,
        name: str,
        mode: Mode,
        *,
        contained: bool = False,
        scoped: Callable[[P], object | None] | bool = False,
    ) -> None:
        if contained and mode != "emit":
            raise ValueError(f"event {name!r}: only emit can be contained, not {mode}")
        self.name = name
        self.mode = mode
        self.contained = contained
        self.scoped = scoped

    def __repr__(self) -> str:
        return f"Event({self.name!r}, {self.mode!r})"


def name_of(key: "ServiceKey[T] | str") -> str:
    """The plain service name behind a key."""
    return key if isinstance(key, str) else key.name
