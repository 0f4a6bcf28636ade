"""A document whose words may be secrets: what is wrong with it is told without one of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh.capabilities.user_document import parse_private
from dsh.composition.value import MarkedError

PIECES = [
    "hush", "hush: ", "- ", ": ", "\n", "\n  ", "\t", "{", "}", "[", "]", ",", "'", '"', "|\n", ">\n",
    "&hush ", "*hush", "!hush ", "!!hush ", "!!int hush", "!!js hush", "!expr ", "? ", "---\n", "...\n",
    "%hush\n", "# hush\n", "\\hush", "@hush", "`hush", "%", "\x00", "\ufeff", "<<: ", "~",
    "1", "1e999", "id: hush\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("hush: 1\nhush: 2\n")
@example('hush: "\\ud800"\n')
@example("id: hush\na: !!js hush\n")
def test_no_word_of_the_text_is_in_a_message_about_it(text: str) -> None:
    try:
        parse_private(text.encode(), "F")
    except MarkedError as error:
        assert "hush" not in error.message + error.hint
        assert error.message.startswith("F:")


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("a:\n\tb: 1\n", "F:2:1: a tab indents this line", "indent with spaces"),
        ("a: 1\na: 2\n", "F:2:1: a key stands there twice; first in line 1", ""),
        ("a: 1\n---\nb: 1\n", "F:2:1: a second document starts here", "delete the line `---`"),
        ("a: 1e999\n", "F:1:4: this is not a finite number", "quote"),
        ("a: !b 1\n", "F:1:4: this cannot be read as YAML", ""),
    ],
)
def test_what_says_nothing_of_the_text_is_told_with_its_remedy(text: str, words: str, hint: str) -> None:
    with pytest.raises(MarkedError) as caught:
        parse_private(text.encode(), "F")
    assert caught.value.message == words
    assert hint in caught.value.hint
    assert bool(hint) is bool(caught.value.hint)
