"""The event table: listeners in order, five ways to dispatch, filters by scope and realm.

A listener registered in a scoped context hears its own key and the keys below it; one registered
outside any scope hears everything; `global_` listeners pass every filter (`spec/kernel.md` §8).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dsh.errors import KernelError
from dsh.kernel.foreign import contained, told
from dsh.kernel.internal import EVENT_DISPATCHED, Dispatch
from dsh.kernel.key import Event, Mode

if TYPE_CHECKING:
    from dsh.kernel.owner import EffectOwner
    from dsh.kernel.root import Realm

P = TypeVar("P")
R = TypeVar("R")
Listener = Callable[..., Any]


class Place(Protocol):
    """Where a listener was registered: what a filter looks at."""

    @property
    def scope(self) -> object | None: ...

    def realm_of(self, name: str) -> "Realm": ...


class Subject(Protocol):
    """What an event is about: says which listeners it reaches, by where they were registered."""

    def admits(self, place: Place) -> bool: ...


class Hook:
    """One registered listener."""

    __slots__ = ("fn", "is_first", "is_global", "owner", "place")

    def __init__(
        self,
        place: Place,
        owner: "EffectOwner",
        fn: Listener,
        *,
        is_global: bool = False,
        is_first: bool = False,
    ) -> None:
        self.place, self.owner, self.fn = place, owner, fn
        self.is_global = is_global
        self.is_first = is_first
        """It was prepended."""


class _Line:
    """The listeners of one event. Adding and removing cost the same however many there are."""

    __slots__ = ("_first", "_rest", "_snapshot")

    def __init__(self) -> None:
        self._first: dict[Hook, None] = {}
        self._rest: dict[Hook, None] = {}
        self._snapshot: tuple[Hook, ...] | None = ()

    def __len__(self) -> int:
        return len(self._first) + len(self._rest)

    def add(self, hook: Hook) -> None:
        (self._first if hook.is_first else self._rest)[hook] = None
        self._snapshot = None

    def remove(self, hook: Hook) -> None:
        (self._first if hook.is_first else self._rest).pop(hook, None)
        self._snapshot = None

    def hooks(self) -> tuple[Hook, ...]:
        """In the order of dispatch: prepended ones, the latest first, then the others."""
        if self._snapshot is None:
            self._snapshot = (*reversed(self._first), *self._rest)
        return self._snapshot


class EventTable:
    """The listeners of one kernel. A dispatch reaches those that were there when it began."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._declared: dict[str, Event[Any, Any]] = {}
        self._is_watched = False

    def add(self, name: str, hook: Hook) -> None:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
        line.add(hook)
        self._is_watched = EVENT_DISPATCHED.name in self._lines

    def remove(self, name: str, hook: Hook) -> None:
        if (line := self._lines.get(name)) is None:
            return
        line.remove(hook)
        if not line:
            del self._lines[name]
        self._is_watched = EVENT_DISPATCHED.name in self._lines

    def count(self) -> int:
        return sum(map(len, self._lines.values()))

    def has(self, event: "Event[Any, Any]") -> bool:
        """Whether anybody listens at all."""
        return event.name in self._lines

    def select(self, name: str, subject: Subject | None) -> "Sequence[Hook]":
        """Whom a dispatch about this subject reaches, in order."""
        line = self._lines.get(name)
        if line is None:
            return ()
        hooks = line.hooks()
        if subject is None:
            return hooks
        return [h for h in hooks if h.is_global or subject.admits(h.place)]

    def declare(self, event: "Event[Any, Any]") -> None:
        """Remember in which mode the event of this name is dispatched.

        Raises:
            KernelError: another declaration of the name says another mode.
        """
        known = self._declared.setdefault(event.name, event)
        if known.mode != event.mode:
            raise KernelError(f"event {event.name!r} is declared as {event.mode} and as {known.mode}")

    def check(self, event: "Event[Any, Any] | str", mode: Mode) -> str:
        """The event's name, if dispatching it in this mode is legal.

        Raises:
            KernelError: the event is declared with another mode.
        """
        if isinstance(event, str):
            name, known = event, self._declared.get(event)
            declared = mode if known is None else known.mode
        else:
            name, declared = event.name, event.mode
            if name not in self._declared:
                self._declared[name] = event
        if declared != mode:
            raise KernelError(f"event {name!r} is dispatched by {declared}, not by {mode}")
        return name

    def _begin(
        self, event: "Event[Any, Any] | str", mode: Mode, payload: Any, subject: Subject | None
    ) -> str:
        name = self.check(event, mode)
        if (declared := self._declared.get(name)) is not None and declared.scoped is not False:
            _require_carrier(declared, payload, subject)
        if self._is_watched and not name.startswith("internal/"):
            self.emit(EVENT_DISPATCHED, Dispatch(mode, name, payload, subject), None)
        return name

    def emit(
        self,
        event: "Event[P, Any] | str",
        payload: P,
        subject: Subject | None,
        *,
        is_contained: bool = False,
    ) -> None:
        name = self._begin(event, "emit", payload, subject)
        hooks = self.select(name, subject)
        if not hooks:
            return
        is_contained = is_contained or (not isinstance(event, str) and event.contained)
        broken: Exception | None = None
        for hook in hooks:
            try:
                answer = hook.fn(payload)
            except BaseException as raised:
                error = contained(raised, f"a listener of {name}")
                if not is_contained:
                    raise error  # noqa: B904 -- the same one, or made of it
                if getattr(error, "code", "") == "INVARIANT" and broken is None:
                    broken = error
                else:
                    report(hook.owner, name, error)
                continue
            if answer is not None and inspect.isawaitable(answer):
                hook.owner.attend(_reported(answer, hook.owner, name), f"listener of {name}")
        if broken is not None:
            raise broken

    async def parallel(self, event: "Event[P, Any] | str", payload: P, subject: Subject | None) -> None:
        name = self._begin(event, "parallel", payload, subject)
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
        name = self._begin(event, "serial", payload, subject)
        for hook in self.select(name, subject):
            answer: R | None = await _called(hook, name, payload)
            if answer is not None and answer is not False:
                return answer
        return None

    def bail(self, event: "Event[P, R] | str", payload: P, subject: Subject | None) -> R | None:
        name = self._begin(event, "bail", payload, subject)
        for hook in self.select(name, subject):
            answer: R | None = _asked(hook, name, payload)
            if answer is not None and answer is not False:
                return answer
        return None

    def waterfall(
        self, event: "Event[P, R] | str", payload: P, inner: Callable[[], R], subject: Subject | None
    ) -> R:
        name = self._begin(event, "waterfall", payload, subject)
        return chain(name, self.select(name, subject), payload, inner)


