"""Edits change the matched text and nothing else, whatever the line endings are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.fs import FsEditRequest, FsError
from dsh.capabilities.local_fs.reading import normalized
from dsh.capabilities.local_fs.splice import splice

ATOMS = st.sampled_from(["a", "b", "é", "\n", "\r\n"])
TEXTS = st.lists(ATOMS, max_size=30).map("".join)


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> str:
    return splice(text, FsEditRequest(old, new, replace_all), "/f")


def test_lf_strings_match_a_crlf_file_and_it_stays_crlf() -> None:
    text = "a = 1\r\nb = 2\r\nc = 3\r\n"

    assert edit(text, "a = 1\nb = 2", "a = 10\nb = 20\nnew = 1") == "a = 10\r\nb = 20\r\nnew = 1\r\nc = 3\r\n"


def test_mixed_endings_outside_the_match_stay_as_they_are() -> None:
    assert edit("a\r\nb\nc\r\nd\n", "b", "B") == "a\r\nB\nc\r\nd\n"


@pytest.mark.parametrize(
    ("text", "old", "expected"),
    [
        ("x\r\ny\nz\n", "x\ny\nz", "1\r\n2\n"),  # the first break inside the match
        ("p\r\nq\nx\r\n", "x", "p\r\nq\n1\n2\r\n"),  # the nearest before it
        ("x\r\nq\n", "x", "1\r\n2\r\nq\n"),  # the nearest after it
        ("x", "x", "1\n2"),  # none at all
    ],
)
def test_a_new_line_break_takes_the_ending_of_its_neighbourhood(text: str, old: str, expected: str) -> None:
    assert edit(text, old, "1\n2") == expected


def test_crlf_in_the_strings_matches_an_lf_file() -> None:
    assert edit("a\nb\n", "a\r\nb", "c\r\nd") == "c\nd\n"


def test_no_final_newline_is_added_or_lost() -> None:
    assert edit("a\nlast", "last", "end") == "a\nend"
    assert edit("a\nlast\n", "last", "end") == "a\nend\n"


def test_a_byte_order_mark_stays() -> None:
    assert edit("\ufeffa = 1\n", "a = 1", "a = 2") == "\ufeffa = 2\n"


def test_a_lone_carriage_return_is_no_line_break() -> None:
    assert edit("a\rb\n", "a", "x\ny") == "x\ny\rb\n"


@pytest.mark.parametrize("new", [r"$& $$ $1 $` $' \1 \g<0> \n \\ {0} %s", "\\"])
def test_the_new_text_is_literal(new: str) -> None:
    assert edit("x TARGET y", "TARGET", new) == f"x {new} y"


def test_the_old_text_is_literal() -> None:
    assert edit("aXbZc[d] a.b(c)[d]*", "a.b(c)[d]*", "ok") == "aXbZc[d] ok"


def test_overlapping_occurrences_count_once() -> None:
    with pytest.raises(FsError, match="matched 2 times"):
        edit("aaaa", "aa", "b")
    assert edit("aaaaa", "aa", "b", replace_all=True) == "bba"


@pytest.mark.parametrize(
    ("old", "code"), [("", "FS_EDIT_NOT_FOUND"), ("zz", "FS_EDIT_NOT_FOUND"), ("x", "FS_AMBIGUOUS_EDIT")]
)
def test_refusals_have_their_code(old: str, code: str) -> None:
    with pytest.raises(FsError) as caught:
        edit("x x x\n", old, "y")

    assert caught.value.code == code


def test_an_ambiguous_edit_says_how_often_it_matched_and_where_if_asked() -> None:
    with pytest.raises(FsError, match=re.escape('old_string matched 3 times in "/f"; provide a more')):
        edit("x x x\n", "x", "y")
    for text, where in (("x x\r\n\r\nx\n", "lines 1, 3"), ("x\n" * 100, "lines 1, 2, 3, 4")):
        with pytest.raises(FsError, match=rf"\({where}.*\); provide a more specific old_str$"):
            splice(text, FsEditRequest("x", "y"), "/f", name="old_str", with_lines=True)


@given(before=TEXTS, old=TEXTS, after=TEXTS, new=TEXTS)
def test_everything_outside_the_match_survives(before: str, old: str, after: str, new: str) -> None:
    text = f"{before}<{old}>{after}"

    result = edit(text, f"<{old}>", new)

    assert result.startswith(before)
    assert result.endswith(after)
    middle = result[len(before) : len(result) - len(after)]
    assert normalized(middle) == normalized(new)
    assert len(set(re.findall(r"\r?\n", middle))) <= 1


@given(text=TEXTS, old=TEXTS.filter(bool), new=TEXTS)
def test_replacing_all_is_replacing_in_the_lf_form(text: str, old: str, new: str) -> None:
    flat, target = normalized(text), normalized(old)
    if target not in flat:
        return

    result = edit(text, old, new, replace_all=True)

    assert normalized(result) == flat.replace(target, normalized(new))
