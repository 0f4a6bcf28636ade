"""Putting new content in the place of a file: all of it or none of it, and durable.

The content is written to a private staging directory beside the target, synced, and then moved or
linked into place. Every step goes through descriptors of the directories, so that swapping a directory
on the way cannot lead it elsewhere.
"""

import contextlib
import errno
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator

from dsh.capabilities.local_fs.path import version_of
from dsh.capabilities.local_fs.thread import Halt

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_ACL = "system.posix_acl_access"


class AlreadyThere(Exception):
    """A file was to be created and something has that name."""


class Staged:
    """New content, written and synced, with the directories it may be published in."""

    def __init__(self, directory: int, staging: int, fd: int, name: str) -> None:
        self.directory, self.staging, self.fd, self.name = directory, staging, fd, name

    def create(self) -> None:
        """Publish where nothing is.

        Raises:
            AlreadyThere: something is there; it was not touched.
        """
        try:
            try:
                os.link(_CONTENT, self.name, src_dir_fd=self.staging, dst_dir_fd=self.directory)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._create_without_links()
        except FileExistsError:
            raise AlreadyThere from None

    def _create_without_links(self) -> None:
        """On a file system without hard links: create exclusively, and take it back if it fails."""
        mode = stat.S_IMODE(os.fstat(self.fd).st_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self.name, flags, mode, dir_fd=self.directory)
        try:
            os.lseek(self.fd, 0, os.SEEK_SET)
            while piece := os.read(self.fd, 1 << 20):
                write_all(fd, piece)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            os.unlink(self.name, dir_fd=self.directory)
            raise
        os.close(self.fd)
        self.fd = fd

    def replace(self) -> None:
        """Publish over what is there."""
        os.rename(_CONTENT, self.name, src_dir_fd=self.staging, dst_dir_fd=self.directory)


_CONTENT = "content"


def publish(
    path: str, data: bytes, *, old: os.stat_result | None, halt: Halt, confirm: Callable[[], None]
) -> str:
    """Write `data` to `path`: over the file that `old` describes, or where nothing is. Returns the version.

    `confirm` is called last, right before publication; if it raises, nothing has changed. A new file gets
    the umask's mode; a replaced one keeps mode, extended attributes and, where allowed, its owner.

    Raises:
        AlreadyThere: `old` is None and something is there.
        OSError: nothing has changed, but for parent directories that were made.
    """
    parent, name = os.path.split(path)
    directory = open_folder(parent, make=old is None)
    with _staged(directory, name, data, old) as staged:
        halt.check()
        confirm()
        before = os.fstat(staged.fd)
        if old is None:
            staged.create()
            _unlink(staged)
        else:
            staged.replace()
        with contextlib.suppress(OSError):
            _sync_directory(staged.directory)
        return _published_version(staged.fd, before)


def _published_version(fd: int, before: os.stat_result) -> str:
    """The version of what was published: publication changes the change time alone.

    If anybody has written to the file since, its token is not one that the file ever had: stale at once.
    """
    now = os.fstat(fd)
    touched = (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
    return version_of(before if touched and now.st_ino == before.st_ino else now)


_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(path: str, *, make: bool = False) -> int:
    """A descriptor of the directory with this canonical path, for work relative to it.

    No link is followed on the way: a part of the path that was swapped for one after the path was judged
    leads nowhere. With `make` what is missing is made, with the umask's mode.

    Raises:
        OSError: a part is no directory, or may not be searched.
    """
    if not hasattr(os, "O_PATH"):  # there, opening asks for more than the right to pass
        if make:
            os.makedirs(path, exist_ok=True)
        return os.open(path, _FOLDER)
    fd = os.open("/", _FOLDER)
    for name in filter(None, path.split("/")):
        try:
            below = _folder_in(fd, name, make=make)
        finally:
            os.close(fd)
        fd = below
    return fd


def _folder_in(fd: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # somebody else was faster
        os.mkdir(name, dir_fd=fd)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)


@contextlib.contextmanager
def _staged(directory: int, name: str, data: bytes, old: os.stat_result | None) -> Iterator[Staged]:
    """Takes over the descriptor of the directory."""
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, directory)
        staging_name = f".{_short(name)}.{os.getpid()}.{uuid.uuid4().hex}.tmpdir"
        os.mkdir(staging_name, 0o700, dir_fd=directory)
        undo.callback(_quietly, os.rmdir, staging_name, directory)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        staging = os.open(staging_name, flags, dir_fd=directory)
        undo.callback(os.close, staging)
        os.fchmod(staging, 0o700)
        mode = 0o666 if old is None else 0o600  # the kernel takes the umask off
        fd = os.open(_CONTENT, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=staging)
        staged = Staged(directory, staging, fd, name)
        undo.callback(lambda: os.close(staged.fd))
        undo.callback(_unlink, staged)
        write_all(fd, data)
        if old is not None:
            _keep_metadata(staged, old)
        os.fsync(fd)
        yield staged


def _keep_metadata(staged: Staged, old: os.stat_result) -> None:
    now, mode = os.fstat(staged.fd), stat.S_IMODE(old.st_mode)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(staged.fd, old.st_uid, old.st_gid)
        except OSError:
            with contextlib.suppress(OSError):
                os.fchown(staged.fd, -1, old.st_gid)
            mode &= ~(stat.S_ISUID | stat.S_ISGID)  # these belong to the owner that could not be kept
    if sys.platform == "linux":
        _keep_attributes(staged)
    os.fchmod(staged.fd, mode)


def _keep_attributes(staged: Staged) -> None:
    """The user's extended attributes and the access list, where the file system has them.

    A file without a list gets none: what its directory hands down to new files would let others in.
    """
    path = f"/proc/self/fd/{staged.directory}/{staged.name}"
    with contextlib.suppress(OSError):
        os.removexattr(staged.fd, _ACL)
    with contextlib.suppress(OSError):
        for attribute in os.listxattr(path, follow_symlinks=False):
            if attribute.startswith("user.") or attribute == _ACL:
                os.setxattr(staged.fd, attribute, os.getxattr(path, attribute, follow_symlinks=False))


def write_in_place(path: str, data: bytes, old_data: bytes, *, confirm: Callable[[int], None]) -> str:
    """Overwrite a file without giving it a new identity, so that its other names see the change.

    Not atomic: a reader may see half of it. Room is reserved first, and a failure on the way puts the old
    bytes back. `confirm` gets the descriptor before anything is changed.
    """
    parent, name = os.path.split(path)
    directory = open_folder(parent)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        confirm(fd)
        try:
            _reserve(fd, len(old_data), len(data))
            _overwrite(fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                _overwrite(fd, old_data)
            raise
        return version_of(os.fstat(fd))
    finally:
        os.close(fd)


def _reserve(fd: int, old_size: int, new_size: int) -> None:
    """Make sure of the room for a longer file, where the file system can."""
    if new_size <= old_size or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, old_size, new_size - old_size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise


def _overwrite(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    write_all(fd, data)
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def write_all(fd: int, data: bytes) -> None:
    """`os.write` until everything is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _short(name: str) -> str:
    """The start of a name, short enough to leave room for what is put around it."""
    return os.fsencode(name)[:80].decode("utf-8", "ignore")


def _unlink(staged: Staged) -> None:
    _quietly(os.unlink, _CONTENT, staged.staging)


def _quietly(remove: Callable[..., None], name: str, directory: int) -> None:
    with contextlib.suppress(OSError):
        remove(name, dir_fd=directory)


def _sync_directory(directory: int) -> None:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
