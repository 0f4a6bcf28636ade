"""The contract of the timer service: callbacks later, again and again, or not too often.

Everything started here belongs to the plugin that starts it and ends with it: once it is being undone,
nothing is called any more. The four names are attributes of the contexts that inject the service:
`ctx.timeout(…)` is `ctx.use(TIMER).timeout(…)`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, ParamSpec, Protocol, overload

from dsh.kernel import Effect, ServiceKey

P = ParamSpec("P")
Callback = Callable[[], Any]
"""Called without arguments; an awaitable answer is awaited. A failure ends the run, as that of any task."""


class Limited(Protocol, Generic[P]):
    """A function that is called less often than it is asked for. Calling it answers nothing."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None: ...

    def dispose(self) -> None:
        """Drop what waits to be called; later calls do nothing."""


class Timer(Protocol):
    """Service `timer`. All times are milliseconds."""

    @overload
    def timeout(self, what: Callback, ms: float) -> Effect: ...
    @overload
    def timeout(self, what: float) -> Awaitable[None]: ...
    def timeout(self, what: Any, ms: Any = None) -> Any:
        """Call `what` once after `ms`, unless the effect is undone before. With a time alone: wait that long.

        Raises:
            KernelError: `Context has been disposed`, from the wait, when the plugin is unloaded meanwhile.
        """

    @overload
    def interval(self, what: Callback, ms: float) -> Effect: ...
    @overload
    def interval(self, what: float) -> AsyncIterator[int]: ...
    def interval(self, what: Any, ms: Any = None) -> Any:
        """Call `what` every `ms`, the first time after `ms`, until the effect is undone.

        A callback that is still awaited when its next time comes misses that time. With a time alone: an
        iterator that counts the times from 1 and ends with the plugin.
        """

    def throttle(self, what: Callable[P, Any], ms: float) -> Limited[P]:
        """A function that calls `what` at once, then not again for `ms`.

        A call within that time is made at its end, once, with the arguments of the latest.
        """

    def debounce(self, what: Callable[P, Any], ms: float) -> Limited[P]:
        """A function that calls `what` with the arguments of the latest call, `ms` after it."""


TIMER: ServiceKey[Timer] = ServiceKey("timer")
