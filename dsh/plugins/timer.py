"""Row `timer`: timeouts, intervals, throttled and debounced functions that end with their plugin.

Provides the service `timer` and its four methods as attributes of contexts. Times are measured by the event
loop's clock.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

import msgspec

from dsh.capabilities.timer import TIMER, Limited
from dsh.errors import KernelError
from dsh.kernel import Context, Effect, Service, ServiceKey
from dsh.kernel.foreign import contained
from dsh.kernel.task import retrieve

provide = [TIMER]
DISPOSED = "Context has been disposed"


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The row has no options."""


def apply(ctx: Context) -> None:
    TimerService(ctx)
    ctx.mixin(TIMER, ["timeout", "interval", "throttle", "debounce"])


class TimerService(Service):
    """Implements `Timer`. Holds nothing: each timer is an effect of its caller."""

    provide: ClassVar[ServiceKey[Any]] = TIMER

    def timeout(self, what: Any, ms: float | None = None) -> Any:
        """Implements `Timer.timeout`."""
        if ms is None:
            return _wait(self.ctx, what)
        delay_s, ctx = _seconds(ms), self.ctx
        effect = ctx.fiber.own("ctx.timeout()")

        def fire() -> None:
            effect.release()
            _call(ctx, "a timeout", what)

        effect.add(asyncio.get_running_loop().call_later(delay_s, fire).cancel)
        return effect

    def interval(self, what: Any, ms: float | None = None) -> Any:
        """Implements `Timer.interval`."""
        return _Ticks(self.ctx, what) if ms is None else _interval(self.ctx, what, ms)

    def throttle(self, what: Callable[..., Any], ms: float) -> Limited[...]:
        """Implements `Timer.throttle`."""
        return _Throttled(self.ctx, "ctx.throttle()", what, ms)

    def debounce(self, what: Callable[..., Any], ms: float) -> Limited[...]:
        """Implements `Timer.debounce`."""
        return _Debounced(self.ctx, "ctx.debounce()", what, ms)


def _seconds(ms: float) -> float:
    if not 0 <= ms < float("inf"):
        raise ValueError(f"a time must be 0 ms or more, not {ms!r}")
    return ms / 1000


def _call(ctx: Context, who: str, what: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call it; an awaitable answer becomes a task of the caller's. Failures are told as those of tasks.

    Once its plugin is being undone nothing is called: what was opened after the timer may be closed already.
    """
    if not ctx.fiber.accepts_effects:
        return
    try:
        answer = what(*args, **kwargs)
    except BaseException as error:
        ctx.kernel.failed(contained(error, who), f"{who} of {ctx.fiber.row_chain}")
        return
    if inspect.isawaitable(answer):
        ctx.spawn(_awaited(answer), who)


async def _awaited(answer: Awaitable[Any]) -> None:
    await answer


def _wait(ctx: Context, ms: float) -> "asyncio.Future[None]":
    """A future that is done after the time, and fails when the plugin is unloaded before."""
    delay_s = _seconds(ms)
    effect = ctx.fiber.own("ctx.timeout()")
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(delay_s, _settle, waiter, None)

    def end(_: "asyncio.Future[None]") -> None:
        timer.cancel()
        effect.release()

    waiter.add_done_callback(end)
    waiter.add_done_callback(retrieve)
    effect.add(lambda: _settle(waiter, KernelError(DISPOSED, code="INACTIVE_EFFECT")))
    return waiter


def _settle(waiter: "asyncio.Future[None]", error: KernelError | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _interval(ctx: Context, what: Callable[[], Any], ms: float) -> Effect:
    step_s = _seconds(ms)
    if not step_s:
        raise ValueError("an interval needs a time above 0 ms")
    effect = ctx.fiber.own("ctx.interval()")
    loop = asyncio.get_running_loop()
    state = _Running(loop.time() + step_s)

    def fire() -> None:
        state.due = max(state.due + step_s, loop.time())
        state.timer = loop.call_at(state.due, fire)
        if not state.is_busy:
            state.is_busy = True
            _call(ctx, "an interval", _freeing(what, state))

    state.timer = loop.call_at(state.due, fire)
    effect.add(lambda: state.timer.cancel() if state.timer is not None else None)
    return effect


class _Running:
    """When an interval is due next, its timer, and whether its callback is still awaited."""

    def __init__(self, due: float) -> None:
        self.due = due
        self.timer: asyncio.TimerHandle | None = None
        self.is_busy = False


def _freeing(what: Callable[[], Any], state: _Running) -> Callable[[], Any]:
    def called() -> Any:
        answer = None
        try:
            answer = what()
        finally:
            if not inspect.isawaitable(answer):
                state.is_busy = False
        return later(answer) if state.is_busy else None

    async def later(answer: Awaitable[Any]) -> None:
        try:
            await answer
        finally:
            state.is_busy = False

    return called


class _Ticks(AsyncIterator[int]):
    """Counts the times of an interval. One that nobody was waiting for is counted, not repeated."""

    def __init__(self, ctx: Context, ms: float) -> None:
        self._ctx, self._step_s = ctx, _seconds(ms)
        if not self._step_s:
            raise ValueError("an interval needs a time above 0 ms")
        self._begin = asyncio.get_running_loop().time()
        self._count = 0

    async def __anext__(self) -> int:
        now = asyncio.get_running_loop().time()
        self._count = max(self._count, int((now - self._begin) / self._step_s)) + 1
        await _wait(self._ctx, max(0.0, self._begin + self._count * self._step_s - now) * 1000)
        return self._count


class _Limited:
    """Implements `Limited`: an effect of its own, and the timer of the call that waits."""

    def __init__(self, ctx: Context, label: str, what: Callable[..., Any], ms: float) -> None:
        self._ctx, self._label, self._what = ctx, label, what
        self._delay_s = _seconds(ms)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._effect = ctx.fiber.own(label)
        self._effect.add(self._drop)

    def dispose(self) -> None:
        """Implements `Limited.dispose`."""
        self._effect()

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call_in(self, delay_s: float, args: Any, kwargs: Any) -> None:
        self._drop()
        self._timer = self._loop.call_later(delay_s, self._fire, args, kwargs)

    def _fire(self, args: Any, kwargs: Any) -> None:
        self._timer = None
        _call(self._ctx, self._label, self._what, *args, **kwargs)


class _Throttled(_Limited):
    def __init__(self, ctx: Context, label: str, what: Callable[..., Any], ms: float) -> None:
        super().__init__(ctx, label, what, ms)
        self._free_at = float("-inf")

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if not self._effect.active:
            return
        left_s = self._free_at - self._loop.time()
        if left_s > 0:
            self._call_in(left_s, args, kwargs)
        else:
            self._drop()
            self._fire(args, kwargs)

    def _fire(self, args: Any, kwargs: Any) -> None:
        self._free_at = self._loop.time() + self._delay_s
        super()._fire(args, kwargs)


class _Debounced(_Limited):
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._effect.active:
            self._call_in(self._delay_s, args, kwargs)
