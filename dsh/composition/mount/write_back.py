"""Writes what was changed in the rows of an include into its file: only what differs, comments stay."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

from dsh.composition.mount.entry import Entry
from dsh.composition.text.edit import Edit, edited
from dsh.composition.text.source import read_bytes
from dsh.composition.text.user_file import UserFileError, replace
from dsh.composition.value import Seq
from dsh.errors import CompositionError, DshError
from dsh.kernel.root import Kernel

logger = logging.getLogger("dsh.composition")
ATTEMPTS = 10
PAUSE_S = 0.05
"""Grows with every attempt."""


class WriteBack:
    """The file of one include. Holds its write that is going on, if any; the next one waits for it."""

    def __init__(self, entry: Entry, kernel: Kernel) -> None:
        self._kernel = kernel
        self.entry = entry
        """The include as it is mounted now."""
        self._is_dirty = False
        self._task: asyncio.Task[None] | None = None
        self._last: tuple[bytes | None, bytes] | None = None
        """What the file held before and after our last write: an edit that began earlier knows the former."""

    def schedule(self) -> None:
        """Write what the include holds, soon; calls until then are one write."""
        self._is_dirty = True
        if self._task is None or self._task.done():
            self._task = self._kernel.keep(self._write(), f"write {self.entry.id}")

    async def drain(self) -> None:
        """Wait until everything is written.

        Raises:
            DshError: it could not be.
        """
        if self._task is not None:
            await asyncio.wait((self._task,))
            self._task.result()

    async def _write(self) -> None:
        while self._is_dirty:
            await asyncio.sleep(0)
            self._is_dirty = False
            included = self.entry.included
            assert included is not None
            known = [included.data]
            if self._last is not None and self._last[0] == included.data:
                known.append(self._last[1])
            try:
                data = await asyncio.to_thread(_written, included.path, known, included.document)
            except DshError as error:
                logger.error("the rows of %s are not written: %s", self.entry.id, error)
                raise
            self._last = (included.data, data)
            self.entry.included = (self.entry.included or included)._replace(data=data)


def _written(path: Path, known: list[bytes | None], document: Seq) -> bytes:
    """Bring a file that holds one of the known contents to what the document says; answers its bytes."""
    try:
        now: bytes | None = read_bytes(path)
    except FileNotFoundError:
        now = None
    if now not in known:
        raise CompositionError(f"{path} was changed meanwhile; the change of its rows is not written")
    made = _text(path, now, document).encode()
    if made != now:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                replace(path, made, mode=path.stat().st_mode & 0o777 if now is not None else 0o644)
                break
            except UserFileError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_S * attempt)
    return made


def _text(path: Path, before: bytes | None, document: Seq) -> str:
    if path.suffix == ".json":
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    text = "[]\n" if before is None else before.decode()
    return edited(text, str(path), [Edit("set", (), _plain(document))])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
