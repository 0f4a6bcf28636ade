"""Putting a log on disk: atomic creation, checked append, atomic replacement.

After any failure the log is absent or complete, or as long as it was (`spec/persistence.md` §6).
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsh.persistence.error import PersistenceError, SessionCollision, SessionFileChanged
from dsh.persistence.files import Files, Identity


class UncleanTail(PersistenceError):
    """An append failed, and so did taking its bytes back: the file may end in a torn record."""

    def __init__(self, path: Path, write: Exception, undo: Exception, written: int) -> None:
        self.written = written
        """At most so many bytes of the failed append may stand behind the known end."""
        super().__init__(
            f"{path}: append failed ({write}), and so did cutting it off again ({undo})",
            code="SESSION_NOT_DURABLE",
        )


class UncleanCreation(PersistenceError):
    """A new log could not be made durable, and not be removed again either: it is there, whole, for now."""

    def __init__(self, path: Path, sync: BaseException, undo: Exception, identity: Identity) -> None:
        self.identity = identity
        """What is there; `take_back` removes it."""
        super().__init__(
            f"{path}: the new log could not be made durable ({sync}), nor be removed again ({undo})",
            code="SESSION_NOT_DURABLE",
        )


def make_dirs(files: Files, path: Path) -> None:
    """Create a folder and what is missing above it; each new name is made durable in its parent."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for folder in reversed(missing):
        if files.make_dir(folder):
            files.sync_dir(folder.parent)


def create(files: Files, target: Path, data: Iterable[bytes], *, session_id: str, other: Path) -> Identity:
    """Publish a new log with all its bytes at once. The folder must exist.

    Args:
        data: its pieces, each made when it is written.
        session_id: for messages.
        other: where it would lie in the other encoding.

    A hard link publishes, since it fails where a rename would replace: of two creators one wins.

    Raises:
        SessionCollision: the log is there already, in this encoding or the `other`.
        UncleanCreation: see there.
        OSError: nothing is there under the target's name.
    """
    for path in (target, other):
        if os.path.lexists(path):
            raise SessionCollision(session_id, f"{path} exists already")
    temp = _temp_name(target)
    try:
        with _naming(target):
            identity = _write_whole(files, temp, data)
        try:
            files.link(temp, target)
        except FileExistsError:
            raise SessionCollision(session_id, f"{target} was created by another process just now") from None
        try:
            files.sync_dir(target.parent)
        except BaseException as error:
            try:
                files.unlink(target)
            except OSError as second:
                raise UncleanCreation(target, error, second, identity) from error
            raise
    except BaseException:
        _drop(files, temp)
        raise
    _drop(files, temp)
    return identity


def take_back(files: Files, target: Path, left: Identity) -> None:
    """Remove what an `UncleanCreation` left, if it is still that and nothing else."""
    with contextlib.suppress(FileNotFoundError):
        if Identity.of(target.stat()) == left:
            files.unlink(target)


def append(files: Files, path: Path, data: bytes, known: Identity, *, unclean: int = 0) -> Identity:
    """Add bytes behind the known end of a file and make them durable.

    Args:
        known: the file as it was last seen; it must still be that file, of that size.
        unclean: so many bytes more may stand behind the end, left by an append that could not be undone.

    Raises:
        SessionFileChanged: it is another file, or has another size.
        UncleanTail: see there.
        OSError: the write failed; the file has its old size.
    """
    try:
        fd = files.open_append(path)
    except FileNotFoundError:
        raise SessionFileChanged(str(path), "the file has gone") from None
    try:
        now = Identity.of(files.stat(fd))
        if (now.dev, now.ino) != (known.dev, known.ino):
            raise SessionFileChanged(str(path), "the file was replaced by another")
        if now.size != known.size:
            if not known.size < now.size <= known.size + unclean:
                raise SessionFileChanged(str(path), f"the size changed from {known.size} to {now.size} bytes")
            files.truncate(fd, known.size)
        try:
            with _naming(path):
                _write_all(files, fd, data)
                files.fsync(fd)
        except Exception as error:
            try:
                files.truncate(fd, known.size)
                files.fsync(fd)
            except OSError as second:
                raise UncleanTail(path, error, second, len(data)) from error
            raise
    finally:
        files.close(fd)
    return known._replace(size=known.size + len(data))


def replace(
    files: Files, path: Path, data: Iterable[bytes], known: Identity, *, written_ns: int | None = None
) -> Identity:
    """Put other bytes in a file's place, all or nothing. It is for good once the folder is synced.

    Args:
        written_ns: when the new file is to seem written, in epoch nanoseconds; without it now.

    Raises:
        SessionFileChanged: the file is not the known one any more.
        OSError: the old file stands.
    """
    temp = _temp_name(path)
    try:
        with _naming(path):
            identity = _write_whole(files, temp, data)
        if written_ns is not None:
            files.set_time(temp, written_ns)
        if Identity.of(path.stat()) != known:
            raise SessionFileChanged(str(path), "the file changed")
        files.replace(temp, path)
    except BaseException:
        _drop(files, temp)
        raise
    return identity


def keep_aside(files: Files, path: Path, data: bytes, offset: int) -> Path:
    """Store bytes that are about to be cut off at `offset` beside the log. Returns where."""
    aside = path.with_name(f"{path.name}.cut-{offset}-{os.urandom(3).hex()}")
    try:
        with _naming(aside):
            _write_whole(files, aside, (data,))
    except BaseException:
        _drop(files, aside)
        raise
    files.sync_dir(path.parent)
    return aside


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say of which file a refusal is: the system names none where it has a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _temp_name(target: Path) -> Path:
    return target.with_name(f"{target.name}.{os.urandom(6).hex()}.tmp")


def _write_whole(files: Files, path: Path, data: Iterable[bytes]) -> Identity:
    fd = files.open_new(path)
    try:
        for piece in data:
            _write_all(files, fd, piece)
        files.fsync(fd)
        return Identity.of(files.stat(fd))
    finally:
        files.close(fd)


def _write_all(files: Files, fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[files.write(fd, view) :]


def _drop(files: Files, temp: Path) -> None:
    """Best effort: a leftover temporary file is never read as a log."""
    with contextlib.suppress(OSError):
        files.unlink(temp)
