"""The only limit on how long a model may stay silent: one timer a call, whatever the number of chunks.

The timer looks at a time stamp when it fires and goes on sleeping if something arrived meanwhile. A read
that has to end, because a limit passed or the request was cancelled, is interrupted where it waits.
"""

import asyncio
from types import TracebackType

import msgspec

from dsh.kernel import CancelToken
from dsh.llm.failure import LlmError


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call may take, in milliseconds; None for no limit."""

    idle_ms: float = 300_000
    """Silence while a read is outstanding: connection, headers and body. Any received byte counts."""
    first_token_ms: float | None = None
    """From the start of the call to the first chunk."""
    total_ms: float | None = None
    """The whole call, the consumer's own time included."""


class Watchdog:
    """Guards the reads of one call. `with watchdog:` around each await on the wire; `close` at the end.

    Inside, the await is interrupted when a limit passes or the signal is cancelled, and the block raises
    `LlmError` with `TIMEOUT` or `ABORTED`. What came first stays the reason.
    """

    def __init__(self, limits: StreamLimits, signal: CancelToken | None, where: str) -> None:
        self._limits = limits
        self._signal = signal
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._since = self._started = self._loop.time()
        self._first_token_seen = False
        self._verdict: LlmError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unfollow = signal.on_cancel(self._cancelled) if signal is not None else None
        self._arm()

    def saw_chunk(self) -> None:
        """A chunk was produced: the limit on the first one is over."""
        self._first_token_seen = True

    def close(self) -> None:
        """Forget the timer and the signal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unfollow is not None:
            self._unfollow()

    def __enter__(self) -> None:
        self._since = self._loop.time()
        if self._verdict is None and self._limits.total_ms is not None:
            self._judge(self._since)
        if self._verdict is not None:
            raise self._verdict
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._verdict is None or task is None:
            return
        ours_alone = task.uncancel() <= self._cancelling
        if ours_alone and (kind is None or kind is asyncio.CancelledError or issubclass(kind, Exception)):
            raise self._verdict from None

    def _arm(self) -> None:
        deadline = self._deadline()
        self._timer = self._loop.call_at(deadline, self._look)

    def _deadline(self) -> float:
        """When to look again: at the next limit that passes if nothing arrives from now on.

        A limit that passed while nobody was reading is found when the next read begins.
        """
        now = self._loop.time()
        since = self._since if self._task is not None else now
        ends = [since + self._limits.idle_ms / 1000]
        if self._limits.first_token_ms is not None and not self._first_token_seen:
            ends.append(self._started + self._limits.first_token_ms / 1000)
        if self._limits.total_ms is not None:
            ends.append(self._started + self._limits.total_ms / 1000)
        return min((end for end in ends if end > now), default=now + 0.001)

    def _look(self) -> None:
        if self._task is not None:
            self._judge(self._loop.time())
            if self._verdict is not None:
                self._task.cancel()
                return
        self._arm()

    def _judge(self, now: float) -> None:
        limits, name = self._limits, ""
        if (now - self._since) * 1000 >= limits.idle_ms:
            name, limit = "sent nothing", limits.idle_ms
        elif limits.total_ms is not None and (now - self._started) * 1000 >= limits.total_ms:
            name, limit = "did not finish its reply", limits.total_ms
        elif (
            limits.first_token_ms is not None
            and not self._first_token_seen
            and (now - self._started) * 1000 >= limits.first_token_ms
        ):
            name, limit = "did not begin its reply", limits.first_token_ms
        if name:
            self._verdict = LlmError.of("TIMEOUT", f"{self._where} {name} within {limit:g} ms")

    def _cancelled(self, _: object) -> None:
        if self._verdict is None:
            self._verdict = LlmError.of("ABORTED", "the request was cancelled")
            if self._task is not None:
                self._task.cancel()
