"""A session changes a file only in the version that it has seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs.provider import LocalFileSystem
from dsh.plugins import fs_local, fs_observation_policy, tool_fs
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.tools.execution import ToolFailure
from tests.aio import aio
from tests.plugins.files import Kit, Owner, mounted, text_of


def change(path: Path, text: str) -> None:
    path.write_text(text)


@aio
async def test_an_unread_file_is_neither_edited_nor_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        assert await kit.code("edit", file_path="f", old_string="old", new_string="new") == "FS_NOT_OBSERVED"
        assert await kit.code("write", file_path="f", content="new") == "FS_NOT_OBSERVED"

    assert (tmp_path / "f").read_text() == "old"


@aio
async def test_the_refusals_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        unread = await kit.text("edit", file_path="f", old_string="old", new_string="new")
        await kit.run("read", file_path="f")
        await asyncio.sleep(0.01)
        change(tmp_path / "f", "OLD")
        stale = await kit.text("edit", file_path="f", old_string="old", new_string="new")

    assert unread == 'Error: edit requires reading "/ws/f" first — read the file, then retry'
    assert stale == 'Error: "/ws/f" has changed since it was read — re-read the file, then retry'


@aio
async def test_a_window_authorises_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n2\n3\n")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f", offset=2, limit=1)

        assert "Updated file" in await kit.text("write", file_path="f", content="all new")


@aio
async def test_own_changes_need_no_second_read(tmp_path: Path) -> None:
    async with mounted(tmp_path) as kit:
        await kit.run("write", file_path="f", content="1")
        for number in range(1, 4):
            result = await kit.run("edit", file_path="f", old_string=str(number), new_string=str(number + 1))
            assert not result.is_error, text_of(result)
        assert not (await kit.run("write", file_path="f", content="done")).is_error

    assert (tmp_path / "f").read_text() == "done"


@aio
async def test_an_external_change_after_the_read_is_stale(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        await asyncio.sleep(0.01)
        change(tmp_path / "f", "OLD")

        assert await kit.code("edit", file_path="f", old_string="gone", new_string="x") == "FS_STALE_VERSION"
        assert await kit.code("write", file_path="f", content="x") == "FS_STALE_VERSION"

    assert (tmp_path / "f").read_text() == "OLD"


@aio
async def test_a_missing_file_that_was_looked_for_can_be_created_but_not_edited(tmp_path: Path) -> None:
    async with mounted(tmp_path) as kit:
        assert await kit.code("edit", file_path="f", old_string="a", new_string="b") == "FS_NOT_OBSERVED"
        assert await kit.code("read", file_path="f") == "FS_NOT_FOUND"
        assert await kit.code("edit", file_path="f", old_string="a", new_string="b") == "FS_NOT_FOUND"
        assert "Created file" in await kit.text("write", file_path="f", content="new")


@aio
async def test_a_file_deleted_after_the_read_is_stale_until_its_absence_is_seen(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        (tmp_path / "f").unlink()

        assert await kit.code("write", file_path="f", content="new") == "FS_STALE_VERSION"
        await kit.run("read", file_path="f")
        assert "Created file" in await kit.text("write", file_path="f", content="new")


@aio
async def test_aliases_share_one_observation(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "lnk").symlink_to("f")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        assert not (await kit.run("write", file_path="lnk", content="new")).is_error

        result = await kit.run("edit", file_path="f", old_string="new", new_string="newer")

        assert not result.is_error, text_of(result)
    assert (tmp_path / "f").read_text() == "newer"


@aio
async def test_sessions_do_not_share_observations(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        other = Owner(kit.ctx, str(tmp_path))
        await kit.run("read", file_path="f")

        result = await kit.run("edit", owner=other, file_path="f", old_string="old", new_string="x")

        assert isinstance(result, ToolFailure)
        assert result.code == "FS_NOT_OBSERVED"


@pytest.mark.parametrize("tool", ["write", "edit"])
@aio
async def test_without_the_row_changes_are_unconditional(tmp_path: Path, tool: str) -> None:
    (tmp_path / "f").write_text("old")
    arguments: dict[str, Any] = (
        {"content": "new"} if tool == "write" else {"old_string": "old", "new_string": "new"}
    )
    async with mounted(tmp_path, ((fs_local, {}), (tool_fs, {}))) as kit:
        result = await kit.run(tool, file_path="f", **arguments)

        assert not result.is_error, text_of(result)
    assert (tmp_path / "f").read_text() == "new"


@aio
async def test_a_failed_call_leaves_the_observation_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x x")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        assert await _ambiguous(kit) == await _ambiguous(kit) == "FS_AMBIGUOUS_EDIT"
        assert await kit.code("read", file_path="f", offset=9) == "FS_NOT_FOUND"
        assert not (await kit.run("edit", file_path="f", old_string="x x", new_string="y")).is_error


async def _ambiguous(kit: Kit) -> str | None:
    return await kit.code("edit", file_path="f", old_string="x", new_string="y")


def observations(session: Session) -> list[Any]:
    return [event.data for event in session.select("fs/observation")]


async def as_resumed(kit: Kit) -> Owner:
    """The session of the kit as another process finds it, in its log alone."""
    found = Session(SessionHeader(id="s", created_at=1, cwd=str(kit.workspace)))
    for event in kit.owner.session.events():
        found.load(event)
    owner = Owner(kit.ctx, str(kit.workspace))
    owner.session = found
    return owner


@aio
async def test_each_new_version_is_logged_once_and_others_may_pass_over_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1")
    async with mounted(tmp_path) as kit:
        for _ in range(3):
            await kit.run("read", file_path="f")
        await kit.run("edit", file_path="f", old_string="1", new_string="2")
        await kit.run("read", file_path="f")
        await kit.run("read", file_path="missing")
        session = kit.owner.session

    events = list(session.select("fs/observation"))
    assert len(events) == 2
    assert all(event.ignorable for event in events)
    assert {event.data["targetKey"] for event in events} == {str(tmp_path.resolve() / "f")}
    assert all(event.data.keys() == {"targetKey", "version"} for event in events)


@pytest.mark.parametrize("tool", ["write", "edit"])
@aio
async def test_a_resumed_session_knows_what_it_has_seen(tmp_path: Path, tool: str) -> None:
    (tmp_path / "f").write_text("old")
    arguments: dict[str, Any] = (
        {"content": "new"} if tool == "write" else {"old_string": "old", "new_string": "new"}
    )
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        later = await as_resumed(kit)

        result = await kit.run(tool, owner=later, file_path="f", **arguments)

        assert not result.is_error, text_of(result)
        assert len(observations(later.session)) == 2
    assert (tmp_path / "f").read_text() == "new"


@aio
async def test_what_has_changed_meanwhile_was_not_seen(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "g").write_text("old")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        await kit.run("read", file_path="g")
        later = await as_resumed(kit)
        await asyncio.sleep(0.01)
        change(tmp_path / "f", "old too")
        (tmp_path / "g").unlink()

        for name in ("f", "g"):
            result = await kit.run("edit", owner=later, file_path=name, old_string="old", new_string="x")
            assert isinstance(result, ToolFailure)
            assert result.code == "FS_NOT_OBSERVED"
        made = await kit.run("write", owner=later, file_path="g", content="new")
        assert not made.is_error, text_of(made)

    assert (tmp_path / "f").read_text() == "old too"


@aio
async def test_what_can_no_longer_be_looked_at_was_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(*_: object, **__: object) -> None:
        raise FsError("FS_PERMISSION_DENIED", "no")

    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        later = await as_resumed(kit)
        monkeypatch.setattr(LocalFileSystem, "stat", denied)

        result = await kit.run("edit", owner=later, file_path="f", old_string="old", new_string="x")

    assert isinstance(result, ToolFailure)
    assert result.code == "FS_NOT_OBSERVED"


@aio
async def test_the_row_mounted_again_knows_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path, ((fs_local, {}), (tool_fs, {}))) as kit:
        row = await kit.ctx.plugin(fs_observation_policy)
        await kit.run("read", file_path="f")
        await row.dispose()
        await kit.ctx.plugin(fs_observation_policy)

        result = await kit.run("edit", file_path="f", old_string="old", new_string="new")

        assert not result.is_error, text_of(result)


@aio
async def test_an_event_of_this_name_that_is_none_of_ours_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path) as kit:
        others: list[Any] = [None, [], {}, {"targetKey": 1, "version": "x"}, {"targetKey": "/f"}]
        for data in others:
            kit.owner.session.append("fs/observation", data, ignorable=True)

        assert await kit.code("edit", file_path="f", old_string="old", new_string="x") == "FS_NOT_OBSERVED"


@aio
async def test_a_name_that_no_log_can_hold_is_seen_for_this_life_only(tmp_path: Path) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    try:
        (tmp_path / name).write_text("old")
    except OSError:
        pytest.skip("this file system wants names in UTF-8")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path=name)
        result = await kit.run("edit", file_path=name, old_string="old", new_string="new")

        assert not result.is_error, text_of(result)
        assert observations(kit.owner.session) == []
