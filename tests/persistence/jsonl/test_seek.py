"""The end of a log is read from where it begins, and is the same as that of the whole."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.error import SessionCorruption
from dsh.persistence.jsonl import seek
from dsh.persistence.jsonl.frames import encode_frame, scan_frames
from dsh.persistence.jsonl.suffix import read_suffix
from dsh.session.chunk_run import ChunkRun
from tests.persistence.golden import HEADER, framed, line, text_row, turn_end, turn_start


def batches(count: int, width: int = 40) -> list[bytes]:
    """Turns of four events each: start, a run of two, end."""
    out = []
    for number in range(count):
        seq = number * 4
        out.append(
            turn_start(seq, number + 1)
            + text_row(seq + 1, ["x" * width, "y"])
            + turn_end(seq + 3, number + 1)
        )
    return out


def seqs(path: Path, seq: int) -> list[int]:
    out: list[int] = []
    for entry in read_suffix(path, seq).entries:
        out.extend(range(entry.seq0, entry.stop) if isinstance(entry, ChunkRun) else [entry["seq"]])
    return out


@pytest.mark.parametrize("is_plain", [True, False])
def test_every_suffix_is_exact(tmp_path: Path, is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seek, "NEAR", 64)
    path = tmp_path / "log"
    parts = batches(30)
    path.write_bytes(b"".join((HEADER, *parts)) if is_plain else framed(*parts))
    for seq in range(125):
        assert seqs(path, seq) == list(range(seq, 120))


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=40), st.integers(1, 500), st.integers(0, 200))
def test_lines_of_any_length_are_found(widths: list[int], near: int, seq: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(seek, "NEAR", near)
        path = Path(folder) / "log"
        events = [line("session/title", at, {"title": "x" * width}) for at, width in enumerate(widths)]
        path.write_bytes(HEADER + b"".join(events))
        assert seqs(path, seq) == list(range(seq, len(widths)))


def test_frames_in_front_are_not_decoded(tmp_path: Path) -> None:
    parts = batches(40)
    data = bytearray(framed(*parts))
    broken = scan_frames(bytes(data)).frames[3]
    data[broken.end - 1] ^= 1  # the checksum
    path = tmp_path / "log.zstd"
    path.write_bytes(data)
    assert seqs(path, 150) == list(range(150, 160))
    with pytest.raises(SessionCorruption):
        read_suffix(path, 5)


def test_damage_in_what_is_asked_for_is_told_with_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    parts = batches(2000)
    parts[1990] = b"rubbish\n"
    path.write_bytes(b"".join((HEADER, *parts)))
    with pytest.raises(SessionCorruption) as caught:
        read_suffix(path, 1980 * 4)
    assert caught.value.line == 1 + 1990 * 3 + 1


def test_records_that_straddle_frames_are_read_from_the_beginning(tmp_path: Path) -> None:
    text = b"".join(batches(20))
    path = tmp_path / "log.zstd"
    pieces = [text[at : at + 77] for at in range(0, len(text), 77)]
    path.write_bytes(encode_frame(HEADER) + b"".join(map(encode_frame, pieces)))
    assert seqs(path, 70) == list(range(70, 80))


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join((HEADER, *batches(3))) + b'{"type":"turn/st')
    assert seqs(path, 10) == [10, 11]
    path.write_bytes(framed(*batches(3)) + encode_frame(turn_start(12, 4))[:-6])
    assert seqs(path, 10) == [10, 11]


def test_a_run_is_cut_where_the_seq_falls_into_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(HEADER + turn_start(0) + text_row(1, ["a", "b", "c"], [5, 7]))
    (run,) = read_suffix(path, 2).entries
    assert isinstance(run, ChunkRun)
    assert (run.seq0, run.texts, run.dt) == (2, ["b", "c"], [7])
    assert json.loads(turn_start(0)) == read_suffix(path, 0).entries[0]
