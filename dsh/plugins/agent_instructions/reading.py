"""Looks for instruction files and reads them, through the `fs` service.

Whatever lies at such a path, nothing hangs and nothing is raised: a file is found, is not there, or is failed
with a reason. What was found is kept by its version, so that looking again is a few calls of `stat`.
"""

import hashlib
import posixpath
from typing import NamedTuple

from dsh.capabilities.fs import FileSystem, FsError, FsTarget
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.kernel import CancelToken
from dsh.plugins.agent_instructions.place import USER_GLOBAL, Layout, Place

MAX_TOTAL_SOURCES = 8
"""How many files of the largest size are read at one time; beyond it the broadest are not."""
BOM = "\ufeff"


class Found(NamedTuple):
    """One file with something in it."""

    scope: str
    path: str
    """As it is shown."""
    directory: str
    text: str
    """Without a byte order mark."""
    digest: str
    """SHA-1 of the text, hexadecimal: the format's, no matter of safety."""


class Failed(NamedTuple):
    """One file that is there and cannot be used."""

    scope: str
    path: str
    location: str
    """The absolute path, for people."""
    why: str
    is_told: bool = True
    """A person should know; not where the row's own sandbox policy hides it."""


class Looked(NamedTuple):
    """What one directory holds."""

    place: Place
    found: tuple[Found, ...]
    """In the order of the names; of files that say the same only the first."""
    failed: tuple[Failed, ...]


class _Refused(Exception):
    def __init__(self, why: str, *, is_told: bool = True) -> None:
        super().__init__(why)
        self.is_told = is_told


class Library:
    """Reads for one session. State: the files that were found last, by scope, with their versions."""

    def __init__(self, max_source_bytes: int, global_path: str) -> None:
        """`global_path` is how the file in the home is shown."""
        self._max_source_bytes = max_source_bytes
        self._global_path = global_path
        self._kept: dict[str, tuple[str, Found]] = {}

    async def look(
        self,
        fs: FileSystem,
        layout: Layout,
        places: list[Place],
        *,
        policy: SandboxPolicy | None,
        signal: CancelToken,
    ) -> list[Looked]:
        """What these places hold, in their order. The last ones are read first.

        Raises:
            FsError: `FS_ABORTED` alone.
        """
        search = _Search(self, fs, layout, policy, signal)
        out = [await search.look(place) for place in reversed(places)]
        out.reverse()
        self._kept = search.kept
        return out

    @property
    def max_source_bytes(self) -> int:
        return self._max_source_bytes

    def shown(self, layout: Layout, place: Place, name: str) -> str:
        return self._global_path if place.is_global else layout.shown(place.directory, name)

    def kept(self, scope: str, version: str) -> Found | None:
        held = self._kept.get(scope)
        return held[1] if held is not None and held[0] == version else None


class _Search:
    """One look around. State: what it has read, and how many bytes that was."""

    def __init__(
        self,
        library: Library,
        fs: FileSystem,
        layout: Layout,
        policy: SandboxPolicy | None,
        signal: CancelToken,
    ) -> None:
        self._library, self._fs, self._layout = library, fs, layout
        self._policy, self._signal = policy, signal
        self._left = MAX_TOTAL_SOURCES * library.max_source_bytes
        self._homes: dict[str, FsTarget] = {}
        self.kept: dict[str, tuple[str, Found]] = {}

    async def look(self, place: Place) -> Looked:
        found: list[Found] = []
        failed: list[Failed] = []
        for name in place.names:
            scope = USER_GLOBAL if place.is_global else self._layout.scope(place.directory, name)
            path = self._library.shown(self._layout, place, name)
            try:
                file = await self._file(place, name, scope, path)
            except _Refused as refused:
                why, is_told = str(refused), refused.is_told
            except FsError as error:
                if error.fs_code == "FS_ABORTED":
                    raise
                why, is_told = _reason(error), error.fs_code != "FS_SANDBOX_DENIED"
            else:
                if file is not None and file.text.strip() not in {one.text.strip() for one in found}:
                    found.append(file)
                continue
            failed.append(Failed(scope, path, posixpath.join(place.directory, name), why, is_told))
        return Looked(place, tuple(found), tuple(failed))

    async def _file(self, place: Place, name: str, scope: str, path: str) -> Found | None:
        """The file, None where there is none or nothing is in it."""
        fs, signal = self._fs, self._signal
        location = posixpath.join(place.directory, name)
        entry = await fs.lstat(location, signal=signal)
        if entry is None:
            return None
        target = await fs.resolve(location, signal=signal)
        info = await fs.stat(target, signal=signal, sandbox_policy=self._policy)
        if info is None:
            raise _Refused("a link that leads nowhere")
        await self._check_place(place, target)
        file = self._library.kept(scope, info.version) if info.type == "file" else None
        if file is None:
            file = await self._read(target, info.size or 0, scope, path, place.directory)
        self.kept[scope] = (info.version, file)
        return file if file.text.strip() else None

    async def _check_place(self, place: Place, target: FsTarget) -> None:
        """A link may not lead out of the project, where the model would be shown what it is not to see."""
        if place.is_global:
            return
        homes = (self._layout.root, place.directory) if place.is_chosen else (self._layout.root,)
        for home in homes:
            if home not in self._homes:
                self._homes[home] = await self._fs.resolve(home, signal=self._signal)
            if self._fs.contains(self._homes[home], target):
                return
        raise _Refused("a link that leads out of the project")

    async def _read(self, target: FsTarget, size: int, scope: str, path: str, directory: str) -> Found:
        limit = self._library.max_source_bytes
        if size > limit:
            raise _Refused(f"larger than {limit} bytes")
        if size > self._left:
            raise _Refused("too much was read for more specific files")
        data = await self._fs.read_bytes(
            target, max_bytes=limit, signal=self._signal, sandbox_policy=self._policy
        )
        self._left -= len(data)
        if b"\0" in data:
            raise _Refused("not a text file")
        try:
            text = data.decode("utf-8").removeprefix(BOM)
        except UnicodeDecodeError as error:
            raise _Refused(f"not UTF-8 (byte {error.start})") from None
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return Found(scope, path, directory, text, digest)


def _reason(error: FsError) -> str:
    """What was wrong, without the path that is said beside it."""
    return error.message.partition('": ')[2] or error.message
