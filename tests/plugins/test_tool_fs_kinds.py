"""Kinds of files and what each file tool makes of them, confined and not."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.capabilities.fs import FsError
from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy
from dsh.plugins import fs_observation_policy, fs_sandbox, tool_fs, tool_str_replace_editor
from dsh.session.log import Session
from dsh.tools.execution import ToolFailure
from tests.aio import aio
from tests.plugins.files import FixedPolicy, Kit, mounted

ROWS: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (fs_sandbox, {}),
    (fs_observation_policy, {}),
    (tool_fs, {}),
    (tool_str_replace_editor, {}),
)
MODES: tuple[SandboxMode, ...] = ("workspace-write", "danger-full-access")
modes = pytest.mark.parametrize("mode", MODES)
TOOLS = ("write", "edit", "str_replace_editor")
tools = pytest.mark.parametrize("tool", TOOLS)


def change(kit: Kit, tool: str, path: str) -> dict[str, Any]:
    """Arguments that make `old` to `new`."""
    match tool:
        case "write":
            return {"file_path": path, "content": "new\n"}
        case "edit":
            return {"file_path": path, "old_string": "old", "new_string": "new"}
        case _:
            full = str(kit.workspace / path)
            return {"command": "str_replace", "path": full, "old_str": "old", "new_str": "new"}


async def changed(kit: Kit, tool: str, path: str) -> str | None:
    """Read and change it; the code of the refusal, None for a success."""
    await kit.run("read", file_path=path)
    result = await kit.run(tool, **change(kit, tool, path))
    assert result.is_error is False or isinstance(result, ToolFailure)
    return result.code if isinstance(result, ToolFailure) else None


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


@modes
@tools
@aio
async def test_links_stay_and_modes_stay(tmp_path: Path, tool: str, mode: SandboxMode) -> None:
    for name, bits in {"run.sh": 0o755, "secret.cfg": 0o640, "set.id": 0o4711, "locked": 0o444}.items():
        (tmp_path / name).write_text("old\n")
        (tmp_path / name).chmod(bits)
    (tmp_path / "real.txt").write_text("old\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to("../real.txt")
    (tmp_path / "chain").symlink_to("d/link")
    before = names(tmp_path)
    async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
        for name in ("run.sh", "secret.cfg", "set.id", "locked", "chain"):
            bits = (tmp_path / name).stat().st_mode
            assert await changed(kit, tool, name) is None, name
            assert (tmp_path / name).read_text() == "new\n"
            assert (tmp_path / name).stat().st_mode == bits

    assert (tmp_path / "chain").readlink() == Path("d/link")
    assert (tmp_path / "d" / "link").readlink() == Path("../real.txt")
    assert names(tmp_path) == before


@modes
@tools
@aio
async def test_other_names_of_a_file_go_with_it_or_stay_and_it_is_told(
    tmp_path: Path, tool: str, mode: SandboxMode
) -> None:
    (tmp_path / "f").write_text("old\n")
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
        await kit.run("read", file_path="f")
        told = await kit.text(tool, **change(kit, tool, "f"))

    is_confined = mode == "workspace-write"
    assert (tmp_path / "f").read_text() == "new\n"
    assert (tmp_path / "g").read_text() == ("old\n" if is_confined else "new\n")
    assert ("the others keep the old content" if is_confined else "written in place (not atomically)") in told


@modes
@tools
@aio
async def test_a_dangling_link_is_never_replaced(tmp_path: Path, tool: str, mode: SandboxMode) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
        assert await changed(kit, tool, "dangling") in ("FS_NOT_REGULAR_FILE", "FS_NOT_FOUND")

    assert (tmp_path / "dangling").is_symlink()
    assert names(tmp_path) == {"dangling"}


LATIN = b"limit = old  # caf\xe9\n"
BAD: dict[str, bytes] = {
    "latin": LATIN,
    "utf-16": "limit = old\n".encode("utf-16"),
    "gb18030": "上限 = old\n".encode("gb18030"),
    "late byte": b"old\n" + b"x" * 9_000 + b"\xff\n",
    "late nul": b"old\n" + b"x" * 20_000 + b"\0\n",
}


@modes
@pytest.mark.parametrize("kind", BAD)
@aio
async def test_other_encodings_are_refused_untouched_but_may_be_overwritten_once_seen(
    tmp_path: Path, kind: str, mode: SandboxMode
) -> None:
    path = tmp_path / "f"
    path.write_bytes(BAD[kind])
    stamp = path.stat().st_mtime_ns
    async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
        assert await kit.code("read", file_path="f") == "FS_NOT_TEXT"
        for tool in ("edit", "str_replace_editor"):
            assert await changed(kit, tool, "f") in ("FS_NOT_TEXT", "FS_NOT_OBSERVED")
        assert path.read_bytes() == BAD[kind]
        assert path.stat().st_mtime_ns == stamp
        assert await kit.code("write", file_path="f", content="new\n") == "FS_NOT_OBSERVED"

    assert path.read_bytes() == BAD[kind]


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # the whole path may be too long for the name of a socket


def special(folder: Path) -> dict[str, Callable[[Path], object]]:
    return {
        "fifo": os.mkfifo,
        "socket": listen,
        "folder": lambda path: path.mkdir(),
        "zero": lambda path: path.symlink_to("/dev/zero"),
        "to-fifo": lambda path: path.symlink_to(folder / "fifo"),
        "to-folder": lambda path: path.symlink_to(folder / "folder"),
        "self": lambda path: path.symlink_to(path),
    }


@modes
@aio
async def test_what_is_no_regular_file_has_a_code_at_once(
    tmp_path: Path, mode: SandboxMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, make in special(tmp_path).items():
        make(tmp_path / name)
    before = names(tmp_path)
    async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
        for name in special(tmp_path):
            expected = {"FS_IO_ERROR"} if name == "self" else {"FS_NOT_REGULAR_FILE"}
            assert {await kit.code("read", file_path=name)} == expected, name
            assert await kit.code("write", file_path=name, content="x") in {
                *expected, "FS_SANDBOX_DENIED",
            }, name  # fmt: skip
            assert await kit.code("edit", file_path=name, old_string="a", new_string="b") in {
                *expected, "FS_NOT_OBSERVED",
            }, name  # fmt: skip
        for path in ("/proc/self/mem", "/proc/self/pagemap", "/proc/kmsg", "/sys/kernel/notes"):
            result = await kit.run("read", file_path=path)
            assert not isinstance(result, ToolFailure) or str(result.code).startswith("FS_")
        assert "1: " in await kit.text("read", file_path="/proc/self/status")

    assert names(tmp_path) == before


@modes
@pytest.mark.parametrize("mask", [0o027, 0o077, 0o002])
@aio
async def test_new_files_and_folders_have_the_umasks_mode(
    tmp_path: Path, mask: int, mode: SandboxMode
) -> None:
    old = os.umask(mask)
    try:
        async with mounted(tmp_path, ROWS, policy=FixedPolicy(mode, str(tmp_path))) as kit:
            assert not (await kit.run("write", file_path="d/f", content="x")).is_error
            path = str(tmp_path / "e" / "f")
            made = await kit.run("str_replace_editor", command="create", path=path, file_text="x")
            assert not made.is_error
    finally:
        os.umask(old)

    for folder in ("d", "e"):
        assert stat.S_IMODE((tmp_path / folder / "f").stat().st_mode) == 0o666 & ~mask
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o777 & ~mask


class Hiding(FixedPolicy):
    def __init__(self, mode: SandboxMode, root: Path, *hidden: Path) -> None:
        super().__init__(mode, str(root))
        self.hidden = tuple(os.path.realpath(path) for path in hidden)

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy:
        return SandboxPolicy(mode or self.default_mode, self.root, hidden_paths=self.hidden)


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@aio
async def test_what_the_policy_hides_is_neither_read_nor_written(tmp_path: Path, mode: SandboxMode) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id").write_text("secret")
    (tmp_path / "keys2").write_text("plain")
    (tmp_path / "link").symlink_to("keys/id")
    policy = Hiding(mode, tmp_path, tmp_path / "keys")
    async with mounted(tmp_path, ROWS, policy=policy) as kit:
        denied = []
        for path in ("keys/id", "link", "sub/../keys/id", "keys", "keys/none"):
            denied.append(await kit.text("read", file_path=path))
            view = {"command": "view", "path": str(tmp_path / path)}
            denied.append(await kit.text("str_replace_editor", **view))
            create = {"command": "create", "path": str(tmp_path / path), "file_text": "x"}
            denied.append(await kit.text("str_replace_editor", **create))
            assert await kit.code("write", file_path=path, content="x") == "FS_SANDBOX_DENIED"
        with pytest.raises(FsError) as caught:  # whoever asks without a policy of a session's
            await kit.fs.read_text(await kit.fs.resolve(str(tmp_path / "link")))
        assert caught.value.code == "FS_SANDBOX_DENIED"
        assert "1: plain" in await kit.text("read", file_path="keys2")
        listed = await kit.text("str_replace_editor", command="view", path=str(tmp_path))

    marker = f"[sandbox: file access denied under {mode} mode]"
    assert all(text.endswith(f"hidden by the sandbox policy\n{marker}") for text in denied)
    assert not any("secret" in text for text in denied)
    assert "/ws/keys/id" not in listed
    assert (tmp_path / "keys" / "id").read_text() == "secret"


@aio
async def test_full_access_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("plain")
    async with mounted(tmp_path, ROWS, policy=Hiding("danger-full-access", tmp_path, tmp_path)) as kit:
        assert "1: plain" in await kit.text("read", file_path="f")
