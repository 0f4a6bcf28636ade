"""A child on a pseudo-terminal."""

import asyncio
import fcntl
import os
import platform
import signal
import struct
import termios
from pathlib import Path

from dsh.capabilities.process_group import ProcessSession
from dsh.capabilities.subprocess import Collect, SpawnError, TerminalSpec
from dsh.plugins.subprocess.child import Child
from dsh.plugins.subprocess.collector import Collector, SpillFolder
from dsh.plugins.subprocess.pipes import PIPE_BYTES
from dsh.plugins.subprocess.start import started_on_terminal

DRAIN_S = 0.5
"""How long after the leader's exit the terminal may stay open in the hands of others."""

_TIOCGPTN = 0x80045430
_READS = {"x86_64": {0}, "aarch64": {63}}
"""Numbers of `read`, whose first argument is a descriptor."""
_SELECTS = {"x86_64": {23, 270}, "aarch64": {72}}
"""Numbers of `select` and `pselect6`, whose first argument is one more than the highest descriptor."""


class TerminalChild(Child):
    """Implements `dsh.capabilities.subprocess.Terminal`."""

    _farewell = (signal.SIGHUP, signal.SIGTERM)  # a shell that talks to a terminal does not heed the second

    def __init__(self, spec: TerminalSpec, env: dict[str, str], folder: SpillFolder) -> None:
        popen, self._fd, report = started_on_terminal(spec, env)
        self._session = ProcessSession(popen.pid)
        super().__init__(spec.argv[0], popen, self._session, grace_ms=spec.grace_ms, start_report=report)
        self.output = Collector(Collect(spec.max_bytes), folder, "terminal")
        self._is_open = True
        self._over = asyncio.Event()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._name = _name_of(self._fd)
        try:
            self._loop.add_reader(self._fd, self._readable)
        except OSError as error:
            self._give_up()
            raise SpawnError(f"cannot watch {spec.argv[0]!r}: {error.strerror}") from error
        self._watch(None)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, PIPE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # nobody holds the other side any more
            data = b""
        if data:
            self.output.feed(data)
            self._news.set()
        else:
            self._release()

    def _is_held(self) -> bool:
        return self._is_open

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._over.wait()
        except TimeoutError:
            return

    def _release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self.output.close()
            self._over.set()
            self._news.set()

    async def write(self, data: bytes) -> None:
        async with self._turn:
            left = memoryview(data)
            while left and self._is_open:
                try:
                    left = left[os.write(self._fd, left[:1024]) :]
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    return  # it is over: the exit says so

    async def _writable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_writer(self._fd, ready.set)
        over = self._loop.create_task(self._over.wait())
        waiting = self._loop.create_task(ready.wait())
        try:
            await asyncio.wait((over, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            waiting.cancel()
            if self._is_open:
                self._loop.remove_writer(self._fd)

    def set_lines(self, is_in_lines: bool) -> None:
        if not self._is_open:
            return
        try:
            attributes = termios.tcgetattr(self._fd)
            attributes[1] &= ~termios.OPOST
            attributes[3] &= ~(termios.ECHO | termios.ICANON)
            attributes[3] |= termios.ISIG | (termios.ICANON if is_in_lines else 0)
            termios.tcsetattr(self._fd, termios.TCSANOW, attributes)
        except (OSError, termios.error):
            return

    async def changed(self, offset: int) -> bool:
        while self._is_open and self.output.total <= offset:
            self._news.clear()
            await self._news.wait()
        return self.output.total > offset

    def waits_for_input(self) -> bool | None:
        members = self._session.members()
        if not members or self._name is None or platform.machine() not in _READS:
            return None
        found = [_waits_for(member.pid, self._name) for member in members if member.state == "S"]
        if any(found):
            return True
        return None if found and all(answer is None for answer in found) else False


def _name_of(fd: int) -> str | None:
    """The path of the side that the child sees."""
    try:
        number = struct.unpack("I", fcntl.ioctl(fd, _TIOCGPTN, b"\0" * 4))[0]
    except OSError:
        return None
    return f"/dev/pts/{number}"


def _waits_for(pid: str, terminal: str) -> bool | None:
    """Whether a process sleeps in a call that reads the terminal; None if the system does not say."""
    machine = platform.machine()
    try:
        call = Path("/proc", pid, "syscall").read_text().split()
    except OSError:
        return None
    if len(call) < 2 or not call[0].isdecimal():
        return False
    number, argument = int(call[0]), int(call[1], 16)
    if number in _SELECTS[machine]:
        descriptor = argument - 1
    elif number in _READS[machine]:
        descriptor = argument
    else:
        return False
    try:
        path = str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return False
    return path in (terminal, "/dev/tty")
