"""Finding zstd frames by structure: complete, torn, damaged."""

import subprocess
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import FrameDefect, decode_frame, decode_torn, encode_frame, scan_frames

ONE, TWO, THREE = b'{"a":1}\n', b'{"b":"' + b"x" * 500 + b'"}\n', b'{"c":3}\n{"d":4}\n'
FILE = encode_frame(ONE) + encode_frame(TWO) + encode_frame(THREE)


def texts(data: bytes) -> list[bytes]:
    return [decode_frame(data, frame) for frame in scan_frames(data).frames]


def test_frames_are_found_and_decoded_one_by_one() -> None:
    scan = scan_frames(FILE)

    assert texts(FILE) == [ONE, TWO, THREE]
    assert scan.torn_start is None
    assert all(frame.has_checksum for frame in scan.frames)


def test_frames_without_content_size_without_checksum_and_empty_ones_are_read() -> None:
    bare = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False).compress(ONE)
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TWO)

    assert texts(bare + unsized + encode_frame(b"") + encode_frame(ONE)) == [ONE, TWO, b"", ONE]


def test_a_cut_at_every_byte_is_a_tear_at_the_start_of_its_frame() -> None:
    starts = [frame.start for frame in scan_frames(FILE).frames]

    for cut in range(1, len(FILE)):
        scan = scan_frames(FILE[:cut])
        whole = [frame for frame in scan_frames(FILE).frames if frame.end <= cut]
        assert scan.frames == whole
        assert scan.torn_start == (None if cut in starts else starts[len(whole)])


def test_garbage_behind_the_last_frame_is_damage_from_four_bytes_on() -> None:
    assert scan_frames(FILE + b"abc").torn_start == len(FILE)
    with pytest.raises(FrameDefect, match=f"byte {len(FILE)}.*magic"):
        scan_frames(FILE + b"abcd")


def test_a_tail_of_nul_bytes_is_a_tear() -> None:
    assert scan_frames(FILE + b"\0" * 700).torn_start == len(FILE)


def test_a_damaged_byte_inside_a_complete_frame_is_found() -> None:
    middle = scan_frames(FILE).frames[1]
    for at in range(middle.end - 12, middle.end):
        broken = bytearray(FILE)
        broken[at] ^= 0xFF
        with pytest.raises(FrameDefect):
            texts(bytes(broken))


@pytest.mark.parametrize("bits", [0x08, 0x10])
def test_reserved_bits_of_the_descriptor_are_damage(bits: int) -> None:
    broken = bytearray(FILE)
    broken[4] |= bits

    with pytest.raises(FrameDefect, match="reserved"):
        scan_frames(bytes(broken))


def test_a_tear_in_the_checksum_gives_everything_and_a_tear_in_the_only_block_nothing() -> None:
    frame = encode_frame(TWO)

    assert b"".join(decode_torn(frame[:-1], 0)) == TWO
    assert b"".join(decode_torn(frame[:-6], 0)) == b""


def test_a_tear_in_a_large_frame_gives_its_complete_blocks() -> None:
    text = b"".join(b'{"n":%d,"x":"%s"}\n' % (n, bytes([97 + n % 26]) * (n % 90)) for n in range(20_000))
    frame = encode_frame(text)

    part = b"".join(decode_torn(frame[: len(frame) * 3 // 4], 0))

    assert 0 < len(part) < len(text)
    assert text.startswith(part)


def test_a_good_frame_behind_a_seeming_tear_is_noticed() -> None:
    second = scan_frames(FILE).frames[1]
    broken = bytearray(FILE)
    at = second.start + 4 + 1 + frames._header_rest(FILE[second.start + 4])
    broken[at : at + 3] = (100_000 << 3).to_bytes(3, "little")  # a raw block beyond the end of the file

    scan = scan_frames(bytes(broken))

    assert scan.torn_start == second.start
    assert frames.later_frame(bytes(broken), second.start) == second.end


def test_nothing_is_noticed_behind_a_true_tear() -> None:
    third = scan_frames(FILE).frames[2]

    assert frames.later_frame(FILE[:-3], third.start) is None


def test_a_frame_that_decodes_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_TEXT", 1000)
    data = encode_frame(b"x" * 3_000_000)

    with pytest.raises(FrameDefect, match="more than 1000"):
        texts(data)
    assert len(b"".join(decode_torn(data[:-1], 0))) <= 3_000_000


def test_the_zstd_program_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "log.zstd"
    path.write_bytes(FILE)

    subprocess.run(["zstd", "-tq", path], check=True)
    assert subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout == ONE + TWO + THREE


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=300)
def test_any_bytes_give_frames_or_a_named_defect(noise: bytes, with_magic: bool) -> None:
    data = (frames.MAGIC if with_magic else b"") + noise
    try:
        scan = scan_frames(data)
        for frame in scan.frames:
            decode_frame(data, frame)
        if scan.torn_start is not None:
            b"".join(decode_torn(data, scan.torn_start))
            frames.later_frame(data, scan.torn_start)
    except FrameDefect as defect:
        assert 0 <= defect.offset <= len(data)
