"""Tells when one of some files may have changed. They and their folders need not exist yet.

Once a second the files are looked at, and in between when the operating system says that something happened
in their folders, where the package `watchfiles` is installed. Told too often is harmless, for whoever is told
reads the files and compares.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

POLL_S = 1.0
"""How often the files are looked at."""
FRESH_NS = 100_000_000
"""A file changed so recently may change again without a new time: it is told of once more."""

Print = tuple[int, int, int, int] | None


class Watch:
    """Holds what the files looked like last. `on_change` is called in the event loop with what changed."""

    def __init__(
        self, paths: Iterable[Path], on_change: Callable[[list[Path]], None], *, poll_s: float = POLL_S
    ) -> None:
        self._on_change, self._poll_s = on_change, poll_s
        self._seen: dict[Path, Print] = {path: fingerprint(path) for path in paths}
        self._woken = asyncio.Event()
        self._stop = threading.Event()
        self._restart = threading.Event()

    def watch(self, paths: Iterable[Path]) -> None:
        """Watch these files and no others from now on. What is known of a file stays."""
        self._seen = {p: self._seen[p] if p in self._seen else fingerprint(p) for p in paths}
        self._restart.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="dsh-watch", daemon=True).start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._woken.wait()
                self._woken.clear()
                self.look()
        finally:
            self._stop.set()
            self._restart.set()

    def look(self) -> None:
        """Compare the files with what they were, and tell."""
        changed = []
        for path, before in self._seen.items():
            now = fingerprint(path)
            if now != before:
                self._seen[path] = now
                changed.append(path)
        if changed:
            self._on_change(changed)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: wake the loop when something happens in the folders. Without `watchfiles`: nothing."""
        try:
            from watchfiles import watch
        except ImportError:
            return
        while not self._stop.is_set():
            self._restart.clear()
            folders = {_nearest(path) for path in tuple(self._seen)}
            try:
                for _ in watch(
                    *folders,
                    watch_filter=None,
                    debounce=50,
                    step=20,
                    stop_event=self._restart,
                    rust_timeout=1000,
                    raise_interrupt=False,
                    recursive=False,
                ):
                    loop.call_soon_threadsafe(self._woken.set)
                    if folders != {_nearest(path) for path in tuple(self._seen)}:
                        break
            except (OSError, RuntimeError):  # a folder is gone, no watches are left, the loop is closed
                if self._stop.wait(self._poll_s):
                    return


def fingerprint(path: Path) -> Print:
    """What tells one state of a file from another; None where there is none that can be looked at.

    A file that was changed a moment ago never looks the same twice, so that it is looked at again.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 -- false where pathlib raises
    except (OSError, ValueError):
        return None
    import time

    age_ns = time.time_ns() - found.st_mtime_ns
    return (
        found.st_mtime_ns,
        found.st_size,
        found.st_ino,
        time.monotonic_ns() if 0 <= age_ns < FRESH_NS else 0,
    )


def _nearest(path: Path) -> Path:
    """The folder of a file, or the deepest one above it that exists."""
    folder = path.parent.absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder.resolve()
