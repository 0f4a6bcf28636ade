"""Reversible registrations: an effect is done now and undone once, in reverse order, when its owner goes.

`setup` may be a plain callable, a coroutine function, a (async) generator function that yields
disposers as it acquires things, or a (async) context manager. What it may answer: a disposer, nothing,
an awaitable of either, or an iterable of disposers (`spec/kernel.md` §6).
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any

from dsh.kernel.foreign import contained, told

if TYPE_CHECKING:
    from dsh.kernel.owner import EffectOwner

Disposer = Callable[[], Any]
EXPECTED = "None or a function that undoes it"
SETUP = "a function that sets it up and answers None or a function that undoes it"
_ANSWERS = (
    Iterator,
    AsyncIterator,
    list,
    tuple,
    contextlib.AbstractContextManager,
    contextlib.AbstractAsyncContextManager,
)
"""What stands for a setup without being one, besides awaitables: it was begun already, or is a manager."""


class Disposal:
    """What undoing an effect returns: awaiting it waits until everything is undone."""

    __slots__ = ("_errors", "_label", "_task")

    def __init__(self, label: str, errors: list[Exception], task: "asyncio.Task[None] | None") -> None:
        self._label, self._errors, self._task = label, errors, task

    @property
    def pending(self) -> bool:
        return self._task is not None and not self._task.done()

    def raise_errors(self) -> None:
        """Raise what the disposers raised: the one error, or a group of them."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup(f"disposing {self._label}", self._errors)

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from asyncio.shield(self._task).__await__()
        self.raise_errors()


