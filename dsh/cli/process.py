"""Makes sure the process ends: signals are handled by a thread, so that a stuck event loop stops nothing.

The thread owns the wake-up descriptor of `signal`; Python-level handlers only give way to it. The first
signal is handed to the loop, which ends the run in order. The process is ended from the thread at the second
signal, when the loop has not beaten for a while after the first, or some seconds later in any case
(`design.md` §10.4). Repair closes the log then. While the rows start and while they are undone the loop must
beat as well (`guarded`): whatever blocks it there would keep the process for ever.
"""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

EXIT_CODES = {int(signal.SIGINT): 130, int(signal.SIGTERM): 143}
"""What a run ended by this signal exits with."""
HEARTBEAT_S = 5.0
"""How long the loop may stay silent after a signal."""
LIMIT_S = 15.0
"""How long an orderly end may take after a signal, whatever happens."""
BEAT_S = 0.25
"""How often the loop shows that it is alive, where that is watched."""
GIVE_WAY_S = 0.02
"""How long the main thread stands aside for the watchdog's when a signal has arrived."""
DRAIN_S = 5.0
"""How long the interpreter may take to end once everything is disposed."""


class Guard(NamedTuple):
    """What the loop must not be silent for."""

    silence_s: float
    code: int
    """What the process exits with if it is."""
    say: Callable[[], None]
    """Tells the person why, from the thread."""


class Watchdog:
    """Owns SIGINT and SIGTERM of the process from `install` on. At most one per process."""

    def __init__(
        self,
        *,
        end: Callable[[int], None] = os._exit,
        clock: Callable[[], float] = time.monotonic,
        heartbeat_s: float = HEARTBEAT_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`end` ends the process with a code and does not come back; it is called from the thread."""
        self.before_end: Callable[[], None] | None = None
        """The last deed before a forced end, for instance killing process groups. Runs in the thread."""
        self._end, self._clock = end, clock
        self._heartbeat_s, self._limit_s = heartbeat_s, limit_s
        self._wake, self._poke = socket.socketpair()
        self._poke.setblocking(False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_signal: Callable[[int], None] | None = None
        self._lock = threading.Lock()
        self._code: int | None = None
        self._deadline_s = 0.0
        self._beat_s: float | None = None
        """When the loop last beat; None where it is not watched."""
        self._guard: Guard | None = None
        self._thread = threading.Thread(target=self._watch, name="dsh-watchdog", daemon=True)

    def install(self) -> "Watchdog":
        """Take the signals over. Call from the main thread, before anything that must be ended in order."""
        for number in EXIT_CODES:
            signal.signal(number, _give_way)
        signal.set_wakeup_fd(self._poke.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(before=_hold_back, after_in_parent=_go_on, after_in_child=_let_go)
        self._thread.start()
        return self

    def attach(self, loop: "asyncio.AbstractEventLoop", on_signal: Callable[[int], None]) -> None:
        """From now on the first signal is handed to `on_signal`, in the loop. Before, it ends the process."""
        with self._lock:
            self._loop, self._on_signal = loop, on_signal

    @contextlib.contextmanager
    def guarded(self, silence_s: float, code: int, say: Callable[[], None]) -> Iterator[None]:
        """End the process with `code` where the loop does not come back to itself for so long. Call from it.

        Args:
            say: tells why; called from the thread.
        """
        with self._lock:
            before, self._guard = self._guard, Guard(silence_s, code, say)
            self._beat_s = self._clock()
        self._beat()
        self._poke.send(b"\0")
        try:
            yield
        finally:
            with self._lock:
                self._guard = before

    def drain(self, code: int) -> None:
        """Everything is disposed: end with `code` if the interpreter does not, soon or at a signal."""
        with self._lock:
            self._loop = None
            self._beat_s = None
            self._code = code
            self._deadline_s = self._clock() + DRAIN_S
        self._poke.send(b"\0")

    def leave(self, code: int, last: Callable[[], None]) -> None:
        """End a process whose work is done: run the exit hooks, then the last deed, then go.

        Python itself would clear every module first, which takes longer than the disposal of the tree.
        """
        atexit._run_exitfuncs()
        last()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # a plugin may have replaced it
                stream.flush()
        self._end(code)

    def _watch(self) -> None:
        while True:
            self._wake.settimeout(self._patience_s())
            try:
                numbers = self._wake.recv(64)
            except TimeoutError:
                numbers = b""
            for number in numbers:
                if number in EXIT_CODES:
                    self.deliver(number)
            self.check()

    def _patience_s(self) -> float | None:
        return None if self._code is None and self._guard is None else BEAT_S

    def deliver(self, number: int) -> None:
        """A signal has arrived. Called by the thread."""
        code = EXIT_CODES[number]
        with self._lock:
            loop, first = self._loop, self._code is None
            if loop is None or not first:
                self.force(code)
                return
            self._code = code
            self._beat_s = self._clock()
            self._deadline_s = self._beat_s + self._limit_s
        try:
            loop.call_soon_threadsafe(self._first, number)
        except RuntimeError:  # the loop is closed: the process is draining
            self.force(code)

    def _first(self, number: int) -> None:
        self._beat()
        if self._on_signal is not None:
            self._on_signal(number)

    def _beat(self) -> None:
        with self._lock:
            if self._loop is None or (self._code is None and self._guard is None):
                return
            self._beat_s = self._clock()
            self._loop.call_later(BEAT_S, self._beat)

    def check(self) -> None:
        """End the process if its time is over. Called by the thread, repeatedly where there is a bound."""
        with self._lock:
            now, code, guard = self._clock(), self._code, self._guard
            silence_s = now - self._beat_s if self._beat_s is not None else 0.0
            if code is not None:
                if silence_s > self._heartbeat_s or now > self._deadline_s:
                    self.force(code)
            elif guard is not None and silence_s > guard.silence_s:
                try:
                    guard.say()
                finally:
                    self.force(guard.code)

    def force(self, code: int) -> None:
        """End the process now. May be called from any thread."""
        try:
            if self.before_end is not None:
                self.before_end()
        finally:
            self._end(code)


def _hold_back() -> None:
    """A plugin is about to copy this process: no signal may reach the copy before it has let go."""
    signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)


def _go_on() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_CODES)


def _let_go() -> None:
    """In the copy: signals for it are its own, and none of ours."""
    signal.set_wakeup_fd(-1)
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_DFL)
    _go_on()


def _give_way(number: int, frame: FrameType | None) -> None:
    """Let the thread have its turn, here in the main thread.

    A Python-level handler must exist for the wake-up descriptor to be written, and has nothing else to do.
    But code in C that keeps the interpreter to itself, as a regular expression does, runs handlers now and
    then, and the thread never: without this pause not even a second signal would end the process.
    """
    time.sleep(GIVE_WAY_S)
