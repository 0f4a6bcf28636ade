"""One running child, whatever it reads and writes: its end, and the end of its group."""

import asyncio
import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dsh.capabilities.process_group import ProcessGroup
from dsh.capabilities.subprocess import ExitStatus, SpawnError
from dsh.kernel.task import retrieve
from dsh.plugins.subprocess.start import failure

if TYPE_CHECKING:
    from dsh.kernel import CancelToken

POLL_S = 0.01
MAX_POLL_S = 0.08
"""Between two looks at a group that is to end; each look reads through /proc."""
UNKILLABLE_S = 2.0
"""How long after SIGKILL a group may stay. What stays longer is another user's, or stuck in the kernel."""


class Child(ABC):
    """A started child. Everything happens in callbacks of the event loop and one task, which waits for the
    leader and gives the outcome.

    A kind of child overrides `_drain`, `_is_held` and `_release`, and calls `_watch` at the end of its
    constructor.
    """

    _farewell: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    """What asks the group to end."""

    def __init__(
        self,
        program: str,
        popen: "subprocess.Popen[bytes]",
        group: ProcessGroup,
        *,
        grace_ms: int,
        start_report: int | None,
    ) -> None:
        self._program = program
        self._popen = popen
        self.group = group
        self._grace_s = grace_ms / 1000
        self._start_report = start_report
        self._loop = asyncio.get_running_loop()
        self._leader_over = asyncio.Event()
        self._kill_at: float | None = None
        """When SIGKILL follows; set by `terminate`."""
        self._group_over = asyncio.Event()
        self._detach: Callable[[], None] | None = None
        self._outcome: asyncio.Task[ExitStatus]

    def _watch(self, token: "CancelToken | None") -> None:
        self._outcome = self._loop.create_task(self._run(), name=f"process {self.pid}")
        self._outcome.add_done_callback(retrieve)
        if token is not None:
            self._detach = token.on_cancel(lambda _: self.terminate())

    def _give_up(self) -> None:
        """It was started and cannot be watched."""
        self.group.signal(signal.SIGKILL)
        self._popen.wait()
        self.group.leader_reaped = True
        self._end()

    # -- what a kind of child adds ---------------------------------------------------------------

    @abstractmethod
    async def _drain(self) -> None:
        """After the leader's exit: take in what is still coming, within bounds."""

    @abstractmethod
    def _is_held(self) -> bool:
        """Whether somebody still holds its streams open."""

    @abstractmethod
    def _release(self) -> None:
        """Close what it holds. Idempotent."""

    def close(self) -> None:  # noqa: B027 - most kinds have nothing to give back
        """Give back what a reader holds that has not read to the end."""

    @property
    def is_closed(self) -> bool:
        """Nothing is left to read."""
        return True

    # -- the outcome -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def done(self) -> Awaitable[ExitStatus]:
        return asyncio.shield(self._outcome)

    @property
    def is_over(self) -> bool:
        """The outcome is there, nothing of the group is left, and nothing to read."""
        return self._outcome.done() and self.is_closed and not self.group.is_alive()

    async def finish(self) -> ExitStatus:
        try:
            return await self.done
        except asyncio.CancelledError:
            self.terminate()
            raise

    async def _run(self) -> ExitStatus:
        try:
            code = await self._leader_exit()
            await self._drain()
            self._check_start(code)
        except SpawnError:
            raise
        except BaseException:  # the loop is going down, say: nobody is left to wait for a grace period
            self.group.signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(UNKILLABLE_S)
                self.group.leader_reaped = True
            raise
        finally:
            left = self.group.is_alive()  # before the pipes close: who writes on dies of that
            is_held_outside = self._is_held() and not left
            self._end()
        if left and self._kill_at is not None:
            await self._group_over.wait()
            left = self.group.is_alive()
        return ExitStatus(
            exit_code=code if code is not None and code >= 0 else None,
            signal=_signal_name(-code) if code is not None and code < 0 else None,
            left_running=left,
            detached=is_held_outside,
        )

    async def _leader_exit(self) -> int | None:
        """The leader's return code as in `Popen`, None when it could not be killed."""
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this platform, forbidden, or no descriptor left
            while self._popen.poll() is None and not self._leader_over.is_set():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        else:
            self._loop.add_reader(fd, self._leader_over.set)
            try:
                await self._leader_over.wait()
            finally:
                self._loop.remove_reader(fd)
                os.close(fd)
        code = self._popen.poll()
        self.group.leader_reaped = code is not None
        return code

    def _check_start(self, code: int | None) -> None:
        if self._start_report is not None and code is not None and code > 0:
            why = failure(self._start_report)  # one that a signal has ended is judged like any other
            if why is not None:
                raise SpawnError(f"cannot start {self._program!r}: {why}")

    def _end(self) -> None:
        self._release()
        if self._start_report is not None:
            os.close(self._start_report)
            self._start_report = None
        if self._detach is not None:
            self._detach()

    # -- the end ---------------------------------------------------------------------------------

    def terminate(self) -> None:
        if self._kill_at is not None or not self.group.exists():
            return
        self._kill_at = self._loop.time() + self._grace_s
        for number in self._farewell:
            self.group.signal(number)
        self.group.signal(signal.SIGCONT)  # a stopped process hears of SIGTERM only when it goes on
        self._press(self._kill_at, POLL_S)

    def _press(self, kill_at: float, wait_s: float) -> None:
        """Until the group is gone: SIGKILL once the grace period is over; in the end, leave it."""
        now = self._loop.time()
        if not self.group.is_alive():
            self._group_over.set()
        elif now >= kill_at + UNKILLABLE_S:
            self._group_over.set()
            self._leader_over.set()
        else:
            if now >= kill_at:
                self.group.signal(signal.SIGKILL)
            self._loop.call_later(wait_s, self._press, kill_at, min(2 * wait_s, MAX_POLL_S))

    async def wait_for_exit(self) -> bool:
        while self._kill_at is None and self.group.is_alive():  # noqa: ASYNC110 - nobody tells of its end
            await asyncio.sleep(MAX_POLL_S)
        if self._kill_at is not None:
            await self._group_over.wait()
        with contextlib.suppress(SpawnError):
            await self.done
        return not self.group.is_alive()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no names of their own
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
