"""Where a drawing goes, piece by piece: standard output, or a new file that is there whole or not at all."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsh.cli.sessions.output import write
from dsh.cli.stream import write_all
from dsh.errors import DshError
from dsh.unicode import valid

STEP = 1 << 16
"""Bytes that are written at a time."""


def to_output(pieces: Iterable[str | bytes]) -> None:
    """Write everything to standard output."""
    for data in _joined(pieces):
        write(data)


def to_new_file(path: Path, pieces: Iterable[str | bytes]) -> None:
    """Write everything to a file that does not exist yet. It appears under its name when it is complete.

    Raises:
        DshError: something lies there already, or there is no folder for it.
        OSError: the file cannot be written; nothing is left of it.
    """
    if os.path.lexists(path):
        raise _exists(path)
    try:
        _write_new(path, path.with_name(f".{path.name[:200]}.{os.getpid()}.part"), pieces)
    except FileNotFoundError:
        raise DshError(
            f"{path}: there is no folder {path.parent}", hint="make it, or name another file"
        ) from None
    except OSError as error:
        error.filename = str(path)  # the name that was asked for, not that of the part
        raise


def _write_new(path: Path, partial: Path, pieces: Iterable[str | bytes]) -> None:
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            for data in _joined(pieces):
                write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _publish(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _publish(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links: the name is taken first, then given the content
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            raise _exists(path) from None
        try:
            partial.replace(path)
        except OSError:
            path.unlink()
            raise


def _exists(path: Path) -> DshError:
    return DshError(
        f"{path}: there is something already, and nothing is overwritten",
        hint="name a file that does not exist yet",
    )


def _joined(pieces: Iterable[str | bytes]) -> Iterator[bytes]:
    """The pieces as bytes, small ones put together."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else valid(piece).encode()
        held.append(data)
        size += len(data)
        if size >= STEP:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
