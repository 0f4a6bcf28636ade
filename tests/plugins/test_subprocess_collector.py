"""What is kept of a stream: its tail, and a file with all of it."""

from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.subprocess import Collect
from dsh.plugins.subprocess.collector import Collector, SpillFolder


class FullDisk(SpillFolder):
    """A folder on a disk without room."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def open(self, stream: str) -> tuple[BinaryIO, Path]:
        self.path.touch()
        return Path("/dev/full").open("wb", buffering=0), self.path


def fed(collector: Collector, *pieces: bytes) -> Collector:
    for piece in pieces:
        collector.feed(piece)
    return collector


def test_a_full_disk_costs_the_file_and_nothing_else(tmp_path: Path) -> None:
    folder = FullDisk(tmp_path / "spill")
    collector = fed(Collector(Collect(10, 1000), folder, "stdout"), b"0123456789", b"abcdefghij", b"xyz")
    collector.close()

    captured = collector.read()

    assert (captured.text, captured.next_offset, captured.lossy) == ("defghijxyz", 23, True)
    assert captured.spill_path is None
    assert not folder.path.exists()


def test_a_folder_that_somebody_removed_is_made_again() -> None:
    folder = SpillFolder()
    try:
        first = fed(Collector(Collect(1, 100), folder, "stdout"), b"one")
        folder.remove()
        second = fed(Collector(Collect(1, 100), folder, "stderr"), b"two")
        first.close()
        second.close()

        gone, kept = first.read().spill_path, second.read().spill_path
        assert gone is not None
        assert kept is not None
        assert not Path(gone).exists()
        assert Path(kept).read_bytes() == b"two"
        assert Path(kept).name.endswith("-stderr.log")
    finally:
        folder.remove()


@pytest.mark.parametrize(("spill", "kept"), [(9, True), (8, False)])
def test_the_cap_of_the_file_is_exact(spill: int, kept: bool) -> None:
    folder = SpillFolder()
    try:
        collector = fed(Collector(Collect(4, spill), folder, "stdout"), b"0123", b"4567", b"8")
        collector.close()

        assert (collector.read().spill_path is not None) is kept
    finally:
        folder.remove()


def test_the_oldest_files_of_ended_streams_make_room_and_the_newest_stays() -> None:
    folder = SpillFolder(kept_bytes=10)
    try:
        sizes = [4, 5, 5, 20]
        ended = [fed(Collector(Collect(1, 100), folder, "stdout"), b"x" * size) for size in sizes]
        paths = [Path(collector.read().spill_path or "") for collector in ended]
        left = []
        for collector in ended:
            collector.close()
            collector.close()
            left.append([path.exists() for path in paths].count(True))

        assert left == [4, 4, 3, 1]
        assert paths[-1].stat().st_size == 20
    finally:
        folder.remove()


@given(st.text(max_size=40), st.integers(1, 12))
def test_incremental_reads_of_any_cut_put_together_the_text(text: str, size: int) -> None:
    """A character that is still coming in waits for the next read."""
    data = text.encode()
    collector, seen, offset = Collector(Collect(1000), SpillFolder(), "stdout"), "", 0
    for at in range(0, len(data), size):
        collector.feed(data[at : at + size])
        captured = collector.read_from(offset)
        seen, offset = seen + captured.text, captured.next_offset
    collector.close()

    assert seen + collector.read_from(offset).text == text


@given(st.lists(st.binary(max_size=30)), st.integers(1, 20))
def test_the_tail_is_the_end_of_the_stream_whatever_its_pieces(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces)
    collector = fed(Collector(Collect(size), SpillFolder(), "stdout"), *pieces)
    collector.close()

    captured = collector.read()

    assert whole.endswith(captured.raw)
    assert len(whole[-size:]) - len(captured.raw) <= 3
    assert captured.lossy is (len(whole) > size)
    assert captured.next_offset == len(whole)


def test_what_never_becomes_a_character_is_shown_as_undecodable_at_the_end() -> None:
    collector = fed(Collector(Collect(100), SpillFolder(), "stdout"), b"caf\xc3")

    assert collector.read().text == "caf"
    collector.close()
    assert collector.read().text == "caf\ufffd"
