"""One running child: its pipes, its end, and the end of its group."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import IO

from dsh.capabilities.process_group import ProcessGroup
from dsh.capabilities.subprocess import Collect, ExitStatus, SpawnError, SpawnSpec
from dsh.plugins.subprocess.collector import Collector, SpillFolder

PIPE_BYTES = 1 << 16
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
        self._popen = _started(spec, env)
        self.group = ProcessGroup(self._popen.pid)
        if not isinstance(spec.stdout, Collect) or spec.stdin == "pipe":
            raise SpawnError("streams in pipe mode are not built yet")
        self.stdout = Collector(spec.stdout, folder, "stdout")
        self.stderr = Collector(spec.stderr, folder, "stderr")
        self._reading: dict[int, IO[bytes]] = {}
        self._last_output = 0.0
        self._pipes_closed = asyncio.Event()
        self._leader_over = asyncio.Event()
        self._kill_at: float | None = None
        """When SIGKILL follows; set by `terminate`."""
        self._group_over = asyncio.Event()
        self._detach: Callable[[], None] | None = None
        try:
            self._read(self._popen.stdout, self.stdout)
            self._read(self._popen.stderr, self.stderr)
            if isinstance(spec.stdin, bytes):
                self._write(self._popen.stdin, spec.stdin)
        except OSError as error:
            self.group.signal(signal.SIGKILL)
            self._popen.wait()
            self.group.leader_reaped = True
            self._release()
            raise SpawnError(f"cannot watch {spec.argv[0]!r}: {error.strerror}") from error
        self._outcome = self._loop.create_task(self._run(), name=f"process {self.pid}")
        if spec.signal is not None:
            self._detach = spec.signal.on_cancel(lambda _: self.terminate())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def done(self) -> Awaitable[ExitStatus]:
        return asyncio.shield(self._outcome)

    @property
    def is_over(self) -> bool:
        """The outcome is there and nothing of the group is left."""
        return self._outcome.done() and not self.group.is_alive()

    async def finish(self) -> ExitStatus:
        try:
            return await self.done
        except asyncio.CancelledError:
            self.terminate()
            raise

    # -- pipes -----------------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes] | None, collector: Collector) -> None:
        assert pipe is not None
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

    def _write(self, pipe: IO[bytes] | None, data: bytes) -> None:
        assert pipe is not None
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        left = memoryview(data)

        def writable() -> None:
            nonlocal left
            try:
                left = left[os.write(fd, left[:PIPE_BYTES]) :]
            except BlockingIOError:
                return
            except OSError:
                left = left[:0]  # a child that does not read its input is judged by its exit alone
            if not left:
                self._close_stdin()

        self._loop.add_writer(fd, writable)

    def _close_stdin(self) -> None:
        pipe = self._popen.stdin
        if pipe is not None and not pipe.closed:
            self._loop.remove_writer(pipe.fileno())
            pipe.close()

    # -- the outcome -----------------------------------------------------------------------------

    async def _run(self) -> ExitStatus:
        try:
            code = await self._leader_exit()
            await self._drain()
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
        self.stdout.close()
        self.stderr.close()
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


def _started(spec: SpawnSpec, env: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(spec.argv),
            cwd=spec.cwd,
            env=env,
            stdin=subprocess.PIPE if isinstance(spec.stdin, bytes) else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise SpawnError(f"cannot start {spec.argv[0]!r}: {_why(error, spec)}") from error


def _why(error: OSError | ValueError, spec: SpawnSpec) -> str:
    if isinstance(error, UnicodeError):
        return "an argument or a variable is not valid Unicode"
    if isinstance(error, ValueError):
        return "an argument or a variable holds a NUL character"
    what = (error.strerror or str(error)).lower()
    if error.filename == spec.cwd:
        return f"the directory {spec.cwd!r} cannot be entered: {what}"
    if error.errno == errno.ENOENT:
        return what if "/" in spec.argv[0] else "there is no such program on PATH"
    if error.errno == errno.E2BIG:
        size = max(len(os.fsencode(argument)) for argument in spec.argv)
        return f"an argument of {size} bytes is too long for the system; put the text into a file"
    return what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no names of their own
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
