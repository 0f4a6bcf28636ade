"""What the model reads of content blocks, and how lines are cut out of what a server prints."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.plugins.mcp_client.lines import Lines, LineTooLong
from dsh.plugins.mcp_client.result import NOTHING, lossless, text_of
from dsh.plugins.mcp_client.sieve import call_result, shown, tools_page
from dsh.session.value import freeze

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("content", "structured", "read"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None, "a\nb"),
        ([], None, NOTHING),
        ([{"type": "text", "text": ""}], None, NOTHING),
        ([], {"a": "é"}, '{"a":"é"}'),
        ([{"type": "text", "text": "a"}], {"a": 1}, "a"),
        ([{"type": "resource_link", "uri": "file:///x", "name": "x"}], None, "[resource x: file:///x]"),
        ([{"type": "resource", "resource": {"uri": "u:1", "text": "body"}}], None, "[resource u:1]\nbody"),
        (
            [{"type": "resource", "resource": {"uri": "u:1", "blob": "AAAA", "mimeType": "a/b"}}],
            None,
            "[resource u:1: 3 bytes of a/b, not shown]",
        ),
        ([IMAGE], None, "[image: 8 bytes of image/png, not shown]"),
        ([{**IMAGE, "type": "audio"}], {"a": 1}, '[audio: 8 bytes of image/png, not shown]\n{"a":1}'),
        ([{"type": "video\n"}], None, "[content of type video, not shown]"),
    ],
)
def test_blocks_as_text(content: list[dict[str, Any]], structured: Any, read: str) -> None:
    assert text_of(content, structured) == read


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (2**53 - 1, 2**53 - 1),
        (2**53, "9007199254740992"),
        (-0.0, 0.0),
        (float("inf"), "inf"),
        (True, True),
        ({"a": (1, [2.5])}, {"a": [1, [2.5]]}),
    ],
)
def test_values_are_made_lossless(value: Any, kept: Any) -> None:
    assert json.dumps(lossless(value)) == json.dumps(kept)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_what_is_lossless_the_log_takes(value: Any) -> None:
    freeze(lossless(value), "value")


def test_an_unknown_block_becomes_a_line_and_an_interim_answer_stays() -> None:
    given_ = {"content": [{"type": "text", "text": "a"}, {"type": "hologram"}, 3]}
    sieved = sieve(given_)

    assert [block["type"] for block in sieved["content"]] == ["text"] * 3
    assert 'content of type "hologram" left out' in sieved["content"][1]["text"]
    assert sieve({"resultType": "input_required"}) == {"resultType": "input_required"}


@pytest.mark.parametrize(
    ("answer", "is_any", "kept"),
    [
        ({}, False, {"content": []}),
        ({"content": None, "isError": None, "_meta": None}, False, {"content": []}),
        ({"content": [], "structuredContent": None}, False, {"content": []}),
        ({"structuredContent": {"a": 1}}, False, {"structuredContent": {"a": 1}, "content": []}),
        ({"structuredContent": ["é"]}, False, {"content": [{"type": "text", "text": '["é"]'}]}),
        ({"structuredContent": [1]}, True, {"structuredContent": [1], "content": []}),
    ],
)
def test_an_answer_that_nearly_keeps_the_protocol_is_taken(
    answer: dict[str, Any], is_any: bool, kept: dict[str, Any]
) -> None:
    assert sieve(answer, is_any_structured=is_any) == kept


def sieve(answer: dict[str, Any], *, is_any_structured: bool = False) -> dict[str, Any]:
    def is_text(block: Any) -> bool:
        return isinstance(block, dict) and block["type"] == "text"

    return call_result(answer, is_text, is_any_structured=is_any_structured)


@given(
    page=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["tools", "name", "inputSchema"]), inner)
        ),
        max_leaves=10,
    )
)
def test_any_page_goes_through_the_sieve(page: Any) -> None:
    skipped: list[str] = []
    sieved = tools_page({"tools": page}, lambda entry: "wrong", lambda name, reason: skipped.append(name))

    assert sieved["tools"] == ([] if isinstance(page, list) else page)
    assert len(skipped) == (len(page) if isinstance(page, list) else 0)


@given(text=st.text(st.characters()), limit=st.integers(1, 40))
def test_a_shown_text_is_one_printable_line_of_bounded_length(text: str, limit: int) -> None:
    line = shown(text, limit)

    assert line.isprintable()
    assert len(line) <= limit + 1
    line.encode()


@given(lines=st.lists(st.binary().map(lambda b: b.replace(b"\n", b"")), max_size=8), seed=st.integers())
def test_lines_are_the_same_whatever_the_pieces(lines: list[bytes], seed: int) -> None:
    stream, rng, cutter = b"\n".join([*lines, b""]), random.Random(seed), Lines()
    found: list[bytes] = []
    while stream:
        size = rng.randint(1, 9)
        found += cutter.feed(stream[:size])
        stream = stream[size:]

    assert found == [line.strip() for line in lines if line.strip()]
    assert cutter.end() == b""


def test_a_long_line_of_noise_is_dropped_and_a_long_message_is_an_error() -> None:
    cutter = Lines(limit=2_000)
    found = [line for _ in range(10) for line in cutter.feed(b"noise" * 100)]
    found += cutter.feed(b"\n{}\n")
    assert found == [b"noise" * 200, b"{}"]

    longest = b"{" + b" " * 1_998 + b"}"
    assert list(cutter.feed(longest + b"\n")) == [longest]
    with pytest.raises(LineTooLong, match="more than 2000 bytes"):
        list(cutter.feed(b" " + longest))
    with pytest.raises(LineTooLong, match="more than 2000 bytes"):
        for _ in range(10):
            list(cutter.feed(b'{"a":' + b"x" * 900))
