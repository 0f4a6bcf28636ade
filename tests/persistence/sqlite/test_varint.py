"""`sourceEventSeqs` as a blob: the examples of the specification, and only the shortest form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.sqlite.varint import decode_seqs, encode_seqs
from dsh.session.error import InvalidEvent
from dsh.session.value import MAX_SAFE_INT

EXAMPLES = [
    ([8, 9, 10, 300], "08 02 02 c4 04"),
    ([7, 5, 2], "07 03 05"),
    ([200], "c8 01"),
    ([], ""),
    ([0], "00"),
    ([5, 5], "05 00"),
]


@pytest.mark.parametrize(("seqs", "blob"), EXAMPLES)
def test_the_examples_of_the_specification(seqs: list[int], blob: str) -> None:
    assert encode_seqs(seqs) == bytes.fromhex(blob)
    assert decode_seqs(bytes.fromhex(blob)) == seqs


@given(st.lists(st.integers(0, MAX_SAFE_INT)))
def test_any_seqs_come_back(seqs: list[int]) -> None:
    assert decode_seqs(encode_seqs(seqs)) == seqs


@given(st.binary(max_size=20))
def test_any_bytes_are_one_list_in_its_only_form_or_refused(blob: bytes) -> None:
    try:
        seqs = decode_seqs(blob)
    except InvalidEvent:
        return
    assert encode_seqs(seqs) == blob


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        ("80", "cut off"),
        ("08 82", "cut off"),
        ("80 00", "longer than it need be"),
        ("c8 81 00", "longer than it need be"),
        ("00 01", "out of range"),
        ("ff ff ff ff ff ff ff 1f", "out of range"),
        ("ff" * 9 + "01", "too long"),
        ("ff ff ff ff ff ff ff 0f 02", "out of range"),
    ],
)
def test_a_malformed_blob_is_refused(blob: str, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=reason):
        decode_seqs(bytes.fromhex(blob))


@pytest.mark.parametrize("seq", [-1, MAX_SAFE_INT + 1, True, 1.0])
def test_what_is_no_seq_is_not_stored(seq: int) -> None:
    with pytest.raises(InvalidEvent, match="a seq is"):
        encode_seqs([seq])
