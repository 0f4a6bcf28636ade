"""Which directories are looked into, and which keys of the row are refused."""

from pathlib import Path

import msgspec
import pytest

from dsh.capabilities.fs import FsError, FsErrorCode, FsPathInfo
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.kernel import CancelToken, Context
from dsh.plugins.skill_filesystem import Config, roots_of
from dsh.plugins.skill_filesystem.root import Root, Roots, project_of
from tests.aio import aio


class Forbidding(LocalFileSystem):
    """Refuses to look at what lies directly in one directory."""

    def __init__(self, directory: Path, code: FsErrorCode) -> None:
        super().__init__(FsConfig())
        self._directory, self._code = directory, code

    async def lstat(
        self, path: str, cwd: str | None = None, *, signal: CancelToken | None = None
    ) -> FsPathInfo | None:
        if Path(path).parent == self._directory:
            raise FsError(self._code, "it cannot be seen")
        return await super().lstat(path, cwd, signal=signal)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("watchUsePolling", True, "directories are looked into when a step begins"),
        ("watchUsePolling", False, "directories are looked into when a step begins"),
        ("watchPollIntervalMs", 100, "directories are looked into when a step begins"),
        ("watchFollowSymlinks", True, "links are always followed"),
    ],
)
def test_keys_of_a_watcher_are_refused_with_the_reason(key: str, value: object, why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"{key} has no meaning here: .*{why}; leave it out"):
        msgspec.convert({key: value}, Config)


@pytest.mark.parametrize("is_file", [False, True])
@aio
async def test_the_project_is_the_nearest_directory_above_with_a_git_of_any_kind(
    tmp_path: Path, is_file: bool
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    fs = LocalFileSystem(FsConfig())
    (tmp_path / ".git").mkdir()
    assert await project_of(fs, str(inner), None) == str(tmp_path)
    if is_file:
        (tmp_path / "a" / ".git").write_text("gitdir: elsewhere")  # as in a worktree
    else:
        (tmp_path / "a" / ".git").symlink_to("nowhere")
    assert await project_of(fs, str(inner), None) == str(tmp_path / "a")


@aio
async def test_behind_a_forbidden_directory_there_is_no_project_and_another_failure_is_one(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    closed = Forbidding(tmp_path / "a", "FS_PERMISSION_DENIED")
    assert await project_of(closed, str(inner), None) == str(inner)
    with pytest.raises(FsError, match="it cannot be seen"):
        await project_of(Forbidding(tmp_path / "a", "FS_IO_ERROR"), str(inner), None)


@aio
async def test_roots_come_by_rank_each_directory_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    fs = LocalFileSystem(FsConfig())
    twice = f"{tmp_path}/.agents/skills"
    roots = Roots((Root("/last", 600), Root(twice, 500), Root("/own", 300)), has_project=True)
    found = [(root.path, root.rank) for root in await roots.of(fs, f"{tmp_path}/x/..", None)]
    assert found == [(f"{tmp_path}/.dsh/skills", 100), (twice, 200), ("/own", 300), ("/last", 600)]

    for cwd in (None, "relative"):
        assert [root.rank for root in await roots.of(fs, cwd, None)] == [300, 500, 600]
    alone = roots._replace(has_project=False)
    assert [root.rank for root in await alone.of(fs, str(tmp_path), None)] == [300, 500, 600]


def test_own_directories_are_absolute_and_the_home_s_own_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = Config(
        custom_skill_dirs=["~/mine", "./here/../there", "~nobody-at-all/x"], bundled_skill_dir="b"
    )
    found = [(root.path, root.rank) for root in roots_of(Context(), config).fixed]
    assert found == [
        (f"{tmp_path}/mine", 300),
        (f"{tmp_path}/there", 300),
        (f"{tmp_path}/~nobody-at-all/x", 300),
        (f"{tmp_path}/.agents/skills", 500),
        (f"{tmp_path}/b", 600),
    ]
    assert roots_of(Context(), Config(include_default_roots=False)) == Roots((), has_project=False)
