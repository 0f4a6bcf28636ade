"""What a child printed: the tail in memory and, once it has outgrown that, all of it in a file."""

import codecs
import contextlib
import os
import secrets
import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import BinaryIO

from dsh.capabilities import scratch
from dsh.capabilities.subprocess import Captured, Collect

SLACK_BYTES = 1 << 16
"""How far the tail may outgrow its size before it is cut: cutting at each piece would copy it each time."""


KEPT_BYTES = 1 << 30
"""What the files of ended streams may take together; the oldest are deleted for newer ones."""


class SpillFolder:
    """The folder for streams that outgrew memory; made on first use, removed at the end.

    It lies where confined commands may read (`dsh.capabilities.scratch`).
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._path: Path | None = None
        self._count = 0
        self._kept: deque[tuple[Path, int]] = deque()
        self._room = kept_bytes

    def open(self, stream: str) -> tuple[BinaryIO, Path]:
        """A new file for `stdout` or `stderr` that nobody else may read. Unbuffered."""
        if self._path is None or not self._path.is_dir():
            self._path = Path(tempfile.mkdtemp(dir=scratch.shared_folder("subprocess")))
        self._count += 1
        name = f"dsh-subprocess-{os.getpid()}-{self._count}-{secrets.token_hex(6)}-{stream}.log"
        path = self._path / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "wb", buffering=0), path

    def keep(self, path: Path, size: int) -> None:
        """A file is complete and stays, as long as newer ones leave it the room."""
        self._kept.append((path, size))
        self._room -= size
        while self._room < 0 and len(self._kept) > 1:
            oldest, freed = self._kept.popleft()
            self._room += freed
            with contextlib.suppress(OSError):
                oldest.unlink(missing_ok=True)

    def remove(self) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None


class Collector:
    """One stream while it comes in. Implements `dsh.capabilities.subprocess.CollectedStream`."""

    def __init__(self, limits: Collect, folder: SpillFolder, stream: str) -> None:
        self._limits, self._folder, self._stream = limits, folder, stream
        self._tail = bytearray()
        self._total = 0
        self._is_closed = False
        self._spill: BinaryIO | None = None
        self._spill_path: Path | None = None
        self._may_spill = limits.spill_max_bytes is not None

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._may_spill and self._total + len(data) > self._limits.max_bytes:
            self._write_spill(data)
        self._total += len(data)
        self._tail += data
        if len(self._tail) > 2 * self._limits.max_bytes + SLACK_BYTES:
            del self._tail[: -self._limits.max_bytes]

    def _write_spill(self, data: bytes) -> None:
        if self._total + len(data) > (self._limits.spill_max_bytes or 0):
            self._drop_spill()
            return
        try:
            if self._spill is None:
                self._spill, self._spill_path = self._folder.open(self._stream)
                _write_all(self._spill, self._tail)
            _write_all(self._spill, data)
        except OSError:
            self._drop_spill()

    def _drop_spill(self) -> None:
        """Never advertise an incomplete file."""
        self._may_spill = False
        with contextlib.suppress(OSError):
            if self._spill is not None:
                self._spill.close()
        with contextlib.suppress(OSError):
            if self._spill_path is not None:
                self._spill_path.unlink(missing_ok=True)
        self._spill, self._spill_path = None, None

    def close(self) -> None:
        """Nothing more comes. A second call changes nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._spill is not None:
            try:
                self._spill.close()
            except OSError:
                self._drop_spill()
        if self._spill_path is not None:
            self._folder.keep(self._spill_path, self._total)

    @property
    def total(self) -> int:
        """Bytes that came in so far."""
        return self._total

    def read(self) -> Captured:
        return self.read_from(0)

    def read_from(self, offset: int) -> Captured:
        start = max(0, self._total - self._limits.max_bytes)
        is_lossy = offset < start
        raw = bytes(self._tail[len(self._tail) - (self._total - max(offset, start)) :])
        if is_lossy:
            raw = raw[_first_boundary(raw) :]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(raw, final=self._is_closed)
        held_back = len(decoder.getstate()[0])
        path = str(self._spill_path) if self._spill_path is not None else None
        return Captured(text, raw[: len(raw) - held_back], self._total - held_back, is_lossy, path)


def _first_boundary(raw: bytes) -> int:
    """Where the first whole character starts, so that a cut never shows as U+FFFD."""
    index = 0
    while index < min(3, len(raw)) and raw[index] & 0xC0 == 0x80:
        index += 1
    return index


def _write_all(file: BinaryIO, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
