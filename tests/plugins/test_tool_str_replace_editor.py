"""The tool `str_replace_editor`: four commands over the guarded file system."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.fs import FS_WRITE_INTENT, FsIntent, FsWriteIntent
from dsh.kernel import ValidationError
from dsh.plugins import fs_local, fs_observation_policy, fs_sandbox, tool_fs, tool_str_replace_editor
from dsh.plugins.tool_str_replace_editor.view import CLIPPED, NumberedLines
from dsh.tools.definition import Resources
from dsh.tools.execution import ToolCall
from dsh.tools.presentation import DiffCall, GenericCall
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.plugins.files import FixedPolicy, Kit, mounted

Rows = tuple[tuple[ModuleType, dict[str, Any]], ...]
ROWS: Rows = (
    (fs_local, {}),
    (fs_observation_policy, {}),
    (tool_fs, {}),
    (tool_str_replace_editor, {}),
)
FENCED: Rows = ((fs_sandbox, {}), (fs_observation_policy, {}), (tool_str_replace_editor, {}))


async def do(kit: Kit, command: str, path: str, **more: Any) -> str:
    return await kit.text("str_replace_editor", command=command, path=str(kit.workspace / path), **more)


async def code(kit: Kit, command: str, path: str, **more: Any) -> str | None:
    return await kit.code("str_replace_editor", command=command, path=str(kit.workspace / path), **more)


@aio
async def test_a_view_numbers_the_lines_and_counts_an_empty_last_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    (tmp_path / "empty").write_bytes(b"")
    async with mounted(tmp_path, ROWS) as kit:
        assert await do(kit, "view", "f") == "/ws/f (3 lines):\n     1  one\r\n     2  two\n     3  \n"
        assert await do(kit, "view", "empty") == "/ws/empty (1 line):\n     1  \n"


@aio
async def test_a_range_is_shown_alone_and_held_against_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nd")
    async with mounted(tmp_path, ROWS) as kit:
        assert await do(kit, "view", "f", view_range=[2, 3]) == (
            "/ws/f (4 lines, lines 2 to 3):\n     2  b\n     3  c\n"
        )
        assert await do(kit, "view", "f", view_range=[4, -1]) == "/ws/f (4 lines, lines 4 to 4):\n     4  d\n"
        for wrong in ([0, 1], [5, 5], [2, 1], [1, 5], [-1, -1], [1], [1, 2, 3], [1, -2]):
            assert await code(kit, "view", "f", view_range=wrong) is None, wrong
        assert await code(kit, "view", "f", view_range=["1", 2]) == "INVALID_ARGS"


@aio
async def test_a_long_view_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\U0001f600" * 5000 + "\n" + "x\n" * 10)
    rows = (*ROWS[:-1], (tool_str_replace_editor, {"maxOutputChars": 500}))
    async with mounted(tmp_path, rows) as kit:
        shown = await do(kit, "view", "f")

        assert shown.endswith("\U0001f600" + CLIPPED)
        assert shown.startswith("/ws/f (12 lines):\n     1  \U0001f600")
        assert CLIPPED.startswith("<response clipped>")
        assert CLIPPED not in await do(kit, "view", "f", view_range=[2, 4])


@given(
    st.lists(st.text(st.sampled_from("ab\n\r\ufeff\U0001f600"), max_size=12), max_size=6),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(0, 8)),
)
def test_how_the_text_is_cut_into_pieces_makes_no_difference(
    pieces: list[str], first: int, more: int | None
) -> None:
    whole = "".join(pieces)
    last = None if more is None else first + more
    lines = NumberedLines(first, last, 10_000)
    for piece in pieces:
        lines.feed(piece)

    split = whole.removeprefix("\ufeff").split("\n")
    rows = [f"{number:>6}  {line}\n" for number, line in enumerate(split, 1)]
    assert lines.total == len(split)
    if first <= len(split):
        assert lines.text() == "".join(rows[first - 1 : last])


@aio
async def test_a_directory_is_shown_two_levels_deep(tmp_path: Path) -> None:
    for folder in ("a/b/c", ".hidden", "node_modules/x", "a/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a" / "f.py").write_text("")
    (tmp_path / "a-b").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out").symlink_to("..")
    async with mounted(tmp_path, ROWS) as kit:
        shown = await do(kit, "view", ".")

        header, *rows = shown.splitlines()
        assert header.endswith("/ws, without hidden ones:")
        assert rows == [
            "d\t/ws", "d\t/ws/a", "f\t/ws/a-b", "d\t/ws/a/b", "f\t/ws/a/f.py", "d\t/ws/out", "?\t/ws/pipe",
        ]  # fmt: skip
        assert "without it" in await do(kit, "view", ".", view_range=[1, 2])


@aio
async def test_create_makes_a_new_file_and_touches_nothing_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "dangling").symlink_to("nowhere")
    async with mounted(tmp_path, ROWS) as kit:
        assert await do(kit, "create", "d/new", file_text="a\r\nb") == "File created: /ws/d/new"
        for path in ("old", "dangling", "d"):
            assert await code(kit, "create", path, file_text="x") is None, path
        assert await code(kit, "create", "other") is None

    assert (tmp_path / "d" / "new").read_bytes() == b"a\r\nb"
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "dangling").is_symlink()


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a = 1\r\nb = 2\r\nc\r\n", "a = 1\nb = 2", "a = 10\nnew\nb", b"a = 10\r\nnew\r\nb\r\nc\r\n"),
        (b"a\nb\r\nTARGET", "TARGET", r"$& \1 \g<0> {0}", b"a\nb\r\n$& \\1 \\g<0> {0}"),
        (b"\xef\xbb\xbfa\nb\n", "a\n", None, b"\xef\xbb\xbfb\n"),
        ("é😀x".encode(), "😀", "", "éx".encode()),
    ],
)
@aio
async def test_str_replace_changes_the_match_alone(
    tmp_path: Path, before: bytes, old: str, new: str | None, after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)
    async with mounted(tmp_path, ROWS) as kit:
        await do(kit, "view", "f")
        more = {} if new is None else {"new_str": new}

        assert await do(kit, "str_replace", "f", old_str=old, **more) == "File changed: /ws/f"

    assert (tmp_path / "f").read_bytes() == after


@aio
async def test_str_replace_wants_one_match(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\ny\nx y\nx\n")
    async with mounted(tmp_path, ROWS) as kit:
        await do(kit, "view", "f")
        assert await code(kit, "str_replace", "f", old_str="z") == "FS_EDIT_NOT_FOUND"
        several = await do(kit, "str_replace", "f", old_str="x", new_str="z")
        assert await code(kit, "str_replace", "f", old_str="x") == "FS_AMBIGUOUS_EDIT"
        assert await code(kit, "str_replace", "f", old_str="") is None
        assert await code(kit, "str_replace", "f") is None

    assert several == (
        'Error: old_str matched 3 times in "/ws/f" (lines 1, 3, 4); provide a more specific old_str'
    )
    assert (tmp_path / "f").read_text() == "x\ny\nx y\nx\n"


@pytest.mark.parametrize(
    ("before", "line", "new", "after"),
    [
        (b"a\nb\n", 0, "new", b"new\na\nb\n"),
        (b"a\nb\n", 1, "new", b"a\nnew\nb\n"),
        (b"a\nb\n", 2, "new", b"a\nb\nnew\n"),
        (b"a\nb\n", 3, "new", b"a\nb\n\nnew"),
        (b"a\nb\n", 1, "new\n", b"a\nnew\n\nb\n"),
        (b"a\nb\n", 1, "", b"a\n\nb\n"),
        (b"a\nb", 2, "new", b"a\nb\nnew"),
        (b"", 0, "new", b"new\n"),
        (b"a\r\nb\r\n", 1, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"a\nb\r\nc\r\n", 1, "x", b"a\nx\nb\r\nc\r\n"),
        (b"\xef\xbb\xbfa\r\n", 0, "x", b"\xef\xbb\xbfx\r\na\r\n"),
    ],
)
@aio
async def test_insert_adds_lines_of_its_own(
    tmp_path: Path, before: bytes, line: int, new: str, after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)
    async with mounted(tmp_path, ROWS) as kit:
        await do(kit, "view", "f")

        assert await do(kit, "insert", "f", insert_line=line, new_str=new) == "File changed: /ws/f"
    assert (tmp_path / "f").read_bytes() == after


@aio
async def test_insert_checks_its_parameters_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    async with mounted(tmp_path, ROWS) as kit:
        assert await code(kit, "insert", "f", new_str="x") is None
        assert await code(kit, "insert", "f", insert_line=0) is None
        assert await code(kit, "insert", "f", insert_line=0, new_str="x") == "FS_NOT_OBSERVED"
        await do(kit, "view", "f")
        for line in (-1, 3):
            assert await code(kit, "insert", "f", insert_line=line, new_str="x") is None

    assert (tmp_path / "f").read_text() == "a\n"


@aio
async def test_the_guards_are_those_of_the_other_file_tools(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path, ROWS) as kit:
        unread = await do(kit, "str_replace", "f", old_str="old")
        assert await code(kit, "str_replace", "missing", old_str="x") == "FS_NOT_OBSERVED"
        assert await code(kit, "str_replace", ".", old_str="x") == "FS_NOT_OBSERVED"
        assert await code(kit, "view", "missing") == "FS_NOT_FOUND"
        assert await code(kit, "str_replace", "missing", old_str="x") == "FS_NOT_FOUND"
        await kit.run("read", file_path="f")
        assert await do(kit, "str_replace", "f", old_str="old", new_str="new") == "File changed: /ws/f"
        assert not (await kit.run("edit", file_path="f", old_string="new", new_string="newer")).is_error
        await asyncio.sleep(0.01)
        (tmp_path / "f").write_text("other")
        assert await code(kit, "insert", "f", insert_line=0, new_str="x") == "FS_STALE_VERSION"
        assert await code(kit, "insert", "f", insert_line=9, new_str="x") == "FS_STALE_VERSION"
        assert await code(kit, "str_replace", "f", old_str="not there") == "FS_STALE_VERSION"

    assert unread == 'Error: edit requires reading "/ws/f" first'
    assert (tmp_path / "f").read_text() == "other"


@aio
async def test_without_the_observation_policy_the_version_that_was_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path, ((fs_local, {}), (tool_str_replace_editor, {}))) as kit:
        assert await do(kit, "str_replace", "f", old_str="old", new_str="new") == "File changed: /ws/f"
        assert await code(kit, "str_replace", ".", old_str="x") == "FS_NOT_REGULAR_FILE"
        assert await code(kit, "insert", "gone", insert_line=0, new_str="x") == "FS_NOT_FOUND"


@aio
async def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9 au lait")
    os.mkfifo(tmp_path / "pipe")
    async with mounted(tmp_path, ROWS) as kit:
        assert await code(kit, "view", "latin") == "FS_NOT_TEXT"
        assert await code(kit, "view", "pipe") == "FS_NOT_REGULAR_FILE"
        assert await kit.code("str_replace_editor", command="view", path="/dev/zero") == "FS_NOT_REGULAR_FILE"


@aio
async def test_paths_are_absolute(tmp_path: Path) -> None:
    async with mounted(tmp_path, ROWS) as kit:
        relative = await kit.text("str_replace_editor", command="view", path="./src/f")
        assert await kit.code("str_replace_editor", command="view", path=" ") is None
        assert await kit.code("str_replace_editor", command="undo", path="/f") == "INVALID_ARGS"

    assert relative == 'Error: path must be absolute, got "./src/f"; perhaps "/src/f" is meant'


@aio
async def test_the_sandbox_denies_and_offers_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with mounted(tmp_path, FENCED, policy=FixedPolicy("read-only", str(tmp_path))) as kit:
        await do(kit, "view", "f")
        denied = await do(kit, "str_replace", "f", old_str="old")
        assert await code(kit, "create", "new", file_text="x") == "FS_SANDBOX_DENIED"
        registry = kit.ctx.get(TOOLS)
        assert registry is not None
        tool = registry.get("str_replace_editor")

    assert denied.endswith("\n[sandbox: file access denied under read-only mode]")
    assert tool is not None
    assert "sandbox_permissions" not in tool.parameters["properties"]
    assert (tmp_path / "f").read_text() == "old"
    assert not (tmp_path / "new").exists()


@aio
async def test_calls_name_what_they_touch_and_show_what_they_change(tmp_path: Path) -> None:
    async with mounted(tmp_path, ROWS) as kit:
        registry = kit.ctx.get(TOOLS)
        assert registry is not None
        tool = registry.get("str_replace_editor")
        assert tool is not None
        assert tool.resources is not None
        assert tool.present_call is not None
        path = str(tmp_path / "f")
        view = {"command": "view", "path": path, "view_range": [3, -1]}
        change = {"command": "str_replace", "path": path, "old_str": "a", "new_str": "b"}
        key = frozenset({f"fs:{path}"})

        def touched(arguments: dict[str, Any]) -> Resources | None:
            assert tool is not None
            assert tool.resources is not None
            call = ToolCall(call_id="c", name=tool.name, arguments=arguments, agent=kit.owner)
            return tool.resources(arguments, call)

        assert touched(view) == Resources(reads=key)
        assert touched(change) == Resources(writes=key)
        seen, changed = tool.present_call(view), tool.present_call(change)
        made = tool.present_call({"command": "create", "path": path, "file_text": "x"})

    assert isinstance(seen, GenericCall)
    assert seen.locations[0].line == 3
    assert isinstance(changed, DiffCall)
    assert (changed.diffs[0].old_text, changed.diffs[0].new_text) == ("a", "b")
    assert isinstance(made, DiffCall)
    assert made.diffs[0].old_text is None


@pytest.mark.parametrize("config", [{"maxOutputChars": 0}, {"description": ""}, {"colour": 1}])
@aio
async def test_the_options_are_checked(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        async with mounted(tmp_path, (*ROWS[:-1], (tool_str_replace_editor, config))):
            pass


@aio
async def test_the_description_can_be_another(tmp_path: Path) -> None:
    rows = (*ROWS[:-1], (tool_str_replace_editor, {"description": "Edits."}))
    async with mounted(tmp_path, rows) as kit:
        registry = kit.ctx.get(TOOLS)
        assert registry is not None
        tool = registry.get("str_replace_editor")
        assert tool is not None
        assert tool.description == "Edits."


@aio
async def test_a_file_that_appears_while_it_is_created_stays_whatever_a_listener_says(tmp_path: Path) -> None:
    async with mounted(tmp_path, ((fs_local, {}), (tool_str_replace_editor, {}))) as kit:

        async def unconditional(
            intent: FsIntent, following: Callable[[], Awaitable[FsWriteIntent | None]]
        ) -> FsWriteIntent | None:
            (tmp_path / "f").write_text("theirs")
            return None

        kit.ctx.on(FS_WRITE_INTENT, unconditional)
        assert await code(kit, "create", "f", file_text="ours") == "FS_NOT_OBSERVED"

    assert (tmp_path / "f").read_text() == "theirs"
