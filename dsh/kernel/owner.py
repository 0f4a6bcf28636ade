"""What a fiber owns: its effects, taken in, given up, and all undone in the end, last in first out."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.foreign import contained, told
from dsh.kernel.root import Kernel

SLOW_DISPOSER_S = 10.0
"""How long one disposer may take before a warning names it. It is never cut off here."""


class EffectFailure(NamedTuple):
    """An effect whose setup failed after it had begun, so that nobody could be told by an exception."""

    label: str
    error: Exception


class EffectOwner(ABC):
    """The owning part of a fiber: the list of its effects."""

    kernel: Kernel

    def __init__(self) -> None:
        self._effects: dict[Effect, None] = {}
        self.failures: list[EffectFailure] = []
        """Effects that could not be set up since the last load. What they had done is undone."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def row_chain(self) -> str:
        """The rows around it, the innermost first: how messages say whose effect it is."""

    @property
    @abstractmethod
    def logger(self) -> logging.Logger: ...

    @property
    @abstractmethod
    def accepts_effects(self) -> bool:
        """Whether anything may be registered now."""

    @property
    def effects(self) -> list[Effect]:
        """What is held, in the order of registration; each effect shows its children."""
        return list(self._effects)

    def admit(self) -> None:
        """Refuse what a dead or dying fiber may no longer do.

        Raises:
            KernelError: code INACTIVE_EFFECT.
        """
        if not self.accepts_effects:
            raise KernelError(
                f"cannot create effect on inactive context ({self.name})", code="INACTIVE_EFFECT"
            )

    def own(self, label: str, *, is_provider: bool = False) -> Effect:
        """A new effect in the list; whoever asked runs or fills it."""
        self.admit()
        effect = Effect(self, label, is_provider=is_provider)
        self._effects[effect] = None
        return effect

    def release(self, effect: Effect) -> None:
        """Hold an effect no longer: it was undone, has ended, or moved into another."""
        self._effects.pop(effect, None)

    def keep(self, coro: Coroutine[Any, Any, Any], label: str) -> "asyncio.Task[Any]":
        """Start a task on the kernel's account; whoever starts it sees to its failure."""
        return self.kernel.keep(coro, label)

    def note_failure(self, label: str, error: Exception) -> None:
        """An effect could not be set up: say so, and remember it."""
        self.logger.error("effect %s of %s failed: %s", label, self.row_chain, told(error), exc_info=error)
        self.failures.append(EffectFailure(label, error))

    def spawn(
        self, coro: Coroutine[Any, Any, Any], label: str, failed: Callable[[BaseException, str], None]
    ) -> Effect:
        """Run a task that is cancelled and awaited when its owner goes. `failed` is told how it died."""
        try:
            self.kernel.loop()
            effect = self.own(label)
        except KernelError:
            coro.close()
            raise

        async def work() -> None:
            try:
                await coro
            except BaseException as error:
                failed(contained(error, label), f"{label} of {self.row_chain}")
            finally:
                self.release(effect)

        task = self.kernel.keep(work(), label)

        async def stop() -> None:
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait((task,))
                coro.close()

        effect.add(stop)
        return effect

    def attend(self, coro: Coroutine[Any, Any, None], label: str) -> None:
        """Run it as a task of one's own; one that is ending lets it run to its end instead."""
        if self.accepts_effects:
            self.spawn(coro, label, self.kernel.failed)
        else:
            self.kernel.keep(coro, label)

    async def run_disposers(self) -> None:
        """Last in first out, one after the other; what is provided goes first."""
        effects = list(reversed(self._effects))
        first = [provider for effect in effects for provider in effect.providers()]
        for effect in (*first, *(e for e in effects if not e.is_provider)):
            slow = None
            try:
                disposal = effect()
                if disposal.pending:
                    slow = self.kernel.loop().call_later(SLOW_DISPOSER_S, self._tell_slow, effect)
                await disposal
            except BaseException as raised:
                error = contained(raised, f"disposing {effect.label}")
                whose = self.row_chain
                self.logger.error(
                    "disposing %s of %s failed: %s", effect.label, whose, told(error), exc_info=error
                )
            finally:
                if slow is not None:
                    slow.cancel()

    def _tell_slow(self, effect: Effect) -> None:
        self.logger.warning("still disposing %s of %s", effect.label, self.row_chain)
