"""A child on pipes."""

import asyncio
import os
from typing import IO

from dsh.capabilities.process_group import ProcessGroup
from dsh.capabilities.subprocess import Collect, SpawnError, SpawnSpec
from dsh.plugins.subprocess.child import Child
from dsh.plugins.subprocess.collector import Collector, SpillFolder
from dsh.plugins.subprocess.pipes import PIPE_BYTES, PipeReader, PipeWriter, feed
from dsh.plugins.subprocess.start import started

QUIET_S = 0.5
"""A pipe that stays open after the exit is given up once it has been silent for so long."""


class Process(Child):
    """Implements `dsh.capabilities.subprocess.ProcessHandle`."""

    def __init__(self, spec: SpawnSpec, env: dict[str, str], folder: SpillFolder) -> None:
        popen, report = started(spec, env)
        group = ProcessGroup(popen.pid)
        super().__init__(spec.argv[0], popen, group, grace_ms=spec.grace_ms, start_report=report)
        self._stdout = Collector(spec.stdout, folder, "stdout") if isinstance(spec.stdout, Collect) else None
        self.stderr = Collector(spec.stderr, folder, "stderr")
        self._reading: dict[int, IO[bytes]] = {}
        self._last_output = 0.0
        self._pipes_closed = asyncio.Event()
        stdin, stdout, stderr = popen.stdin, popen.stdout, popen.stderr
        assert stdout is not None
        assert stderr is not None
        self._writer = PipeWriter(stdin) if stdin is not None and spec.stdin == "pipe" else None
        self._reader = PipeReader(stdout) if self._stdout is None else None
        try:
            if self._stdout is not None:
                self._read(stdout, self._stdout)
            self._read(stderr, self.stderr)
            if stdin is not None and isinstance(spec.stdin, bytes):
                feed(stdin, spec.stdin, self._close_stdin)
        except OSError as error:
            self._give_up()
            raise SpawnError(f"cannot watch {spec.argv[0]!r}: {error.strerror}") from error
        self._watch(spec.signal)

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
    def is_closed(self) -> bool:
        return self._reader is None or self._reader.is_closed

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

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

    def _is_held(self) -> bool:
        return bool(self._reading)

    async def _drain(self) -> None:
        """Until the pipes close, or stay silent, at most the grace period."""
        self._last_output = self._loop.time()
        end = self._last_output + self._grace_s
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
