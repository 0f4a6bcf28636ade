"""The system calls a log is written with, in one place, so that a test can make any of them fail.

Every method is one call that the kernel can refuse; what follows from a refusal is decided in `writer.py`.
"""

import os
from pathlib import Path
from typing import NamedTuple

FILE_MODE = 0o600
DIR_MODE = 0o700


class Identity(NamedTuple):
    """What a file is known to be: compared before each append."""

    dev: int
    ino: int
    size: int

    @classmethod
    def of(cls, stat: os.stat_result) -> "Identity":
        return cls(stat.st_dev, stat.st_ino, stat.st_size)


class Files:
    """The real file system."""

    def make_dir(self, path: Path) -> bool:
        """Create one folder, mode 0700. False where it is there already."""
        try:
            path.mkdir(mode=DIR_MODE)
        except FileExistsError:
            if not path.is_dir():
                raise
            return False
        return True

    def open_new(self, path: Path) -> int:
        """A descriptor on a file that did not exist, mode 0600."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def open_append(self, path: Path) -> int:
        """A descriptor at the end of an existing file; it is never created."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def stat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def link(self, source: Path, target: Path) -> None:
        """Publish under a name that must not exist."""
        os.link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def set_time(self, path: Path, time_ns: int) -> None:
        """Say when a file was last written and read, in epoch nanoseconds."""
        os.utime(path, ns=(time_ns, time_ns))

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_dir(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)
