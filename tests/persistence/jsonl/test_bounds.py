"""However large a file is, or what it decodes to: an answer comes soon, and little is held for it."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsh.persistence.error import LogRefusal, SessionCorruption
from dsh.persistence.jsonl import raw, scan
from dsh.persistence.jsonl.frames import MAGIC, encode_frame, later_frame
from dsh.persistence.jsonl.raw import HEADER_LIMIT, raw_pieces, read_header, read_text
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.jsonl.suffix import read_suffix
from tests.persistence.golden import BODY, HEADER, TEXT, framed, line, turn_end, turn_start, view_of

MIB = 1 << 20


@contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    """Less memory than this is taken on the way."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * MIB


def suffix(path: Path) -> object:
    return read_suffix(path, 5)


def raw_size(path: Path) -> int:
    return sum(map(len, raw_pieces(path)))


@pytest.mark.parametrize("is_zstd", [False, True])
def test_the_text_of_a_log_is_handed_out_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_zstd: bool
) -> None:
    path = tmp_path / "log"
    form = b'{"type":"feedback/record","seq":%d,"time":1,"data":{"text":"' + b"x" * MIB + b'"}}\n'
    records = [form % seq for seq in range(64)]
    path.write_bytes(framed(*records) if is_zstd else HEADER + b"".join(records))
    size = len(HEADER) + sum(map(len, records))
    with at_most(12):
        assert raw_size(path) == size
    monkeypatch.setattr(raw, "MAX_TEXT", 8 * MIB)
    with at_most(24), pytest.raises(SessionCorruption, match="longer than 8388608 bytes"):
        read_text(path)