def chain(name: str, hooks: Sequence[Hook], payload: P, inner: Callable[[], R]) -> R:
    """Let each of the hooks wrap what follows it; `inner` is the end, and all are awaited where it is."""
    if not hooks:
        return inner()
    is_awaited = inspect.iscoroutinefunction(inner)

    def step(index: int) -> Callable[[], R]:
        called = False

        def following() -> R:
            nonlocal called
            if called:
                raise KernelError(f"a listener of {name!r} called next() twice")
            called = True
            if index == len(hooks):
                return inner()
            hook = hooks[index]
            answer: R = _asked(hook, name, payload, step(index + 1))
            if is_awaited and not inspect.isawaitable(answer):
                raise KernelError(
                    f"a listener of {name} is no `async def`: it answered {type(answer).__name__}; "
                    f"it belongs to {hook.owner.row_chain}"
                )
            return answer

        return following

    return step(0)()


_NONE = object()


def _require_carrier(event: "Event[Any, Any]", payload: Any, subject: Subject | None) -> None:
    """Refuse to dispatch a scoped event without saying about whom, or for another than its payload names."""
    key = getattr(subject, "key", _NONE)
    if key is _NONE:
        raise KernelError(
            f"event {event.name!r} is scoped and is dispatched about nobody",
            code="INVARIANT",
            hint="give it subject=ScopeTarget(key), of None where it is about no scope",
        )
    if event.scoped is not True and callable(event.scoped) and (wanted := event.scoped(payload)) is not key:
        raise KernelError(
            f"event {event.name!r} is about {wanted!r} and is dispatched for the scope of {key!r}",
            code="INVARIANT",
            hint="the key of its ScopeTarget is what the payload is about",
        )


def report(owner: "EffectOwner", name: str, error: BaseException) -> None:
    owner.logger.error("listener of %s in %s failed: %s", name, owner.row_chain, told(error), exc_info=error)


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


async def _reported(answer: Awaitable[Any], owner: "EffectOwner", name: str) -> None:
    try:
        await answer
    except BaseException as error:
        report(owner, name, contained(error, f"a listener of {name}"))
