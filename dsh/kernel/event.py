"""The event table: listeners in order, five ways to dispatch, filters by scope and realm.

A listener registered in a scoped context hears its own key and the keys below it; one registered
outside any scope hears everything; `global_` listeners pass every filter (`spec/kernel.md` §8).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from dsh.errors import KernelError
from dsh.kernel.effect import Owner
from dsh.kernel.foreign import contained
from dsh.kernel.key import Event, Mode

P = TypeVar("P")
R = TypeVar("R")
Listener = Callable[..., Any]


class Place(Protocol):
    """Where a listener was registered: what a filter looks at."""

    @property
    def scope(self) -> object | None: ...


class Subject(Protocol):
    """What an event is about: says which listeners it reaches, by where they were registered."""

    def admits(self, place: Place) -> bool: ...


class Hook:
    """One registered listener."""

    __slots__ = ("fn", "is_global", "owner", "place")

    def __init__(self, place: Place, owner: Owner, fn: Listener, is_global: bool) -> None:
        self.place, self.owner, self.fn, self.is_global = place, owner, fn, is_global


class EventTable:
    """The listeners of one kernel. Tuples are replaced, never changed, so a dispatch has a snapshot."""

    def __init__(self) -> None:
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self._declared: dict[str, Mode] = {}

    def add(self, name: str, hook: Hook, *, prepend: bool = False) -> None:
        now = self._hooks.get(name, ())
        self._hooks[name] = (hook, *now) if prepend else (*now, hook)

    def remove(self, name: str, hook: Hook) -> None:
        self._hooks[name] = tuple(h for h in self._hooks.get(name, ()) if h is not hook)

    def count(self) -> int:
        return sum(map(len, self._hooks.values()))

    def select(self, name: str, subject: Subject | None) -> "tuple[Hook, ...] | list[Hook]":
        hooks = self._hooks.get(name, ())
        if subject is None or not hooks:
            return hooks
        return [h for h in hooks if h.is_global or subject.admits(h.place)]

    def check(self, event: "Event[Any, Any] | str", mode: Mode) -> str:
        """The event's name, if dispatching it in this mode is legal.

        Raises:
            KernelError: the event is declared with another mode.
        """
        if isinstance(event, str):
            declared = self._declared.get(event, mode)
            name = event
        else:
            declared = event.mode
            name = event.name
            self._declared.setdefault(name, declared)
        if declared != mode:
            raise KernelError(f"event {name!r} is dispatched by {declared}, not by {mode}")
        return name

    def emit(self, event: "Event[P, Any] | str", payload: P, subject: Subject | None) -> None:
        name = self.check(event, "emit")
        is_contained = not isinstance(event, str) and event.contained
        for hook in self.select(name, subject):
            try:
                answer = hook.fn(payload)
            except BaseException as raised:
                error = contained(raised, f"a listener of {name}")
                if not is_contained or getattr(error, "code", "") == "INVARIANT":
                    raise error  # noqa: B904 -- the same one, or made of it
                report(hook.owner, name, error)
                continue
            if answer is not None and inspect.isawaitable(answer):
                hook.owner.keep(_reported(answer, hook.owner, name), f"listener of {name}")

    async def parallel(self, event: "Event[P, Any] | str", payload: P, subject: Subject | None) -> None:
        name = self.check(event, "parallel")
        answers = await asyncio.gather(
            *(_called(hook, name, payload) for hook in self.select(name, subject)), return_exceptions=True
        )
        failures = [a for a in answers if isinstance(a, Exception)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
        if failures:
            raise ExceptionGroup(f"listeners of {name} failed", failures)

    async def serial(self, event: "Event[P, R] | str", payload: P, subject: Subject | None) -> R | None:
        name = self.check(event, "serial")
        for hook in self.select(name, subject):
            answer: R | None = await _called(hook, name, payload)
            if answer is not None and answer is not False:
                return answer
        return None

    def bail(self, event: "Event[P, R] | str", payload: P, subject: Subject | None) -> R | None:
        name = self.check(event, "bail")
        for hook in self.select(name, subject):
            answer: R | None = _asked(hook, name, payload)
            if answer is not None and answer is not False:
                return answer
        return None

    def waterfall(
        self, event: "Event[P, R] | str", payload: P, inner: Callable[[], R], subject: Subject | None
    ) -> R:
        name = self.check(event, "waterfall")
        hooks = self.select(name, subject)
        if not hooks:
            return inner()

        def step(index: int) -> Callable[[], R]:
            called = False

            def following() -> R:
                nonlocal called
                if called:
                    raise KernelError(f"a listener of {name!r} called next() twice")
                called = True
                if index == len(hooks):
                    return inner()
                answer: R = _asked(hooks[index], name, payload, step(index + 1))
                return answer

            return following

        return step(0)()


def report(owner: Owner, name: str, error: BaseException) -> None:
    owner.logger.error("listener of %s failed: %s", name, error, exc_info=error)


def _asked(hook: Hook, name: str, *args: Any) -> Any:
    try:
        return hook.fn(*args)
    except BaseException as error:
        raise contained(error, f"a listener of {name}")  # noqa: B904 -- the same one, or made of it


async def _called(hook: Hook, name: str, payload: Any) -> Any:
    answer = _asked(hook, name, payload)
    if not inspect.isawaitable(answer):
        return answer
    try:
        return await answer
    except BaseException as error:
        raise contained(error, f"a listener of {name}")  # noqa: B904 -- the same one, or made of it


async def _reported(answer: Awaitable[Any], owner: Owner, name: str) -> None:
    try:
        await answer
    except BaseException as error:
        report(owner, name, contained(error, f"a listener of {name}"))
