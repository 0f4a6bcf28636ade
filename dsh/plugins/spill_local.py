"""Row `spill-local`: keeps texts that are too long for the model in private files.

`<root>/session-<hash of the id>/<random>-<name>`, readable by nobody else. Without a `root` of the user's
they lie in the temporary folder of the program, where confined commands may read them too, and go with their
session or with the program (`dsh.capabilities.scratch`). In either place a session's files have a bound, and
the oldest make room for new ones.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

import msgspec

from dsh.capabilities import scratch
from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.spill import SPILL_STORE, Spilled
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.store import SESSION_DISPOSED

provide = [SPILL_STORE]

HINT = "Page through it with `read`, by offset and limit, or search it with `grep`."
NAME_LIMIT = 200
"""Characters of an encoded name; with what stands before it a file name stays within 255."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    root: NonEmpty | None = None
    """Folder that keeps the files for good; unset: a temporary one, which goes with the program. Confined
    commands read it only where the sandbox lets them."""
    max_session_bytes: Amount = 256 * 1024 * 1024
    """What the files of one session may take; the oldest are deleted for newer ones."""


class LocalSpillStore:
    """Implements `dsh.capabilities.spill.SpillStore`. State: the temporary folder, and what it holds."""

    def __init__(self, config: Config) -> None:
        self._root = Path(config.root).absolute() if config.root is not None else None
        self._temporary: Path | None = None
        self._max_bytes = config.max_session_bytes
        self._sizes: dict[str, dict[Path, int]] = {}
        """Of each session's files, oldest first; those that are being written included."""

    def locate(self, session_id: str, suggested_name: str) -> Spilled:
        name = f"{secrets.token_hex(6)}-{encoded(suggested_name)}"
        return Spilled(str(self._place() / _folder_name(session_id) / name), 0, HINT)

    async def save(self, place: Spilled, session_id: str, text: str) -> Spilled:
        path, data = Path(place.locator), text.encode("utf-8", "replace")
        sizes = self._sizes.get(session_id)
        if sizes is None:
            sizes = self._sizes[session_id] = _sizes_in(path.parent)
        self._make_room(sizes, len(data))
        sizes[path] = len(data)
        try:
            await asyncio.to_thread(_write, path, data)
            if self._sizes.get(session_id) is not sizes:
                await asyncio.to_thread(path.unlink, missing_ok=True)
                raise OSError(errno.ENOENT, "its session has ended", str(path))
        except BaseException:
            sizes.pop(path, None)
            raise
        return msgspec.structs.replace(place, size_bytes=len(data))

    def _make_room(self, sizes: dict[Path, int], size: int) -> None:
        if size > self._max_bytes:
            raise OSError(
                errno.EFBIG,
                f"{size} bytes are more than a session may keep (maxSessionBytes {self._max_bytes})",
            )
        total = sum(sizes.values())
        for path in list(sizes):
            if total + size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= sizes.pop(path)

    def _place(self) -> Path:
        if self._root is not None:
            return self._root
        if self._temporary is None or not self._temporary.is_dir():
            self._temporary = Path(tempfile.mkdtemp(prefix="dsh-spill-", dir=scratch.shared_folder("spill")))
        return self._temporary

    def ended(self, session: Session) -> None:
        """The session is over: its temporary files go."""
        self._sizes.pop(session.id, None)
        if self._temporary is not None:
            shutil.rmtree(self._temporary / _folder_name(session.id), ignore_errors=True)

    def remove(self) -> None:
        """The program is over, or the row: all temporary files go."""
        self._sizes.clear()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def _folder_name(session_id: str) -> str:
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"session-{digest[:12]}"


def encoded(name: str) -> str:
    """A file name: letters, digits and `._-` stay, each other UTF-16 unit becomes `~XXXX`."""
    if name in ("", ".", ".."):
        return name.replace(".", "~002E") or "~"
    return re.sub("[^A-Za-z0-9._-]", _escaped, name)[-NAME_LIMIT:]


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"~{units[at : at + 4]}" for at in range(0, len(units), 4))


def _sizes_in(folder: Path) -> dict[Path, int]:
    """What an earlier run of the session left, oldest first."""
    try:
        found = [(entry.stat(follow_symlinks=False), Path(entry.path)) for entry in os.scandir(folder)]
    except FileNotFoundError:
        return {}
    return {path: stat.st_size for stat, path in sorted(found, key=lambda one: one[0].st_mtime_ns)}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def apply(ctx: Context, config: Config) -> None:
    store = LocalSpillStore(config)
    ctx.effect(lambda: store.remove, "spilled texts")
    ctx.on(SESSION_DISPOSED, store.ended)
    ctx.provide(SPILL_STORE, store)