@pytest.mark.parametrize("read", [read_header, read_log, suffix, raw_size])
@pytest.mark.parametrize("name", ["session.jsonl", "session.jsonl.zstd"])
def test_a_sparse_file_is_refused_for_its_beginning(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    path.touch()
    with path.open("r+b") as file:
        file.truncate(256 * MIB)
    with at_most(5 * HEADER_LIMIT // MIB), pytest.raises(LogRefusal) as caught:
        read(path)
    assert caught.value.code == "NOT_A_SESSION_LOG"


@pytest.mark.parametrize("read", [read_header, read_log, suffix])
@pytest.mark.parametrize("is_zstd", [False, True])
def test_a_header_has_a_longest_length(tmp_path: Path, is_zstd: bool, read: Callable[[Path], object]) -> None:
    for length, fits in ((HEADER_LIMIT // 2, True), (4 * HEADER_LIMIT, False)):
        header = HEADER[:-2] + b',"more":"' + b"x" * length + b'"}\n'
        path = tmp_path / "log"
        path.write_bytes((encode_frame(header) if is_zstd else header) + b"")
        if fits:
            read(path)
            continue
        with at_most(6 * HEADER_LIMIT // MIB), pytest.raises(SessionCorruption, match=str(HEADER_LIMIT)):
            read(path)


@pytest.mark.parametrize("is_zstd", [False, True])
def test_a_line_has_a_longest_length(tmp_path: Path, is_zstd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LINE_LIMIT", 3 * MIB)
    path = tmp_path / "log"
    for length, fits in ((MIB, True), (9 * MIB, False)):
        long = line("feedback/record", 1, {"text": "x" * length})
        for body in (turn_start(0) + long, turn_start(0) + long + turn_end(2)):
            path.write_bytes(framed(body) if is_zstd else HEADER + body)
            if fits:
                assert read_log(path).next_seq >= 2
                continue
            with pytest.raises(SessionCorruption, match="a record is longer than") as caught:
                read_log(path)
            assert caught.value.line == 3


def test_a_long_rest_without_an_end_is_a_tear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LINE_LIMIT", 3 * MIB)
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    with path.open("r+b") as file:
        file.truncate(64 * MIB)
    with at_most(16):
        view = view_of(path)
    assert view.stored_length == 17 and view.torn is not None
    assert read_text(path).content == TEXT


def test_reading_ends_at_the_first_defect_of_a_complete_frame(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(framed(b"".join(BODY), b"x\n" + b" " * (256 * MIB)))
    with at_most(32), pytest.raises(SessionCorruption, match="unparsable") as caught:
        read_log(path)
    assert caught.value.line == 1 + len(BODY) + 1


def test_many_beginnings_of_frames_behind_a_tear_are_not_all_followed() -> None:
    torn = encode_frame(b'{"a":1}\n')[:-4]
    empty_blocks = MAGIC + b"\x04\x58" + b"\0\0\0" * 20_000
    assert later_frame(torn + empty_blocks * 3, 0) is None
    assert later_frame(torn + empty_blocks * 300, 0) is not None


@pytest.mark.parametrize(("begin", "more"), [(b"", b"{}\n"), (b'{"a":"', b"x"), (b"", b"\n"), (b"", b" ")])
def test_frames_behind_a_tear_are_decoded_no_further_than_it_takes(begin: bytes, more: bytes) -> None:
    torn = encode_frame(b'{"a":1}\n')[:-4]
    data = torn + encode_frame(begin + more * (64 * MIB // len(more))) * 50
    with at_most(100):
        later_frame(data, 0)


def test_frames_behind_a_tear_that_would_take_too_long_to_tell_count_as_good() -> None:
    torn = encode_frame(b'{"a":1}\n')[:-4]
    assert later_frame(torn + encode_frame(b'{"a":"' + b"x" * 20 * MIB) * 3, 0) is not None
    assert later_frame(torn + encode_frame(b'{"a":"' + b"x" * MIB) * 3, 0) is None
    assert later_frame(torn + encode_frame(b""), 0) is None


@pytest.mark.parametrize("line", [b"{}\n", b"\n", b'""\n', b"\0\0\0\n"])
def test_a_torn_frame_of_very_many_lines_is_read_in_pieces(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(framed(b"".join(BODY), line * (96 * MIB // len(line)))[:-5])
    with at_most(32):
        view = view_of(path)
    assert view.stored_length == 17 and view.torn is not None


def test_of_many_lines_behind_a_defect_that_may_end_a_turn_not_all_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT + b"x\n" + b"\\\n" * 5_000)
    assert view_of(path).torn is not None
    monkeypatch.setattr(scan, "LOOKED_AT", 3_000)
    with pytest.raises(SessionCorruption, match="more stands behind it") as caught:
        read_log(path)
    assert caught.value.line == TEXT.count(b"\n") + 1


@pytest.mark.parametrize("end", [turn_end(99), rb'{"type":"turn\/end"}', rb'{"type":"\u0074urn/end"}'])
@pytest.mark.parametrize("between", [b"", b"\n" * (3 * MIB), b"y" * (3 * MIB)])
def test_the_end_of_a_turn_behind_a_defect_is_found_wherever_it_stands(
    tmp_path: Path, between: bytes, end: bytes
) -> None:
    path = tmp_path / "log"
    for shift in (0, 3, 17):
        path.write_bytes(TEXT + b"x\n" + between + b" " * shift + b"\n" + end + b"\n")
        with pytest.raises(SessionCorruption, match="a finished turn stands behind it"):
            read_log(path)


@pytest.mark.parametrize("read", [read_log, suffix, raw_size])
def test_of_a_hole_in_a_compressed_log_little_is_held(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "log"
    whole = framed(b"".join(BODY))
    path.write_bytes(whole)
    with path.open("r+b") as file:
        file.truncate(256 * MIB)
    with at_most(24):
        read(path)
    torn = read_log(path).torn
    assert torn is not None and (torn.keep, torn.dropped) == (len(whole), 256 * MIB - len(whole))

    with path.open("ab") as file:
        file.write(b"x")
    with at_most(24), pytest.raises(SessionCorruption, match="no frame begins here"):
        read(path)
