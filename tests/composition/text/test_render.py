"""Writing values: whatever it is and however it is laid out, our reader gives it back."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh.composition.text.render import Layout, block, inline, is_block, scalar
from dsh.composition.text.yaml import parse_yaml
from tests.composition.text.test_edit import SCALARS, VALUES, plain

LAYOUTS = st.builds(Layout, st.integers(1, 4), st.integers(0, 4), st.booleans())
TEXTS = st.text("ab01.:-+~<!&*#|>?@%,[]{}'\"\\ \t\né\u2028\ufeff\x85\x07😀", max_size=8) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)


def read(text: str) -> Any:
    return parse_yaml(text.encode(), "f.yml")


@given(st.recursive(SCALARS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)), LAYOUTS)
@example({"k" * 2_000: {"l" * 200: "a\nb", "m": ["a\n b\n", "\n"]}}, Layout(has_literals=True))
def test_every_layout_reads_back(value: Any, layout: Layout) -> None:
    document = [value]
    assert repr(read("\n".join(block(document, layout)) + "\n")) == repr(plain(document))


@given(VALUES | TEXTS)
@example("A?")
def test_in_brackets_it_reads_back(value: Any) -> None:
    assert repr(read(f"k: {inline([value])}\n")) == repr({"k": plain([value])})


@pytest.mark.parametrize("word", ["no", "on", "2024-01-01", "1.2.3", "a b", "./x", "a:b", "é", "<3"])
def test_what_can_stand_plain_does_not_gain_quotes_for_nothing(word: str) -> None:
    assert scalar(word) == (word if word != "2024-01-01" else '"2024-01-01"')


@pytest.mark.parametrize(
    "word", ["", "12", "1e3", ".5", ".inf", "true", "NULL", "~", "- a", "a: b", "a #b", "x:"]
)
def test_what_would_read_as_something_else_is_quoted(word: str) -> None:
    assert scalar(word) == f'"{word}"'


def test_texts_of_several_lines_stand_as_they_are_where_that_is_wanted() -> None:
    assert block({"k": "a\n\n b\n", "l": ["a\nb"]}, Layout(has_literals=True)) == [
        "k: |", "  a", "", "   b", "l:", "  - |-", "    a", "    b",
    ]  # fmt: skip
    assert block({"k": "a\nb"}, Layout()) == ['k: "a\\nb"']
    assert not is_block({})
