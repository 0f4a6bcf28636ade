"""Looks into the directories of skills through the `fs` service: a few calls of `stat` where nothing changed.

What was read is kept by the version of its file. What cannot be seen at the moment counts as it was, and the
list says that it is not complete; a file that is no skill is told once and passed over.
"""

import asyncio
import posixpath
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsh.capabilities.fs import FileSystem, FsDirEntry, FsError, FsInfo, FsTarget
from dsh.capabilities.skills import LoadedSkill, Skill, SkillList, SkillLookup
from dsh.plugins.skill_filesystem.document import NoSkill, parse_skill
from dsh.plugins.skill_filesystem.root import Root

FILE = "SKILL.md"
SUFFIX = ".md"
MAX_ENTRIES = 1_000
"""How many entries of one directory are looked at."""
_GONE = ("FS_NOT_FOUND", "FS_NOT_DIRECTORY")
_HIDDEN = ("FS_PERMISSION_DENIED", "FS_SANDBOX_DENIED")


class _Read(NamedTuple):
    """A file as it was read last."""

    version: str
    skill: Skill | None
    """None: it is no skill."""
    bad_since_s: float | None
    """When it was first seen to be none, after having been one."""


class _Project:
    """What was seen for one working directory: files by path, skills by root."""

    def __init__(self) -> None:
        self.files: dict[str, _Read] = {}
        self.roots: dict[Root, tuple[Skill, ...]] = {}
        self.answer: SkillList | None = None
        """What the last look came to."""


