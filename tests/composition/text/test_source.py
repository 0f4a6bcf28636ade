"""Reading what people write: whole, bounded, and without waiting for nobody."""

import os
import threading
from pathlib import Path

import pytest

from dsh.composition.text.source import MAX_BYTES, read_bytes


@pytest.mark.parametrize("size", [0, 1, 70_000, MAX_BYTES])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    assert read_bytes(path) == path.read_bytes()


def test_of_a_longer_one_comes_just_enough_to_see_that(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * (MAX_BYTES + 5))
    assert len(read_bytes(path)) == MAX_BYTES + 1
    assert len(read_bytes("/dev/zero")) == MAX_BYTES + 1


def test_a_pipe_is_read_to_its_end_and_without_a_writer_it_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p"
    os.mkfifo(path)
    with pytest.raises(OSError, match="a pipe that nobody has written to"):
        read_bytes(path)

    reading, writing = os.pipe()

    def write_late() -> None:
        os.write(writing, b"- late")
        os.close(writing)

    late = threading.Timer(0.05, write_late)
    late.start()
    assert read_bytes(f"/dev/fd/{reading}") == b"- late"
    late.join()
    os.close(reading)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    read_bytes(tmp_path / "f")
    for wrong in (tmp_path, tmp_path / "absent"):
        with pytest.raises(OSError):
            read_bytes(wrong)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
