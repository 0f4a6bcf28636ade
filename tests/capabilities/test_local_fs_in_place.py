"""A file that cannot be replaced, or should not be, is written in place."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs.mutate import NOTE_MOUNTED
from dsh.capabilities.local_fs.publish import write_in_place
from dsh.kernel import CancelToken
from tests.aio import aio
from tests.capabilities.test_local_fs_hostile import NEW, OLD, Change, changes, local, names


@pytest.mark.parametrize("is_cancelled", [True, False])
@aio
async def test_a_write_in_place_looks_again_before_it_changes_anything(
    tmp_path: Path, is_cancelled: bool
) -> None:
    fs, path, signal = local(tmp_path), tmp_path / "f", CancelToken()
    path.write_text("old")
    (tmp_path / "g").hardlink_to(path)

    def late(*args: Any, **more: Any) -> str:
        if is_cancelled:
            signal.cancel("stop")
        else:
            path.write_text("theirs")
        return write_in_place(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.write_in_place", late)
        with pytest.raises(FsError) as caught:
            await fs.write_text(await fs.resolve("f"), "ours", signal=signal)

    assert caught.value.code == ("FS_ABORTED" if is_cancelled else "FS_STALE_VERSION")
    assert path.read_text() == ("old" if is_cancelled else "theirs")


@pytest.fixture
def mounted_file(tmp_path: Path) -> Iterator[Path]:
    """`ws/f`, bound to `source`; as containers get single files."""
    source, path = tmp_path / "source", tmp_path / "ws" / "f"
    path.parent.mkdir()
    source.write_bytes(OLD)
    path.touch()
    done = subprocess.run(["mount", "--bind", str(source), str(path)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no program mount")
@changes
@aio
async def test_a_mounted_file_is_written_in_place_and_that_is_told(
    mounted_file: Path, change: Change
) -> None:
    fs = local(mounted_file.parent)

    outcome = await change(fs, await fs.resolve("f"), None)

    assert mounted_file.read_bytes() == NEW
    assert names(mounted_file.parent) == {"f"}
    assert outcome.note == NOTE_MOUNTED
    info = await fs.stat(await fs.resolve("f"))
    assert info is not None
    assert info.version == outcome.version


def test_a_folder_that_becomes_a_link_on_the_way_to_a_write_in_place_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "out"
    outside.mkdir()
    (outside / "f").write_bytes(OLD)
    (tmp_path / "d").symlink_to(outside)

    with pytest.raises(NotADirectoryError):
        write_in_place(str(tmp_path / "d" / "f"), NEW, OLD, confirm=lambda _: None)
    (tmp_path / "l").symlink_to(outside / "f")
    with pytest.raises(OSError, match="symbolic link"):
        write_in_place(str(tmp_path / "l"), NEW, OLD, confirm=lambda _: None)

    assert (outside / "f").read_bytes() == OLD
