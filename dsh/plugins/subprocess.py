"""Row `subprocess`: starts processes in groups of their own and leaves none behind.

A child gets the null device or given bytes as stdin, real pipes for its output, an environment without
secrets, and no terminal. Its output is read until it exits, not until the pipes close, since a child in
the background may hold them for ever (`spec/capabilities-core.md` §8).
"""

import asyncio
import atexit
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import IO

from dsh.capabilities import process_group
from dsh.capabilities.subprocess import (
    MAX_TIMER_MS,
    SUBPROCESS,
    Captured,
    Collect,
    ExitStatus,
    SpawnError,
    SpawnSpec,
)
from dsh.kernel import Context, Service

READ_BYTES = 1 << 16
POLL_S = 0.015
QUIET_S = 0.5
"""A pipe that stays open after the exit is given up once it has been silent for so long."""
SECRET_NAME = re.compile(r"(?<!MON)KEY(?!BOARD)|PASSW|PASSPHRASE|SECRET|TOKEN|CREDENTIAL", re.IGNORECASE)


def scrubbed(environ: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> dict[str, str]:
    """The environment a child may see: without secrets by name, without `DSH_*`."""
    return {
        name: value
        for name, value in environ.items()
        if not SECRET_NAME.search(name) and not name.upper().startswith("DSH_") and name not in hidden
    }


class SpillFolder:
    """The private folder for streams that outgrew memory; made on first use, removed at the end."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def open(self, label: str) -> tuple[IO[bytes], Path]:
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix=f"dsh-subprocess-{os.getpid()}-"))
        path = self._path / f"{label}-{secrets.token_hex(6)}.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "wb"), path

    def remove(self) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None


class Collector:
    """The tail of one stream in memory, and all of it in a file once it has outgrown that."""

    def __init__(self, limits: Collect, folder: SpillFolder, label: str) -> None:
        self._limits, self._folder, self._label = limits, folder, label
        self._tail = bytearray()
        self._total = 0
        self._spill: IO[bytes] | None = None
        self._spill_path: Path | None = None
        self._may_spill = limits.spill_max_bytes is not None

    def feed(self, data: bytes) -> None:
        if self._may_spill and self._total + len(data) > self._limits.max_bytes:
            self._write_spill(data)
        self._total += len(data)
        self._tail += data
        if len(self._tail) > 2 * self._limits.max_bytes + READ_BYTES:
            del self._tail[: -self._limits.max_bytes]

    def _write_spill(self, data: bytes) -> None:
        cap = self._limits.spill_max_bytes or 0
        try:
            if self._total + len(data) > cap:
                self._drop_spill()
                return
            if self._spill is None:
                self._spill, self._spill_path = self._folder.open(self._label)
                self._spill.write(self._tail)
            self._spill.write(data)
        except OSError:
            self._drop_spill()

    def _drop_spill(self) -> None:
        """Never advertise an incomplete file."""
        self._may_spill = False
        if self._spill is not None and self._spill_path is not None:
            self._spill.close()
            self._spill_path.unlink(missing_ok=True)
        self._spill, self._spill_path = None, None

    def close(self) -> None:
        if self._spill is not None:
            try:
                self._spill.close()
            except OSError:
                self._drop_spill()

    def read(self) -> Captured:
        return self.read_from(0)

    def read_from(self, offset: int) -> Captured:
        if self._spill is not None and not self._spill.closed:
            self._spill.flush()
        start = max(0, self._total - self._limits.max_bytes)
        lossy = offset < start
        begin = len(self._tail) - (self._total - max(offset, start))
        raw = bytes(self._tail[begin:])
        if lossy:
            raw = raw[_first_boundary(raw) :]
        path = str(self._spill_path) if self._spill_path is not None else None
        return Captured(raw.decode("utf-8", "replace"), raw, self._total, lossy, path)


def _first_boundary(raw: bytes) -> int:
    """Where the first whole character starts, so that a cut never shows as U+FFFD."""
    index = 0
    while index < min(4, len(raw)) and raw[index] & 0xC0 == 0x80:
        index += 1
    return index


class Process:
    """A running child, from its start until its whole group is gone."""

    def __init__(self, spec: SpawnSpec, env: dict[str, str], folder: SpillFolder) -> None:
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        try:
            self._popen = subprocess.Popen(
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
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise SpawnError(f"cannot start {spec.argv[0]!r}: {reason}") from error
        self.pid = self._popen.pid
        process_group.track(self.pid)
        self.stdout = Collector(spec.stdout, folder, f"{self.pid}-stdout")
        self.stderr = Collector(spec.stderr, folder, f"{self.pid}-stderr")
        self._open: set[int] = set()
        self._last_output = 0.0
        self._terminating: asyncio.Task[None] | None = None
        self._gone = False
        self._pipes_closed = asyncio.Event()
        for pipe, collector in ((self._popen.stdout, self.stdout), (self._popen.stderr, self.stderr)):
            assert pipe is not None
            self._watch(pipe.fileno(), collector)
        self._outcome = asyncio.ensure_future(self._run())
        self._detach = spec.signal.on_cancel(lambda _: self.terminate()) if spec.signal else None

    @property
    def gone(self) -> bool:
        """The whole group was seen gone."""
        return self._gone

    @property
    def done(self) -> Awaitable[ExitStatus]:
        return asyncio.shield(self._outcome)

    def _watch(self, fd: int, collector: Collector) -> None:
        os.set_blocking(fd, False)
        self._open.add(fd)

        def readable() -> None:
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._last_output = self._loop.time()
                collector.feed(data)
            else:
                self._unwatch(fd)

        self._loop.add_reader(fd, readable)

    def _unwatch(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            self._loop.remove_reader(fd)
        if not self._open:
            self._pipes_closed.set()

    async def _run(self) -> ExitStatus:
        feeding = asyncio.ensure_future(self._feed_stdin())
        code = await self._leader_exit()
        await self._drain()
        feeding.cancel()
        for fd in tuple(self._open):
            self._unwatch(fd)
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        self.stdout.close()
        self.stderr.close()
        if self._detach is not None:
            self._detach()
        left = process_group.is_alive(self.pid)
        if not left:
            self._seen_gone()
        elif self._terminating is not None:
            await asyncio.shield(self._terminating)
            left = False
        if code < 0:
            return ExitStatus(None, signal.Signals(-code).name, left)
        return ExitStatus(code, None, left)

    async def _feed_stdin(self) -> None:
        pipe = self._popen.stdin
        if pipe is None or not isinstance(self._spec.stdin, bytes):
            return
        data = memoryview(self._spec.stdin)
        os.set_blocking(pipe.fileno(), False)
        try:
            while data:
                try:
                    data = data[os.write(pipe.fileno(), data[:READ_BYTES]) :]
                except BlockingIOError:
                    await asyncio.sleep(POLL_S)
        except OSError:
            return  # a child that does not read its input is judged by its exit alone
        finally:
            pipe.close()

    async def _leader_exit(self) -> int:
        """Wait for the leader without a thread where the platform has process descriptors."""
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(self.pid)
            exited = asyncio.Event()
            self._loop.add_reader(fd, exited.set)
            try:
                await exited.wait()
            finally:
                self._loop.remove_reader(fd)
                os.close(fd)
            return self._popen.wait()
        return await asyncio.to_thread(self._popen.wait)

    async def _drain(self) -> None:
        """After the exit: until the pipes close, or stay silent, at most the grace period."""
        end = self._loop.time() + self._spec.grace_ms / 1000
        self._last_output = self._loop.time()
        while self._open and self._loop.time() < min(end, self._last_output + QUIET_S):
            try:
                async with asyncio.timeout(POLL_S * 2):
                    await self._pipes_closed.wait()
            except TimeoutError:
                continue

    def terminate(self) -> None:
        if self._terminating is None and not self._gone:
            self._terminating = self._loop.create_task(self._terminate())

    async def _terminate(self) -> None:
        process_group.signal_group(self.pid, signal.SIGTERM)
        end = self._loop.time() + self._spec.grace_ms / 1000
        while process_group.is_alive(self.pid):
            if self._loop.time() >= end:
                process_group.signal_group(self.pid, signal.SIGKILL)
            await asyncio.sleep(POLL_S)
        self._seen_gone()

    def _seen_gone(self) -> None:
        self._gone = True
        process_group.forget(self.pid)

    async def wait_for_exit(self) -> None:
        if self._terminating is not None:
            await asyncio.shield(self._terminating)
        while not self._gone:
            if not process_group.is_alive(self.pid):
                self._seen_gone()
                break
            await asyncio.sleep(POLL_S)
        await self.done


class SubprocessService(Service):
    """Starts processes; owns every group until it is seen gone."""

    provide = SUBPROCESS

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._folder = SpillFolder()
        self._processes: set[Process] = set()
        self._hidden: dict[str, int] = {}
        atexit.register(process_group.kill_all)
        ctx.effect(lambda: lambda: atexit.unregister(process_group.kill_all), "last resort")
        ctx.effect(lambda: self._folder.remove, "spill folder")
        ctx.effect(lambda: self._end_all, "running processes")

    def hide(self, name: str) -> None:
        def undo() -> None:
            self._hidden[name] -= 1

        self._hidden[name] = self._hidden.get(name, 0) + 1
        self.ctx.effect(lambda: undo, f"hidden variable {name}")

    def spawn(self, spec: SpawnSpec) -> Process:
        if not spec.argv or not spec.argv[0]:
            raise SpawnError("cannot start a process without a program name")
        if not 0 < spec.grace_ms <= MAX_TIMER_MS:
            raise SpawnError(f"grace_ms must be between 1 and {MAX_TIMER_MS}, got {spec.grace_ms}")
        if spec.signal is not None and spec.signal.cancelled:
            raise SpawnError(f"cancelled before {spec.argv[0]!r} was started")
        if not Path(spec.cwd).is_dir():
            raise SpawnError(f"cannot start {spec.argv[0]!r}: {spec.cwd!r} is not a directory")
        hidden = frozenset(name for name, count in self._hidden.items() if count)
        env = scrubbed(os.environ, hidden)
        for name, value in spec.env.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        self._processes = {p for p in self._processes if not p.gone}
        process = Process(spec, env, self._folder)
        self._processes.add(process)
        return process

    async def _end_all(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in tuple(self._processes):
            await process.wait_for_exit()
        self._processes.clear()


def apply(ctx: Context) -> None:
    SubprocessService(ctx)
