"""Looking into directories of skills: real files, and what cannot be seen or used."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsh.capabilities.fs import FileSystem, FsDirEntry, FsError, FsErrorCode, FsTarget
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.capabilities.skills import Skill, SkillLookup
from dsh.kernel import CancelToken
from dsh.plugins.skill_filesystem.document import NoSkill
from dsh.plugins.skill_filesystem.root import Root
from dsh.plugins.skill_filesystem.scan import Scanner
from tests.aio import aio

MAX_BYTES = 300
SETTLE_S = 5.0


class Flaky(LocalFileSystem):
    """Refuses to list directories while it is told to."""

    code: FsErrorCode | None = None

    async def list_dir(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> list[FsDirEntry]:
        if self.code is not None:
            raise FsError(self.code, "it cannot be listed")
        return await super().list_dir(target, signal=signal, sandbox_policy=sandbox_policy)


class Looking:
    """A scanner with a clock that a test moves, and what it warned of."""

    def __init__(self, root: Path, max_projects: int = 4) -> None:
        self.now_s = 100.0
        self.warnings: list[str] = []
        self.fs = Flaky(FsConfig())
        self.roots: Sequence[Root] = (Root(str(root), 100, frozenset({".system"})),)
        self.scanner = Scanner(
            self.warnings.append,
            max_bytes=MAX_BYTES,
            max_projects=max_projects,
            settle_s=SETTLE_S,
            clock=lambda: self.now_s,
        )

    async def look(self, cwd: str = "/") -> tuple[list[str], bool]:
        found = await self.scanner.scan(self.fs, self.roots, SkillLookup(cwd=cwd))
        return [skill.name for skill in found.skills], found.is_complete

    async def first(self) -> Skill:
        return (await self.scanner.scan(self.fs, self.roots, SkillLookup(cwd="/"))).skills[0]


def skill_in(path: Path, name: str, body: str = "Do it.", description: str = "what it does") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")


@aio
async def test_one_level_in_the_order_of_names_without_what_is_skipped(tmp_path: Path) -> None:
    skill_in(tmp_path / "b" / "SKILL.md", "second")
    skill_in(tmp_path / "a.md", "first")
    skill_in(tmp_path / "c" / "deeper" / "SKILL.md", "too-deep")
    skill_in(tmp_path / ".system" / "SKILL.md", "system")
    skill_in(tmp_path / "notes.txt", "text")
    (tmp_path / "link").symlink_to(tmp_path / "b")

    looking = Looking(tmp_path)
    skill = await looking.first()

    assert (await looking.look())[0][:2] == ["first", "second"]
    assert "too-deep" not in (await looking.look())[0]
    assert "system" not in (await looking.look())[0]
    assert skill.resource_base is not None
    assert skill.resource_base.path == str(tmp_path)
    assert looking.warnings == []


@aio
async def test_files_that_are_no_skills_are_told_once_and_the_others_count(tmp_path: Path) -> None:
    skill_in(tmp_path / "good.md", "good")
    skill_in(tmp_path / "huge.md", "huge", "x" * MAX_BYTES)
    (tmp_path / "binary.md").write_bytes(b"---\nname: a\ndescription: b\n---\n\0")
    (tmp_path / "latin.md").write_bytes(b"---\nname: a\ndescription: \xe9t\xe9\n---\n")
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "bare.md").write_text("no front matter")

    looking = Looking(tmp_path)

    assert await looking.look() == (["good"], True)
    assert await looking.look() == (["good"], True)
    told = {line.split(": ")[0].rsplit("/", 1)[1].split(" ")[0]: line for line in looking.warnings}
    assert len(looking.warnings) == len(told)
    assert f"larger than {MAX_BYTES} bytes" in told["huge.md"]
    assert "not a text file" in told["binary.md"]
    assert "not UTF-8" in told["latin.md"]
    assert "no regular file" in told["fifo.md"]
    assert "its first line is not ---" in told["bare.md"]


@aio
async def test_a_skill_that_breaks_counts_as_it_was_until_it_has_settled(tmp_path: Path) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    assert await looking.look() == (["a"], True)

    (tmp_path / "a.md").write_text("--")
    assert await looking.look() == (["a"], False)
    looking.now_s += SETTLE_S - 1
    assert await looking.look() == (["a"], False)
    assert looking.warnings == []
    looking.now_s += 1
    assert await looking.look() == ([], True)
    assert len(looking.warnings) == 1

    skill_in(tmp_path / "a.md", "a", description="whole again")
    assert await looking.look() == (["a"], True)


@aio
async def test_a_skill_that_is_whole_again_in_time_is_not_told_of(tmp_path: Path) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    await looking.look()
    (tmp_path / "a.md").write_text("--")
    await looking.look()

    skill_in(tmp_path / "a.md", "b")

    assert await looking.look() == (["b"], True)
    assert looking.warnings == []


@pytest.mark.parametrize("code", ["FS_IO_ERROR", "FS_PERMISSION_DENIED"])
@aio
async def test_a_directory_that_cannot_be_seen_for_a_while_keeps_its_skills(
    tmp_path: Path, code: FsErrorCode
) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    await looking.look()

    looking.fs.code = code
    assert await looking.look() == (["a"], False)
    looking.fs.code = None
    assert await looking.look() == (["a"], True)


@pytest.mark.parametrize(
    ("code", "is_complete"), [("FS_IO_ERROR", False), ("FS_PERMISSION_DENIED", True), ("FS_NOT_FOUND", True)]
)
@aio
async def test_a_directory_that_was_never_seen_is_empty_where_it_is_forbidden(
    tmp_path: Path, code: FsErrorCode, is_complete: bool
) -> None:
    looking = Looking(tmp_path)
    looking.fs.code = code

    assert await looking.look() == ([], is_complete)


@aio
async def test_a_removed_skill_goes_and_a_directory_may_come_later(tmp_path: Path) -> None:
    root = tmp_path / "later"
    looking = Looking(root)
    assert await looking.look() == ([], True)
    skill_in(root / "a.md", "a")
    assert await looking.look() == (["a"], True)
    (root / "a.md").unlink()
    assert await looking.look() == ([], True)


@aio
async def test_of_the_projects_the_one_that_was_looked_at_longest_ago_is_forgotten(tmp_path: Path) -> None:
    looking = Looking(tmp_path, max_projects=2)
    for cwd in ("/a", "/b", "/a", "/c"):
        await looking.look(cwd)

    assert looking.scanner.seen("/b") is None
    assert looking.scanner.seen("/a") is not None
    assert looking.scanner.seen("/c") is not None


@aio
async def test_the_text_is_read_anew(tmp_path: Path) -> None:
    skill_in(tmp_path / "a.md", "a", "Old.")
    looking = Looking(tmp_path)
    skill = await looking.first()
    fs: FileSystem = looking.fs

    skill_in(tmp_path / "a.md", "a", "New.")
    loaded = await looking.scanner.load(fs, skill, SkillLookup(cwd="/"))
    assert loaded is not None
    assert loaded.content == "New."
    (tmp_path / "a.md").write_text("broken")
    with pytest.raises(NoSkill):
        await looking.scanner.load(fs, skill, SkillLookup(cwd="/"))
    (tmp_path / "a.md").unlink()
    assert await looking.scanner.load(fs, skill, SkillLookup(cwd="/")) is None
