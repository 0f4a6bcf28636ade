"""A file layer that fails on purpose: the nth call, by an error of choice, perhaps after writing a part."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dsh.persistence.files import Files

T = TypeVar("T")


class Killed(BaseException):
    """The process ends here: no handler of ours may run any system call after it."""


class FaultyFiles(Files):
    """Fails call number `fail_at` (from 0), or kills there and refuses everything after it."""

    def __init__(self, fail_at: int | None = None, code: int = errno.ENOSPC, *, kill: bool = False) -> None:
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.code = code
        self.kill = kill
        self.also: set[str] = set()
        """Names of calls that fail as well once the first one has."""
        self._has_failed = False

    def _do(self, name: str, call: Callable[[], T], *, on_failure: Callable[[], object] = lambda: None) -> T:
        number = len(self.calls)
        self.calls.append(name)
        if self.kill and self._has_failed:
            raise Killed
        if number == self.fail_at or (self._has_failed and name in self.also):
            if not self._has_failed:
                on_failure()
            self._has_failed = True
            raise Killed if self.kill else OSError(self.code, os.strerror(self.code))
        return call()

    def make_dir(self, path: Path) -> bool:
        return self._do("make_dir", lambda: Files.make_dir(self, path))

    def open_new(self, path: Path) -> int:
        return self._do("open_new", lambda: Files.open_new(self, path))

    def open_append(self, path: Path) -> int:
        return self._do("open_append", lambda: Files.open_append(self, path))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        half = memoryview(data)[: max(1, len(data) // 2)]
        return self._do(
            "write", lambda: Files.write(self, fd, half), on_failure=lambda: Files.write(self, fd, half[:-1])
        )

    def fsync(self, fd: int) -> None:
        self._do("fsync", lambda: Files.fsync(self, fd))

    def truncate(self, fd: int, size: int) -> None:
        self._do("truncate", lambda: Files.truncate(self, fd, size))

    def link(self, source: Path, target: Path) -> None:
        self._do("link", lambda: Files.link(self, source, target))

    def replace(self, source: Path, target: Path) -> None:
        self._do("replace", lambda: Files.replace(self, source, target))

    def unlink(self, path: Path) -> None:
        self._do("unlink", lambda: Files.unlink(self, path))

    def remove_dir(self, path: Path) -> None:
        self._do("remove_dir", lambda: Files.remove_dir(self, path))

    def set_time(self, path: Path, time_ns: int) -> None:
        self._do("set_time", lambda: Files.set_time(self, path, time_ns))
