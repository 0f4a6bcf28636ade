"""A file of a skill that cannot be read for a while."""

from pathlib import Path

import pytest

from dsh.capabilities.fs import FsError
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
