"""The window builder: what it keeps, where it cuts, and that pieces make no difference."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh.plugins.tool_fs.window import Limits, Window, WindowBuilder

ROOMY = Limits(lines=1000, line_chars=1000, total_bytes=100_000)
MARK = re.compile(r"\.\.\. \(line truncated to (\d+) chars\)\Z")


def window(*pieces: str, offset: int = 1, limits: Limits = ROOMY) -> Window:
    builder = WindowBuilder(offset, limits)
    for piece in pieces:
        builder.feed(piece)
    return builder.finish()


def texts(found: Window) -> list[str]:
    return [line.text for line in found.lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\nb", ["a", "b"]),
        ("\n", [""]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\r\r\n", ["a", "b\r"]),
        ("a\rb\n\r", ["a\rb", ""]),
        ("\ufeffa\n\ufeffb", ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85", ["a\u2028b\x0bc\x85"]),
    ],
)
def test_lines_end_with_lf_alone(text: str, lines: list[str]) -> None:
    found = window(text)

    assert texts(found) == lines
    assert found.total_lines == len(lines)


def test_a_long_line_is_cut_between_characters_and_says_so() -> None:
    limits = Limits(lines=10, line_chars=3, total_bytes=1000)

    assert texts(window("🏷🏷🏷🏷\nabc\nabc\r\nabcd\r\n", limits=limits)) == [
        "🏷🏷🏷... (line truncated to 3 chars)",
        "abc",
        "abc",
        "abc... (line truncated to 3 chars)",
    ]


def test_bytes_cap_the_page_but_not_the_count() -> None:
    # 3 + (1 + 3) = 7 bytes for two lines; a third would need 4 more
    limits = Limits(lines=10, line_chars=10, total_bytes=10)

    found = window("aaa\nbbb\nccc\nd\n", limits=limits)

    assert texts(found) == ["aaa", "bbb"]
    assert found.total_lines == 4


def test_a_page_exactly_full_is_kept() -> None:
    assert len(texts(window("aaa\nbbb\ncc", limits=Limits(10, 10, 10)))) == 3


def test_a_first_line_over_the_byte_cap_is_cut_and_never_leaves_an_empty_page() -> None:
    found = window("é" * 100 + "\nnext", limits=Limits(10, 1000, 60))

    assert len(found.lines) == 1
    text = found.lines[0].text
    cut = MARK.search(text)
    assert cut is not None
    assert text[: cut.start()] == "é" * int(cut[1])
    assert len(text.encode()) <= 60
    assert found.total_lines == 2
    assert texts(window("🏷🏷", limits=Limits(10, 1000, 1))) == ["🏷... (line truncated to 1 chars)"]


def test_only_the_head_of_a_long_line_is_held() -> None:
    builder = WindowBuilder(1, Limits(10, 100, 1000))
    for _ in range(1000):
        builder.feed("x" * 1000)

    assert sum(map(len, builder._head)) == 101
    assert builder.finish().total_lines == 1


def test_it_is_known_when_more_lines_follow() -> None:
    builder = WindowBuilder(1, Limits(2, 10, 100))
    builder.feed("a\nb\n")
    assert not builder.has_more
    builder.feed("c")
    assert builder.has_more


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = "".join(
        draw(st.lists(st.sampled_from(["a", "é", "🏷", "\n", "\r", "\r\n", "\ufeff", "bcd"]), max_size=40))
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(
    case=cut_texts(),
    offset=st.integers(1, 8),
    limits=st.builds(Limits, st.integers(1, 6), st.integers(1, 5), st.integers(1, 80)),
)
@example(case=("ab\r\n", ["ab\r", "\n"]), offset=1, limits=Limits(5, 2, 80))
def test_how_the_text_is_cut_into_pieces_makes_no_difference(
    case: tuple[str, list[str]], offset: int, limits: Limits
) -> None:
    text, pieces = case

    whole = window(text, offset=offset, limits=limits)

    assert window(*pieces, offset=offset, limits=limits) == whole
    assert window(*text, offset=offset, limits=limits) == whole


@given(case=cut_texts(), limits=st.builds(Limits, st.integers(1, 6), st.integers(50, 60), st.integers(1, 80)))
def test_pages_chain_to_the_whole_file_exactly_once(case: tuple[str, list[str]], limits: Limits) -> None:
    text, _ = case
    expected = text.removeprefix("\ufeff").split("\n")
    if expected[-1] == "":
        expected.pop()
    numbers, offset, total = [], 1, None
    while total is None or offset <= total:
        page = window(text, offset=offset, limits=limits)
        total = page.total_lines
        if total:
            assert page.lines, "no page is ever empty"
            numbers += [line.number for line in page.lines]
            offset = numbers[-1] + 1
            for line in page.lines:
                full = expected[line.number - 1].removesuffix("\r")
                assert line.text == full or full.startswith(MARK.sub("", line.text))

    assert numbers == list(range(1, len(expected) + 1))
    assert total == len(expected)
