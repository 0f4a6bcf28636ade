"""Hunks for display: what changed with three lines around it, one hunk for each place."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.plugins.tool_fs import diff
from dsh.plugins.tool_fs.diff import file_diffs

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=40).map("\n".join)


def hunks(before: str, after: str) -> list[tuple[str | None, str | None]]:
    return [(hunk["oldText"], hunk["newText"]) for hunk in file_diffs("f", before, after)]


def test_scattered_changes_are_hunks_of_their_own() -> None:
    lines = [str(number) for number in range(60)]
    changed = [f"<{line}>" if line in ("5", "30", "55") else line for line in lines]

    found = hunks("\n".join(lines) + "\n", "\n".join(changed) + "\n")

    assert len(found) == 3
    assert found[1] == ("27\n28\n29\n30\n31\n32\n33", "27\n28\n29\n<30>\n31\n32\n33")


def test_the_path_is_what_the_model_sent() -> None:
    assert file_diffs("./f", "a", "b") == [{"path": "./f", "oldText": "a", "newText": "b"}]


def test_nothing_to_compare_and_nothing_changed_have_no_hunks() -> None:
    assert file_diffs("f", None, "x") == []
    assert file_diffs("f", "x", "x") == []


def test_a_hunk_without_old_lines_has_no_old_text() -> None:
    assert hunks("", "a\nb\n") == [(None, "a\nb")]
    assert hunks("a\n", "") == [("a", "")]


def test_a_missing_final_newline_is_a_change_without_an_annotation() -> None:
    assert hunks("a\nb", "a\nb\n") == [("a\nb", "a\nb")]


def test_large_changes_do_not_search_for_a_minimal_diff() -> None:
    old = [f"old {number}" for number in range(diff.MAX_MATCHED_LINES + 1)]
    same_length = [*old]
    same_length[0] = same_length[-1] = "new"

    assert len(hunks("\n".join(old), "\n".join(same_length))) == 2
    assert len(hunks("\n".join(old), "\n".join(["x", *old, "y"]))) == 1


@given(before=LINES, after=LINES)
def test_hunks_are_those_of_a_unified_diff(before: str, after: str) -> None:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    expected = sum(line.startswith("@@") for line in difflib.unified_diff(old, new))

    found = file_diffs("f", before, after)

    assert (len(found) > 0) == (expected > 0)
    for hunk in found:
        assert hunk["oldText"] is None or f"\n{hunk['oldText']}\n" in f"\n{before}\n"
        assert f"\n{hunk['newText']}\n" in f"\n{after}\n" or hunk["newText"] == ""


@given(before=LINES, after=LINES, head=LINES, tail=LINES, block=st.integers(1, 5))
def test_what_long_texts_begin_and_end_with_alike_makes_no_difference(
    before: str, after: str, head: str, tail: str, block: int
) -> None:
    """The change has a line of its own, so that there is one way to see it."""
    old, new = f"{head}\n<{before}>\n{tail}", f"{head}\n({after})\n{tail}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "BLOCK_CHARS", 10**6)
        expected = hunks(old, new)
        patch.setattr(diff, "BLOCK_CHARS", block)

        assert hunks(old, new) == expected


@pytest.mark.parametrize("block", [1, 2, 7])
def test_texts_that_differ_in_length_alone_have_their_hunk(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What both begin with and what both end with may be the same lines."""
    monkeypatch.setattr(diff, "BLOCK_CHARS", block)

    assert hunks("a\n" * 20, "a\n" * 21) == [("a\na\na", "a\na\na\na")]
    assert hunks("a\n" * 60, "a\n" * 20) == [("\n".join("a" * 43), "a\na\na")]


def test_what_is_logged_of_a_change_is_bounded() -> None:
    line = "x" * 1_000
    many = "\n".join(f"{at} {line}\n\n\n\n\n\n\n" for at in range(1_000))

    shown = hunks(many, many.replace("x", "y"))

    assert 0 < len(shown) < 1_000
    assert sum(len(text or "") for hunk in shown for text in hunk) <= diff.MAX_SHOWN_CHARS
    one_line = "x" * diff.MAX_SHOWN_CHARS
    assert hunks(one_line, one_line + "y") == []


def test_a_small_change_of_a_huge_text_has_its_hunk_and_a_huge_change_has_none() -> None:
    huge = "\n".join(str(at) for at in range(1_000_000))

    assert hunks(huge, huge.replace("\n500000\n", "\nhere\n")) == [
        (
            "499997\n499998\n499999\n500000\n500001\n500002\n500003",
            "499997\n499998\n499999\nhere\n500001\n500002\n500003",
        )
    ]
    assert hunks(huge, huge.replace("1", "one")) == []


@given(before=LINES)
def test_grouping_agrees_with_difflib(before: str) -> None:
    old = before.splitlines(keepends=True)
    new = [line.replace("b", "x") for line in old]
    steps = difflib.SequenceMatcher(None, old, new).get_opcodes()

    expected = list(difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(3)) if old != new else []

    trimmed = [
        [step for step in group if step[1] != step[2] or step[3] != step[4]] for group in diff._grouped(steps)
    ]
    assert trimmed == [
        [step for step in group if step[1] != step[2] or step[3] != step[4]] for group in expected
    ]