class Scanner:
    """State: what was seen for the working directories that were looked at last, and what was told."""

    def __init__(
        self,
        warn: Callable[[str], None],
        *,
        max_bytes: int,
        max_projects: int,
        settle_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn, self._clock = warn, clock
        self._max_bytes, self._max_projects, self._settle_s = max_bytes, max_projects, settle_s
        self._projects: OrderedDict[str | None, _Project] = OrderedDict()
        self._told: set[str] = set()

    async def scan(self, fs: FileSystem, roots: Sequence[Root], lookup: SkillLookup) -> SkillList:
        """The skills in these directories.

        Raises:
            FsError: `FS_ABORTED` alone.
        """
        project = self._projects.setdefault(lookup.cwd, _Project())
        self._projects.move_to_end(lookup.cwd)
        while len(self._projects) > self._max_projects:
            self._projects.popitem(last=False)
        search = _Search(self, fs, project, lookup)
        answers = await asyncio.gather(*(search.root(root) for root in roots))
        project.files = search.files
        skills = [skill for found, _ in answers for skill in found]
        project.answer = SkillList(tuple(skills), all(is_complete for _, is_complete in answers))
        return project.answer

    def seen(self, cwd: str | None) -> SkillList | None:
        """What was seen at the last look, None where there was none or it could not see all."""
        project = self._projects.get(cwd)
        answer = None if project is None else project.answer
        return answer if answer is not None and answer.is_complete else None

    async def load(self, fs: FileSystem, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        """The skill as its file says it now, None where the file is gone.

        Raises:
            NoSkill: it cannot be used.
            FsError: it cannot be read.
        """
        target = await fs.resolve(skill.key, signal=lookup.signal)
        info = await fs.stat(target, signal=lookup.signal, sandbox_policy=lookup.sandbox_policy)
        if info is None:
            return None
        base = skill.resource_base.path if skill.resource_base is not None else None
        return await self.read(
            fs, target, skill.key, base or posixpath.dirname(skill.key), skill.rank, lookup
        )

    async def read(
        self, fs: FileSystem, target: FsTarget, path: str, base: str, rank: int, lookup: SkillLookup
    ) -> LoadedSkill:
        try:
            data = await fs.read_bytes(
                target,
                max_bytes=self._max_bytes,
                signal=lookup.signal,
                sandbox_policy=lookup.sandbox_policy,
            )
        except FsError as error:
            if error.fs_code == "FS_TOO_LARGE":
                raise NoSkill(f"it is larger than {self._max_bytes} bytes") from None
            if error.fs_code == "FS_NOT_REGULAR_FILE":
                raise NoSkill("it is no regular file") from None
            raise
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NoSkill(f"it is not UTF-8 (byte {error.start})") from None
        if "\0" in text:
            raise NoSkill("it is not a text file")
        return parse_skill(text, path=path, base=base, rank=rank)

    @property
    def settle_s(self) -> float:
        return self._settle_s

    def now_s(self) -> float:
        return self._clock()

    def tell(self, problem: str) -> None:
        """Warn, of each thing once."""
        if problem not in self._told:
            self._told.add(problem)
            self._warn(problem)


class _Search:
    """One look. State: the files that it has seen."""

    def __init__(self, scanner: Scanner, fs: FileSystem, project: _Project, lookup: SkillLookup) -> None:
        self._scanner, self._fs, self._project, self._lookup = scanner, fs, project, lookup
        self.files: dict[str, _Read] = {}

    async def root(self, root: Root) -> tuple[Sequence[Skill], bool]:
        """The skills of one directory in the order of names, and whether all of it could be seen."""
        before = self._project.roots.get(root)
        try:
            entries = await self._entries(root)
        except FsError as error:
            if error.fs_code == "FS_ABORTED":
                raise
            if error.fs_code in _GONE:
                entries = []
            else:
                self._scanner.tell(f"the skills in {root.path} cannot be seen: {error.message}")
                return before or (), before is None and error.fs_code in _HIDDEN
        out: list[Skill] = []
        is_complete = True
        for entry in entries:
            skill, is_sure = await self._entry(root, entry)
            is_complete = is_complete and is_sure
            if skill is not None:
                out.append(skill)
        self._project.roots[root] = tuple(out)
        return out, is_complete

    async def _entries(self, root: Root) -> list[FsDirEntry]:
        signal, policy = self._lookup.signal, self._lookup.sandbox_policy
        target = await self._fs.resolve(root.path, signal=signal)
        entries = await self._fs.list_dir(target, signal=signal, sandbox_policy=policy)
        entries = sorted((e for e in entries if e.name not in root.skipped), key=lambda entry: entry.name)
        if len(entries) > MAX_ENTRIES:
            self._scanner.tell(
                f"of {root.path} only the first {MAX_ENTRIES} entries are looked at for skills"
            )
        return entries[:MAX_ENTRIES]

    async def _entry(self, root: Root, entry: FsDirEntry) -> tuple[Skill | None, bool]:
        path = posixpath.join(root.path, entry.name)
        if entry.type == "directory":
            return await self._file(posixpath.join(path, FILE), path, root.rank)
        if entry.name.endswith(SUFFIX):
            return await self._file(path, root.path, root.rank)
        return None, True

    async def _file(self, path: str, base: str, rank: int) -> tuple[Skill | None, bool]:
        """The skill of a file, None where it is none; and whether that is sure."""
        fs, lookup, before = self._fs, self._lookup, self._project.files.get(path)
        info: FsInfo | None = None
        target: FsTarget | None = None
        try:
            target = await fs.resolve(path, signal=lookup.signal)
            info = await fs.stat(target, signal=lookup.signal, sandbox_policy=lookup.sandbox_policy)
            if info is None:
                return None, True
            if before is not None and before.version == info.version and before.bad_since_s is None:
                self.files[path] = before
                return before.skill, True
            loaded = await self._scanner.read(fs, target, path, base, rank, lookup)
            self.files[path] = _Read(info.version, loaded.skill, None)
            return loaded.skill, True
        except NoSkill as reason:
            problem, is_sure = str(reason), True
        except FsError as error:
            if error.fs_code == "FS_ABORTED":
                raise
            if before is not None and before.skill is not None:
                self.files[path] = before
                return before.skill, False
            # A path that leads nowhere, such as a loop of links, holds none; what is there may be a skill.
            problem, is_sure, info = error.message, target is None or error.fs_code != "FS_IO_ERROR", None
        if info is not None and before is not None and before.skill is not None:
            now_s = self._scanner.now_s()
            bad_since_s = now_s if before.bad_since_s is None else before.bad_since_s
            if now_s - bad_since_s < self._scanner.settle_s:  # perhaps it is being written
                self.files[path] = _Read(info.version, before.skill, bad_since_s)
                return before.skill, False
        if info is not None:
            self.files[path] = _Read(info.version, None, None)
        self._scanner.tell(f"the skill in {path} is not offered: {problem}")
        return None, is_sure
