"""The file system of this machine: what the rows `fs-local` and `fs-sandbox` share.

It lies here and not in a row because a row never imports another row. All file work runs in threads;
mutations of one file run one after the other.
"""

import os
import stat
from collections.abc import AsyncGenerator
from typing import TypeVar

import msgspec

from dsh.capabilities.bounds import Amount
from dsh.capabilities.fs import (
    FsDirEntry,
    FsEditIntent,
    FsEditOutcome,
    FsEditRequest,
    FsInfo,
    FsPathInfo,
    FsTarget,
    FsWriteIntent,
    FsWriteOutcome,
)
from dsh.capabilities.local_fs import path as paths
from dsh.capabilities.local_fs.error import os_errors
from dsh.capabilities.local_fs.listing import list_children
from dsh.capabilities.local_fs.lock import KeyLocks
from dsh.capabilities.local_fs.mutate import Mutation, edit_file, write_file
from dsh.capabilities.local_fs.reading import (
    MAX_WHOLE_BYTES,
    TextStream,
    decode,
    open_regular,
    read_whole,
)
from dsh.capabilities.local_fs.thread import Halt, off_loop
from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy
from dsh.kernel import CancelToken

T = TypeVar("T")


class FsConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the rows `fs-local` and `fs-sandbox`."""

    cwd: str | None = None
    """Where relative paths start that come without a directory; unset: the process's. No containment."""
    diff_basis_max_bytes: Amount = 10 * 1024 * 1024
    """An overwritten file is kept for a diff only where both texts are shorter than this."""


class LocalFileSystem:
    """Implements `dsh.capabilities.fs.FileSystem` without a fence. Holds the locks of running mutations."""

    def __init__(self, config: FsConfig) -> None:
        self._cwd = paths.absolute(config.cwd or ".", os.getcwd())
        self._diff_basis_max_bytes = config.diff_basis_max_bytes
        self._locks = KeyLocks()

    @property
    def sandbox_mode(self) -> SandboxMode | None:
        return None

    def target_of(self, path: str, cwd: str | None = None) -> FsTarget:
        return paths.locate(path, self._base(cwd))

    async def resolve(
        self, path: str, cwd: str | None = None, *, signal: CancelToken | None = None
    ) -> FsTarget:
        return await off_loop(lambda: self.target_of(path, cwd), Halt(signal, "resolve", path))

    def process_path(self, target: FsTarget) -> str:
        return target.target_key

    def file_url(self, target: FsTarget) -> str:
        return paths.file_url(target.target_key)

    def contains(self, parent: FsTarget, child: FsTarget) -> bool:
        return paths.is_within(parent.target_key, child.target_key)

    async def stat(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsInfo | None:
        self._admit_read(target, sandbox_policy, "look at")

        def look() -> FsInfo | None:
            with os_errors("look at", target.display_path):
                info = _or_none(target.target_key, follow=True)
            return info and FsInfo(paths.version_of(info), paths.type_of(info), paths.size_of(info))

        return await off_loop(look, Halt(signal, "look at", target.display_path))

    async def lstat(
        self, path: str, cwd: str | None = None, *, signal: CancelToken | None = None
    ) -> FsPathInfo | None:
        shown = paths.absolute(paths.checked(path), self._base(cwd))

        def look() -> FsPathInfo | None:
            with os_errors("look at", shown):
                info = _or_none(shown, follow=False)
            if info is None:
                return None
            kind = "symlink" if stat.S_ISLNK(info.st_mode) else paths.type_of(info)
            return FsPathInfo(paths.version_of(info), kind, paths.size_of(info))

        return await off_loop(look, Halt(signal, "look at", shown))

    async def read_text(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> str:
        self._admit_read(target, sandbox_policy, "read")
        halt = Halt(signal, "read", target.display_path)
        return await off_loop(
            lambda: decode(_content(target, MAX_WHOLE_BYTES, halt), "read", target.display_path), halt
        )

    async def stream_text(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> AsyncGenerator[str, None]:
        self._admit_read(target, sandbox_policy, "read")
        halt = Halt(signal, "read", target.display_path)
        stream = await off_loop(lambda: TextStream(target.target_key, target.display_path), halt)
        try:
            while text := await off_loop(stream.next, halt):
                yield text
        finally:
            stream.close()

    async def read_bytes(
        self,
        target: FsTarget,
        *,
        max_bytes: int,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> bytes:
        self._admit_read(target, sandbox_policy, "read")
        halt = Halt(signal, "read", target.display_path)
        return await off_loop(lambda: _content(target, max_bytes, halt), halt)

    async def list_dir(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> list[FsDirEntry]:
        self._admit_read(target, sandbox_policy, "list")
        halt = Halt(signal, "list", target.display_path)
        return await off_loop(lambda: list_children(target, halt), halt)

    async def write_text(
        self,
        target: FsTarget,
        content: str,
        *,
        expected: FsWriteIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsWriteOutcome:
        return await self._write(target, content, expected, signal)

    async def edit_text(
        self,
        target: FsTarget,
        edit: FsEditRequest,
        *,
        expected: FsEditIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsEditOutcome:
        return await self._edit(target, edit, expected, signal)

    def _admit_read(self, target: FsTarget, policy: SandboxPolicy | None, action: str) -> None:
        """Raises `FsError` where the target may not be read. Here everything may."""

    async def _write(
        self,
        target: FsTarget,
        content: str,
        expected: FsWriteIntent | None,
        signal: CancelToken | None,
        *,
        keep_links: bool = True,
    ) -> FsWriteOutcome:
        mutation = self._mutation(target, "write", signal, keep_links)
        async with self._locks.hold(target.target_key):
            return await off_loop(lambda: write_file(mutation, content, expected), mutation.halt)

    async def _edit(
        self,
        target: FsTarget,
        edit: FsEditRequest,
        expected: FsEditIntent | None,
        signal: CancelToken | None,
        *,
        keep_links: bool = True,
    ) -> FsEditOutcome:
        mutation = self._mutation(target, "edit", signal, keep_links)
        async with self._locks.hold(target.target_key):
            return await off_loop(lambda: edit_file(mutation, edit, expected), mutation.halt)

    def _mutation(
        self, target: FsTarget, action: str, signal: CancelToken | None, keep_links: bool
    ) -> Mutation:
        return Mutation(
            target=target,
            action=action,
            halt=Halt(signal, action, target.display_path),
            diff_basis_max_bytes=self._diff_basis_max_bytes,
            keep_links=keep_links,
        )

    def _base(self, cwd: str | None) -> str:
        return self._cwd if cwd is None else paths.absolute(cwd, self._cwd)


def _or_none(path: str, *, follow: bool) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _content(target: FsTarget, limit: int, halt: Halt) -> bytes:
    shown = target.display_path
    fd, info = open_regular(target.target_key, shown, "read")
    try:
        return read_whole(fd, info.st_size, limit, action="read", shown=shown, halt=halt)
    finally:
        os.close(fd)
