"""The last events of a log, as they are stored."""

import functools
import os
from io import FileIO
from pathlib import Path

from dsh.persistence.backend import Tail
from dsh.persistence.error import SessionCorruption
from dsh.persistence.jsonl.reader import Scanned, scan_log
from dsh.persistence.jsonl.stable import read_stably
from dsh.session.chunk_run import ChunkRun
from dsh.session.header import SessionHeader
from dsh.session.value import JsonObject, safe_int


def read_suffix(path: Path, seq: int) -> Tail:
    """The events from `seq` on. Damage in front of them may go unnoticed.

    Raises:
        SessionCorruption, SessionFormatUnsupported, PersistenceError, OSError: as `reader.read_log`.
    """
    read = read_stably(path, functools.partial(_read, path, seq), may_grow=lambda read: read.torn is None)
    return Tail(read.header, tuple(read.sink.entries))


def _read(path: Path, seq: int, file: FileIO, found: os.stat_result) -> "Scanned[_Collector]":
    make = functools.partial(_Collector, seq)
    try:
        return scan_log(path, file, found, make, seek=seq)
    except SessionCorruption:
        if not seq:
            raise
        file.seek(0)
        return scan_log(path, file, found, make)


class _Collector:
    """Keeps what is not in front of a seq."""

    def __init__(self, seq: int, header: SessionHeader) -> None:
        self._seq = seq
        self.entries: list[JsonObject | ChunkRun] = []

    def take(self, entry: JsonObject | ChunkRun, line: bytes) -> None:
        if not isinstance(entry, ChunkRun):
            if (safe_int(entry.get("seq")) or 0) >= self._seq:
                self.entries.append(entry)
        elif entry.stop > self._seq:
            self.entries.append(entry.slice(self._seq - entry.seq0) if entry.seq0 < self._seq else entry)
