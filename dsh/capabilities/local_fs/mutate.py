"""Writing and editing one file: what is there, is it what the caller expects, replace it.

These functions block; the provider runs them in a thread, under the lock of the file.
"""

import errno
import os
import stat

import msgspec

from dsh.capabilities.fs import (
    CreateIfAbsent,
    FsEditIntent,
    FsEditOutcome,
    FsEditRequest,
    FsError,
    FsTarget,
    FsWriteIntent,
    FsWriteOutcome,
    ReplaceIfVersion,
)
from dsh.capabilities.local_fs.error import not_regular, os_errors
from dsh.capabilities.local_fs.path import version_of
from dsh.capabilities.local_fs.publish import AlreadyThere, publish, write_in_place
from dsh.capabilities.local_fs.reading import (
    MAX_WHOLE_BYTES,
    decode,
    normalized,
    open_regular,
    read_up_to,
    read_whole,
)
from dsh.capabilities.local_fs.splice import splice
from dsh.capabilities.local_fs.thread import Halt
from dsh.unicode import valid

CREATE_ATTEMPTS = 8
"""How often an unconditional write looks again when files appear and vanish under it."""

NOTE_IN_PLACE = (
    "This file has {others}: it was written in place (not atomically), and they all show the change."
)
NOTE_MOUNTED = "This file is a mount point: it was written in place (not atomically)."
NOTE_UNLINKED = "This file had {others}: only this name shows the change, the others keep the old content."


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """What one write or edit works on."""

    target: FsTarget
    action: str
    halt: Halt
    diff_basis_max_bytes: int
    keep_links: bool
    """A file with several hard links is written in place; otherwise this name gets a file of its own."""

    @property
    def path(self) -> str:
        return self.target.target_key

    @property
    def shown(self) -> str:
        return self.target.display_path

    def stale(self) -> FsError:
        return FsError("FS_STALE_VERSION", f'"{self.shown}" has changed since it was read')

    def unread(self) -> FsError:
        return FsError("FS_NOT_OBSERVED", f'overwriting "{self.shown}" requires reading it first')


def write_file(do: Mutation, content: str, expected: FsWriteIntent | None) -> FsWriteOutcome:
    """Write exactly `content`, under the condition in `expected`.

    Raises:
        FsError: `FS_NOT_REGULAR_FILE`, `FS_STALE_VERSION`, `FS_NOT_OBSERVED`, or what the system says.
    """
    text, note = _valid(content)
    data = text.encode()
    for _ in range(CREATE_ATTEMPTS):
        do.halt.check()
        old = _probe(do)
        if isinstance(expected, ReplaceIfVersion) and (old is None or version_of(old) != expected.version):
            raise do.stale()
        if isinstance(expected, CreateIfAbsent) and old is not None:
            raise do.unread()
        before = _diff_basis(do, len(data)) if old is not None else None
        is_guarded = expected is not None
        try:
            version, link_note = _replace(do, data, old, is_guarded=is_guarded)
        except AlreadyThere:
            if is_guarded:
                raise _lost_race(do) from None
            continue
        return FsWriteOutcome(
            operation="create" if old is None else "update",
            version=version,
            before=before,
            after=normalized(text),
            note=_joined(note, link_note),
        )
    raise FsError("FS_IO_ERROR", f'cannot write "{do.shown}": it keeps appearing and vanishing')


