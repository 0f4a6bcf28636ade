"""What commands print, made readable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.subprocess import Captured
from dsh.capabilities.terminal_text import readable, shown, unfinished


def captured(raw: bytes, *, lossy: bool = False) -> Captured:
    return Captured(raw.decode("utf-8", "replace"), raw, len(raw), lossy, None)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;https://host/x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2;0;0;0\nsixel\x1b\\after", "after"),
        ("\x1b(Bset\x1b=mode\x1b7", "setmode"),
        ("\x9b31mred", "red"),
        ("\x1b[31mred\x1b[0m\r50%\r100%\n", "100%\n"),
        ("10%\r20%\r30%", "30%"),
        ("done\r", "done"),
        ("one\r\ntwo\r\r\n", "one\ntwo\n"),
        ("\r\n\r\n", "\n\n"),
        ("N\bNA\bA", "NA"),
        ("|\b/\b-\b", ""),
        ("\b\bx", "x"),
        ("a\0b", "a␀b"),
        ("bell\x07", "bell␇"),
        ("page\x0cnext\x0b", "page␌next␋"),
        ("a\x7fb", "a␡b"),
        ("no sequence: \x1b", "no sequence: ␛"),
        ("next line \x85", "next line \ufffd"),
        ("中文 🏷 é", "中文 🏷 é"),
    ],
)
def test_terminal_control_becomes_text(printed: str, expected: str) -> None:
    """SH-05."""
    assert readable(printed) == expected


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", readable(text))


@given(st.text())
def test_what_is_readable_stays_as_it_is(text: str) -> None:
    once = readable(text)
    assert readable(once) == once


_PIECES = st.sampled_from(
    [b"text", b"\n", b"\x1b[1;31m", b"\x1b]0;t\x07", b"\x1b]8;;u\x1b\\", b"\x1b(B", "é🏷".encode()]
)


@given(st.lists(_PIECES, max_size=8), st.data())
def test_a_stream_read_in_two_pieces_says_the_same(pieces: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(pieces)
    cut = data.draw(
        st.sampled_from([n for n in range(len(raw) + 1) if raw[n : n + 1] < b"\x80" or not raw[n:]])
    )
    cut -= unfinished(raw[:cut])

    assert readable(raw[:cut].decode()) + readable(raw[cut:].decode()) == readable(raw.decode())


@pytest.mark.parametrize(
    ("raw", "held"),
    [(b"a\x1b", 1), (b"a\x1b[3", 3), (b"a\x1b]0;ti", 6), (b"50%\r", 1), (b"a\x1b[31m", 0), (b"abc", 0)],
)
def test_the_start_of_a_sequence_waits_for_its_rest(raw: bytes, held: int) -> None:
    assert unfinished(raw) == held


def test_a_sequence_that_never_ends_is_not_waited_for() -> None:
    assert unfinished(b"\x1b]0;" + b"x" * 10_000) == 0


def test_output_that_is_no_text_is_named_with_a_piece_of_it() -> None:
    said = shown(captured(b"\x7fELF\0\0\1\2" + bytes(range(128, 256)) * 20))

    assert said.startswith("[binary output, 2568 bytes; it starts with]\n␡ELF␀␀␁␂\ufffd")
    assert len(said) < 200
    assert "the last 2568 bytes" in shown(captured(b"\0" * 2568, lossy=True))


@pytest.mark.parametrize("raw", [b"caf\xe9\n", b"a\0b", b"\0" * 10, "é".encode() * 500, b"\x1b[31m" * 500])
def test_text_with_a_stray_byte_is_still_text(raw: bytes) -> None:
    assert "binary" not in shown(captured(raw))
