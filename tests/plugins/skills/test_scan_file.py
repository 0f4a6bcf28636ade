"""A file of a skill that cannot be read for a while."""

import os
from pathlib import Path

import pytest

from dsh.capabilities.fs import FsError, FsErrorCode
from dsh.plugins.skill_filesystem import scan
from tests.aio import aio
from tests.plugins.skills.test_scan import Looking, skill_in


@aio
async def test_a_known_skill_whose_file_cannot_be_read_counts_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    await looking.look()

    async def refuse(*_: object, **__: object) -> bytes:
        raise FsError("FS_IO_ERROR", "it cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(looking.fs, "read_bytes", refuse)
        skill_in(tmp_path / "a.md", "a", description="changed")
        assert await looking.look() == (["a"], False)

    assert await looking.look() == (["a"], True)
    assert (await looking.first()).description == "changed"


@aio
async def test_a_file_that_was_never_read_may_hold_a_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a resume: the list of an earlier process may have had it, so nothing is taken back."""
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    codes: list[tuple[FsErrorCode, bool]] = [("FS_IO_ERROR", False), ("FS_PERMISSION_DENIED", True)]
    for code, is_sure in codes:

        async def refuse(*_: object, refusal: FsErrorCode = code, **__: object) -> bytes:
            raise FsError(refusal, "it cannot be read")

        with monkeypatch.context() as broken:
            broken.setattr(looking.fs, "read_bytes", refuse)
            assert await looking.look() == ([], is_sure)
    assert await looking.look() == (["a"], True)


@aio
async def test_links_that_lead_nowhere_hold_no_skill(tmp_path: Path) -> None:
    (tmp_path / "a.md").symlink_to("b.md")
    (tmp_path / "b.md").symlink_to("a.md")
    (tmp_path / "c.md").symlink_to("nothing")
    assert await Looking(tmp_path).look() == ([], True)


@aio
async def test_a_look_that_could_not_see_all_is_no_last_one(tmp_path: Path) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    looking.fs.code = "FS_IO_ERROR"
    assert await looking.look() == ([], False)
    assert looking.scanner.seen("/") is None

    looking.fs.code = None
    await looking.look()
    seen = looking.scanner.seen("/")
    assert seen is not None
    assert ([skill.name for skill in seen.skills], seen.is_complete) == (["a"], True)


@aio
async def test_a_directory_that_stays_out_of_sight_is_told_of_once(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    looking.fs.code = "FS_IO_ERROR"
    for _ in range(2):
        await looking.look()
    [warning] = looking.warnings
    assert f"the skills in {tmp_path} cannot be seen" in warning


@pytest.mark.parametrize("kind", ["nothing", "file", "fifo", "dangling"])
@aio
async def test_what_is_no_directory_holds_no_skills_for_sure(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "skills"
    if kind == "file":
        root.write_text("x")
    elif kind == "fifo":
        os.mkfifo(root)
    elif kind == "dangling":
        root.symlink_to("nowhere")
    looking = Looking(root)
    assert await looking.look() == ([], True)
    assert looking.warnings == []


@aio
async def test_a_file_that_was_gone_in_between_does_not_count_as_it_was(tmp_path: Path) -> None:
    skill_in(tmp_path / "a.md", "a")
    looking = Looking(tmp_path)
    await looking.look()
    (tmp_path / "a.md").unlink()
    await looking.look()
    (tmp_path / "a.md").write_text("no skill")
    assert await looking.look() == ([], True)


@aio
async def test_of_a_full_directory_the_first_entries_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_ENTRIES", 2)
    for name in ("a", "b", "c"):
        skill_in(tmp_path / f"{name}.md", name)
    looking = Looking(tmp_path)
    assert await looking.look() == (["a", "b"], True)
    assert "only the first 2 entries" in looking.warnings[0]