class Effect:
    """One reversible registration. Calling it undoes it; every later call joins the first."""

    __slots__ = ("_disposal", "_disposers", "_setup_task", "is_provider", "label", "owner")

    def __init__(self, owner: "EffectOwner", label: str, *, is_provider: bool = False) -> None:
        self.owner = owner
        self.label = label
        self.is_provider = is_provider
        self._disposers: list[Disposer] = []
        self._setup_task: asyncio.Task[None] | None = None
        self._disposal: Disposal | None = None

    def __repr__(self) -> str:
        return f"<Effect {self.label}>"

    @property
    def children(self) -> "list[Effect]":
        return [d for d in self._disposers if isinstance(d, Effect)]

    def providers(self) -> "Iterator[Effect]":
        """The effect itself, if it provides a service, and those that moved into it, the latest first."""
        if self.is_provider:
            yield self
        for child in reversed(self._disposers):
            if isinstance(child, Effect):
                yield from child.providers()

    @property
    def active(self) -> bool:
        """It is neither undone, nor being undone, nor has it ended by itself or failed."""
        return self._disposal is None

    def __await__(self) -> "Generator[Any, None, Effect]":
        """Wait for an asynchronous setup; raises what it raised."""
        if self._setup_task is not None:
            yield from asyncio.shield(self._setup_task).__await__()
        return self

    def __call__(self) -> Disposal:
        if self._disposal is None:
            self._disposal = Disposal(self.label, [], None)  # what a disposer that calls it again gets
            self._disposal = self._undo()
            if not self._disposal.pending:
                self.owner.release(self)
        return self._disposal

    def release(self) -> None:
        """Give up what is left to undo: it has ended by itself."""
        self._disposers.clear()
        if self._disposal is None:
            self._disposal = Disposal(self.label, [], None)
        self.owner.release(self)

    def add(self, disposer: Disposer) -> None:
        """Own one more disposer. An effect of the same fiber moves from the fiber into this one."""
        if isinstance(disposer, Effect):
            disposer.owner.release(disposer)
        elif not callable(disposer):
            raise TypeError(f"Invalid effect: {disposer!r} in {self.label}, expected {EXPECTED}")
        self._disposers.append(disposer)

    def _undo(self) -> Disposal:
        errors: list[Exception] = []
        answer: Any = None
        if self._setup_task is not None and not self._setup_task.done():
            if self.owner.kernel.is_closing:
                self._setup_task.cancel()
            answer = asyncio.wait((self._setup_task,))  # what made it fail was reported and rolled back
        while answer is None and self._disposers:
            answer = self._dispose_one(errors)
            if isinstance(answer, Disposal) and not answer.pending:
                _collect(answer, errors)
                answer = None
            elif not inspect.isawaitable(answer):
                answer = None
        if answer is None:
            return Disposal(self.label, errors, None)
        task = self.owner.keep(self._undo_rest(errors, answer), f"dispose {self.label}")
        return Disposal(self.label, errors, task)

    def _dispose_one(self, errors: list[Exception]) -> Any:
        try:
            return self._disposers.pop()()
        except BaseException as error:
            errors.append(contained(error, f"a disposer of {self.label}"))
            return None

    async def _undo_rest(self, errors: list[Exception], answer: Any = None) -> None:
        """Wait for what a disposer has answered, then run the others one after the other."""
        while True:
            if inspect.isawaitable(answer):
                try:
                    await answer
                except BaseException as error:
                    errors.append(contained(error, f"a disposer of {self.label}"))
            if not self._disposers:
                break
            answer = self._dispose_one(errors)
        self.owner.release(self)

    def run(self, setup: Any) -> None:
        """Do the thing. A synchronous failure rolls back and is raised; an asynchronous one is reported."""
        try:
            if not (callable(setup) or isinstance(setup, _ANSWERS) or inspect.isawaitable(setup)):
                raise TypeError(f"Invalid effect: {setup!r} as the setup of {self.label}, expected {SETUP}")
            answer = _started(setup)
            if self._take(answer):
                return
        except BaseException:
            self()
            raise
        self._setup_task = self.owner.keep(self._finish_setup(answer), f"setup {self.label}")

    def begin(self, answer: Any) -> "Coroutine[Any, Any, None] | None":
        """Collect what a plugin's body answered; what is left to await, or None."""
        return None if self._take(answer) else self._take_later(answer)

    async def _finish_setup(self, answer: Any) -> None:
        try:
            await self._take_later(answer)
        except BaseException as raised:
            errors: list[Exception] = []
            await self._undo_rest(errors)
            for error in errors:
                whose = self.owner.row_chain
                self.owner.logger.error(
                    "rolling back %s of %s failed: %s", self.label, whose, told(error), exc_info=error
                )
            self.release()
            failure = contained(raised, f"effect {self.label}")
            self.owner.note_failure(self.label, failure)
            raise failure  # noqa: B904 -- the same one, or made of it

    def _take(self, answer: Any) -> bool:
        """Collect a synchronous answer; False when it has to be awaited."""
        if answer is None:
            return True
        if hasattr(answer, "__aenter__") or hasattr(answer, "__anext__") or inspect.iscoroutine(answer):
            return False
        if isinstance(answer, contextlib.AbstractContextManager):
            answer.__enter__()
            self.add(lambda: answer.__exit__(None, None, None))
        elif callable(answer):
            self.add(answer)
        elif isinstance(answer, Iterator | list | tuple):
            try:
                for disposer in answer:
                    if disposer is not None:
                        self.add(disposer)
            finally:
                if isinstance(answer, Generator):
                    answer.close()
        elif inspect.isawaitable(answer):
            return False
        else:
            raise TypeError(f"Invalid effect: {answer!r} in {self.label}, expected {EXPECTED}")
        return True

    async def _take_later(self, answer: Any) -> None:
        if hasattr(answer, "__aenter__"):
            await answer.__aenter__()
            self.add(lambda: answer.__aexit__(None, None, None))
        elif isinstance(answer, AsyncIterator):
            try:
                async for disposer in answer:
                    if disposer is not None:
                        self.add(disposer)
            finally:
                closing = getattr(answer, "aclose", None)
                if closing is not None:
                    await closing()
        else:
            later = await answer
            if not self._take(later):
                await self._take_later(later)


def _started(setup: Any) -> Any:
    """What the setup answers. A manager made by `@contextmanager` can be called too, but as a decorator."""
    is_manager = not isinstance(setup, type) and (hasattr(setup, "__enter__") or hasattr(setup, "__aenter__"))
    return setup() if callable(setup) and not is_manager else setup


def _collect(disposal: Disposal, errors: list[Exception]) -> None:
    try:
        disposal.raise_errors()
    except Exception as error:
        errors.append(error)
