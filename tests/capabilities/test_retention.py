"""What is kept of a text or a list: at most what was asked for, cut between characters, counted exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.retention import both_ends, head, head_tail, size_of, tail

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé漢🙂"), max_size=60)
SIZE = st.integers(0, 80)


@given(TEXT, SIZE, SIZE)
def test_both_ends_are_pieces_of_the_text_and_the_gap_is_exact(text: str, first: int, last: int) -> None:
    kept = both_ends(text, first, last)

    if not kept.omitted_bytes:
        assert (kept.head, kept.tail) == (text, "")
        assert size_of(text) <= first + last
        return
    assert text.startswith(kept.head)
    assert text.endswith(kept.tail)
    assert size_of(kept.head) <= first
    assert size_of(kept.tail) <= last
    assert size_of(kept.head) + kept.omitted_bytes + size_of(kept.tail) == size_of(text)


@given(TEXT, SIZE, SIZE)
def test_no_more_than_one_character_is_lost_at_a_cut(text: str, first: int, last: int) -> None:
    kept = both_ends(text, first, last)

    if kept.omitted_bytes:
        assert first - size_of(kept.head) < 4
        assert last - size_of(kept.tail) < 4


@given(TEXT, SIZE)
def test_one_end_is_all_of_the_room(text: str, room: int) -> None:
    beginning, end = head(text, room), tail(text, room)

    assert text.startswith(beginning.head)
    assert text.endswith(end.tail)
    assert max(size_of(beginning.head + beginning.tail), size_of(end.head + end.tail)) <= max(room, 0)


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("abcdef", 6, ("abcdef", "", 0)),
        ("abcdefg", 6, ("abc", "efg", 1)),
        ("abcdefg", 5, ("abc", "fg", 2)),
        ("éééé", 5, ("é", "é", 4)),
        ("🙂🙂", 7, ("🙂", "", 4)),
        ("abc", 0, ("", "", 3)),
        ("", 0, ("", "", 0)),
    ],
)
def test_half_of_the_room_is_for_each_end(text: str, room: int, expected: tuple[str, str, int]) -> None:
    kept = head_tail(text, room)

    assert (kept.head, kept.tail, kept.omitted_bytes) == expected
