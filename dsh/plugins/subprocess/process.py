"""One running child: its pipes, its end, and the end of its group."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import IO

from dsh.capabilities.process_group import ProcessGroup
from dsh.capabilities.subprocess import Collect, ExitStatus, SpawnError, SpawnSpec
from dsh.kernel.task import retrieve
from dsh.plugins.subprocess.collector import Collector, SpillFolder
from dsh.plugins.subprocess.pipes import PIPE_BYTES, PipeReader, PipeWriter, feed
from dsh.plugins.subprocess.start import failure, started

POLL_S = 0.01
MAX_POLL_S = 0.08
"""Between two looks at a group that is to end; each look reads through /proc."""
QUIET_S = 0.5
"""A pipe that stays open after the exit is given up once it has been silent for so long."""
UNKILLABLE_S = 2.0
"""How long after SIGKILL a group may stay. What stays longer is another user's, or stuck in the kernel."""


class Process:
    """A started child. Implements `dsh.capabilities.subprocess.ProcessHandle`.

    Everything happens in callbacks of the event loop and one task, which waits for the leader and gives
    the outcome.
    """

    def __init__(self, spec: SpawnSpec, env: dict[str, str], folder: SpillFolder) -> None:
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._popen, self._start_report = started(spec, env)
        self.group = ProcessGroup(self._popen.pid)
        is_collected = isinstance(spec.stdout, Collect)
        self._stdout = Collector(spec.stdout, folder, "stdout") if isinstance(spec.stdout, Collect) else None
        self.stderr = Collector(spec.stderr, folder, "stderr")
        self._reading: dict[int, IO[bytes]] = {}
        self._last_output = 0.0
        self._pipes_closed = asyncio.Event()
        self._leader_over = asyncio.Event()
        self._kill_at: float | None = None
        """When SIGKILL follows; set by `terminate`."""
        self._group_over = asyncio.Event()
        self._detach: Callable[[], None] | None = None
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdout is not None
        assert stderr is not None
        self._writer = PipeWriter(stdin) if stdin is not None and spec.stdin == "pipe" else None
        self._reader = None if is_collected else PipeReader(stdout)
        try:
            if self._stdout is not None:
                self._read(stdout, self._stdout)
            self._read(stderr, self.stderr)
            if stdin is not None and isinstance(spec.stdin, bytes):
                feed(stdin, spec.stdin, self._close_stdin)
        except OSError as error:
            self.group.signal(signal.SIGKILL)
            self._popen.wait()
            self.group.leader_reaped = True
            self._release()
            raise SpawnError(f"cannot watch {spec.argv[0]!r}: {error.strerror}") from error
        self._outcome = self._loop.create_task(self._run(), name=f"process {self.pid}")
        self._outcome.add_done_callback(retrieve)
        if spec.signal is not None:
            self._detach = spec.signal.on_cancel(lambda _: self.terminate())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdout(self) -> Collector:
        if self._stdout is None:
            raise RuntimeError("standard output is in pipe mode: it has a reader and is not collected")
        return self._stdout

    @property
    def writer(self) -> PipeWriter:
        if self._writer is None:
            raise RuntimeError("standard input is not in pipe mode")
        return self._writer

    @property
    def reader(self) -> PipeReader:
        if self._reader is None:
            raise RuntimeError("standard output is not in pipe mode")
        return self._reader

    @property
    def done(self) -> Awaitable[ExitStatus]:
        return asyncio.shield(self._outcome)

    @property
    def is_over(self) -> bool:
        """The outcome is there, nothing of the group is left, and nothing to read."""
        has_end = self._outcome.done() and (self._reader is None or self._reader.is_closed)
        return has_end and not self.group.is_alive()

    def close(self) -> None:
        """Give back what a reader holds that has not read to the end."""
        if self._reader is not None:
            self._reader.close()

    async def finish(self) -> ExitStatus:
        try:
            return await self.done
        except asyncio.CancelledError:
            self.terminate()
            raise

    # -- pipes -----------------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes], collector: Collector) -> None:
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        self._reading[fd] = pipe

        def readable() -> None:
            try:
                data = os.read(fd, PIPE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._last_output = self._loop.time()
                collector.feed(data)
            else:
                self._close_pipe(fd)

        self._loop.add_reader(fd, readable)

    def _close_pipe(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._reading.pop(fd).close()
        if not self._reading:
            self._pipes_closed.set()

    def _close_stdin(self) -> None:
        pipe = self._popen.stdin
        if self._writer is not None:
            self._writer.close()
        elif pipe is not None and not pipe.closed:
            self._loop.remove_writer(pipe.fileno())
            pipe.close()

    # -- the outcome -----------------------------------------------------------------------------

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
            is_held_outside = bool(self._reading) and not left
            self._release()
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
        if self._start_report is not None and code:
            why = failure(self._start_report)
            if why is not None and code > 0:  # ended by a signal, it is judged like any other
                raise SpawnError(f"cannot start {self._spec.argv[0]!r}: {why}")

    async def _drain(self) -> None:
        """After the exit: until the pipes close, or stay silent, at most the grace period."""
        self._last_output = self._loop.time()
        end = self._last_output + self._spec.grace_ms / 1000
        while self._reading:
            try:
                async with asyncio.timeout_at(min(end, self._last_output + QUIET_S)):
                    await self._pipes_closed.wait()
            except TimeoutError:
                if self._loop.time() >= min(end, self._last_output + QUIET_S):
                    return

    def _release(self) -> None:
        self._close_stdin()
        for fd in tuple(self._reading):
            self._close_pipe(fd)
        if self._stdout is not None:
            self._stdout.close()
        if self._reader is not None:
            self._reader.give_up()
        self.stderr.close()
        if self._start_report is not None:
            os.close(self._start_report)
            self._start_report = None
        if self._detach is not None:
            self._detach()

    # -- the end ---------------------------------------------------------------------------------

    def terminate(self) -> None:
        if self._kill_at is not None or not self.group.exists():
            return
        self._kill_at = self._loop.time() + self._spec.grace_ms / 1000
        self.group.signal(signal.SIGTERM)
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
        await self.done
        return not self.group.is_alive()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no names of their own
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
