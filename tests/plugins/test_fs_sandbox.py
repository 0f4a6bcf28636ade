"""Writes go where the policy allows, judged by the file they really reach; reads go anywhere."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.capabilities.fs import FsError
from dsh.plugins import fs_observation_policy, fs_sandbox, tool_fs
from tests.aio import aio
from tests.plugins.files import FixedPolicy, mounted

ROWS: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (fs_sandbox, {}),
    (fs_observation_policy, {}),
    (tool_fs, {}),
)


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside the workspace."""
    return tmp_path_factory.mktemp("outside")


@aio
async def test_workspace_write_denies_what_leaves_the_workspace(tmp_path: Path, outside: Path) -> None:
    workspace = outside / "ws"
    workspace.mkdir()
    (workspace / "out").symlink_to("..")
    (outside / "away.txt").write_text("theirs")
    (workspace / "away.txt").symlink_to("../away.txt")
    async with mounted(workspace, ROWS, policy=FixedPolicy("workspace-write", str(workspace))) as kit:
        for path in (
            "../x",
            "out/x",
            "away.txt",
            str(outside / "x"),
            "sub/../../x",
            str(tmp_path / "x"),
            ".dsh/x",
        ):
            assert await kit.code("write", file_path=path, content="x") == "FS_SANDBOX_DENIED", path
        assert "Created file" in await kit.text("write", file_path="in/x", content="x")

    assert {path.name for path in outside.iterdir()} == {"ws", "away.txt"}
    assert (outside / "away.txt").read_text() == "theirs"


@aio
async def test_a_denial_is_marked_and_keeps_its_code(tmp_path: Path, outside: Path) -> None:
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("workspace-write", str(tmp_path))) as kit:
        result = await kit.text("write", file_path=str(outside / "x"), content="x")

    assert (
        "\n[sandbox: file access denied under workspace-write mode]\n[sandbox: escalation available — "
        in result
    )


@aio
async def test_read_only_denies_every_write_and_no_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("read-only", str(tmp_path))) as kit:
        assert "1: x" in await kit.text("read", file_path="f")
        assert await kit.code("write", file_path="f", content="y") == "FS_SANDBOX_DENIED"
        assert await kit.code("edit", file_path="f", old_string="x", new_string="y") == "FS_SANDBOX_DENIED"

    assert (tmp_path / "f").read_text() == "x"


@aio
async def test_an_unread_file_outside_is_not_observed_for_edit_and_denied_for_write(
    tmp_path: Path, outside: Path
) -> None:
    (outside / "f").write_text("x")
    path = str(outside / "f")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("workspace-write", str(tmp_path))) as kit:
        assert await kit.code("edit", file_path=path, old_string="x", new_string="y") == "FS_NOT_OBSERVED"
        assert await kit.code("write", file_path=path, content="y") == "FS_SANDBOX_DENIED"
        assert "1: x" in await kit.text("read", file_path=path)


@aio
async def test_an_ancestor_that_becomes_a_link_after_resolving_is_denied(
    tmp_path: Path, outside: Path
) -> None:
    workspace = outside / "ws"
    (workspace / "d").mkdir(parents=True)
    async with mounted(workspace, ROWS, policy=FixedPolicy("workspace-write", str(workspace))) as kit:
        target = await kit.fs.resolve("d/f", str(workspace))
        (workspace / "d").rmdir()
        (workspace / "d").symlink_to("..")

        with pytest.raises(FsError) as caught:
            await kit.fs.write_text(target, "x")

    assert caught.value.code == "FS_SANDBOX_DENIED"
    assert {path.name for path in outside.iterdir()} == {"ws"}


@aio
async def test_what_is_judged_is_what_is_written(tmp_path: Path) -> None:
    """A folder that leads elsewhere within the workspace by now."""
    (tmp_path / "d").mkdir()
    (tmp_path / "e").mkdir()
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("workspace-write", str(tmp_path))) as kit:
        target = await kit.fs.resolve(str(tmp_path / "d" / "f"))
        (tmp_path / "d").rmdir()
        (tmp_path / "d").symlink_to("e")
        await kit.fs.write_text(target, "x")

    assert (tmp_path / "e" / "f").read_text() == "x"


@aio
async def test_a_workspace_given_through_a_link_is_allowed(outside: Path) -> None:
    (outside / "real").mkdir()
    (outside / "alias").symlink_to("real")
    policy = FixedPolicy("workspace-write", str(outside / "real"))  # as the policy row makes it canonical
    async with mounted(outside / "alias", ROWS, policy=policy) as kit:
        assert "Created file" in await kit.text("write", file_path="x", content="x")

    assert (outside / "real" / "x").read_text() == "x"


@aio
async def test_under_workspace_write_other_names_of_a_file_keep_their_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("workspace-write", str(tmp_path))) as kit:
        await kit.run("read", file_path="f")
        text = await kit.text("edit", file_path="f", old_string="old", new_string="new")

    assert (tmp_path / "f").read_text() == "new"
    assert (tmp_path / "g").read_text() == "old"
    assert "the others keep the old content" in text


@aio
async def test_full_access_behaves_like_the_local_row(tmp_path: Path, outside: Path) -> None:
    (outside / "f").write_text("old")
    (outside / "g").hardlink_to(outside / "f")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("danger-full-access", str(tmp_path))) as kit:
        await kit.run("read", file_path=str(outside / "f"))
        text = await kit.text("write", file_path=str(outside / "f"), content="new")

    assert (outside / "g").read_text() == "new"
    assert "written in place (not atomically)" in text


@aio
async def test_escalation_is_offered_where_the_row_confines_whatever_its_mode(tmp_path: Path) -> None:
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("danger-full-access", str(tmp_path))) as kit:
        half = await kit.text("write", file_path="f", content="x", sandbox_permissions="danger-full-access")
        both = await kit.text(
            "write",
            file_path="f",
            content="x",
            sandbox_permissions="danger-full-access",
            justification="because",
        )

    assert "go together" in half
    assert "is not wider" in both
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("tool", "arguments", "refusal"),
    [
        ("write", {"file_path": " ", "content": "x"}, "file_path must not be blank"),
        ("edit", {"file_path": " ", "old_string": "a", "new_string": "a"}, "file_path must not be blank"),
        ("edit", {"file_path": "f", "old_string": "", "new_string": "a"}, "old_string must not be empty"),
        ("edit", {"file_path": "f", "old_string": "a", "new_string": "a"}, "must differ"),
    ],
)
@aio
async def test_values_are_refused_before_an_escalation_is_looked_at(
    tmp_path: Path, tool: str, arguments: dict[str, Any], refusal: str
) -> None:
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("read-only", str(tmp_path))) as kit:
        text = await kit.text(tool, **arguments, sandbox_permissions="danger-full-access")

    assert refusal in text


@aio
async def test_mutations_start_in_the_workspace_of_the_policy(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with mounted(tmp_path, ROWS, policy=FixedPolicy("danger-full-access", str(root))) as kit:
        await kit.run("write", file_path="f", content="x")

    assert (root / "f").exists()