def edit_file(do: Mutation, edit: FsEditRequest, expected: FsEditIntent | None) -> FsEditOutcome:
    """Replace `old_string` by `new_string`, literally; every other byte stays.

    Raises:
        FsError: `FS_STALE_VERSION` (also for a missing file), `FS_NOT_REGULAR_FILE`, `FS_NOT_TEXT`,
            `FS_TOO_LARGE`, `FS_EDIT_NOT_FOUND`, `FS_AMBIGUOUS_EDIT`, or what the system says.
    """
    do.halt.check()
    if _probe(do) is None:
        raise do.stale()
    fd, old = open_regular(do.path, do.shown, "edit")
    try:
        if expected is not None and version_of(old) != expected.version:
            raise do.stale()
        data = read_whole(fd, old.st_size, MAX_WHOLE_BYTES, action="edit", shown=do.shown, halt=do.halt)
    finally:
        os.close(fd)
    text = decode(data, "edit", do.shown)
    new_string, note = _valid(edit.new_string)
    after = splice(text, msgspec.structs.replace(edit, new_string=new_string), do.shown)
    version, link_note = _replace(do, after.encode(), old, is_guarded=True)
    return FsEditOutcome(
        version=version, before=normalized(text), after=normalized(after), note=_joined(note, link_note)
    )


def _probe(do: Mutation) -> os.stat_result | None:
    """The regular file at the key, or nothing. The key is canonical: a link there leads nowhere."""
    with os_errors(do.action, do.shown):
        try:
            info = os.lstat(do.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    if not stat.S_ISREG(info.st_mode):
        raise not_regular(do.action, do.shown, info.st_mode)
    return info


def _replace(
    do: Mutation, data: bytes, old: os.stat_result | None, *, is_guarded: bool
) -> tuple[str, str | None]:
    """Publish `data`; the version and a note on hard links. `old` is what was looked at."""

    def confirm() -> None:
        if is_guarded and old is not None:
            now = _probe(do)
            if now is None or version_of(now) != version_of(old):
                raise do.stale()

    several = old is not None and old.st_nlink > 1
    with os_errors(do.action, do.shown):
        if old is not None and several and do.keep_links:
            return _in_place(do, data, old), NOTE_IN_PLACE.format(others=_others(old))
        try:
            version = publish(do.path, data, old=old, halt=do.halt, confirm=confirm)
        except OSError as error:
            if old is None or error.errno != errno.EBUSY:
                raise
            return _in_place(do, data, old), NOTE_MOUNTED  # nothing can be moved over a mounted file
    return version, NOTE_UNLINKED.format(others=_others(old)) if old is not None and several else None


def _in_place(do: Mutation, data: bytes, old: os.stat_result) -> str:
    fd, info = open_regular(do.path, do.shown, do.action)
    try:
        kept = read_whole(fd, info.st_size, MAX_WHOLE_BYTES, action=do.action, shown=do.shown, halt=do.halt)
    finally:
        os.close(fd)

    def confirm(fd: int) -> None:
        do.halt.check()
        if version_of(os.fstat(fd)) != version_of(old):
            raise do.stale()

    return write_in_place(do.path, data, kept, confirm=confirm)


def _others(info: os.stat_result) -> str:
    count = info.st_nlink - 1
    return "1 other name (hard link)" if count == 1 else f"{count} other names (hard links)"


def _lost_race(do: Mutation) -> FsError:
    """Something was created where nothing was expected: say what."""
    try:
        mode = os.lstat(do.path).st_mode
    except OSError:
        return do.unread()
    return do.unread() if stat.S_ISREG(mode) else not_regular(do.action, do.shown, mode)


def _diff_basis(do: Mutation, new_size: int) -> str | None:
    """The old text for a diff; None where it is too big, not text, changing, or cannot be read."""
    limit = do.diff_basis_max_bytes
    if new_size >= limit:
        return None
    try:
        fd, info = open_regular(do.path, do.shown, "read")
    except FsError:
        return None
    try:
        data = read_up_to(fd, limit, do.halt)
        if len(data) >= limit or len(data) != info.st_size or b"\0" in data:
            return None
        return normalized(data.decode())
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(fd)


def _valid(text: str) -> tuple[str, str | None]:
    """The text as UTF-8 can hold it: half surrogate pairs become U+FFFD, and the caller is told how many."""
    clean = valid(text)
    count = 0 if clean == text else clean.count("\ufffd") - text.count("\ufffd")
    return clean, f"{count} characters that are not valid Unicode were written as U+FFFD." if count else None


def _joined(*notes: str | None) -> str | None:
    return " ".join(note for note in notes if note) or None
