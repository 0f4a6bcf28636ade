"""The splitter: the same events for every cut, and line ends where the standard puts them."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm.failure import LlmError
from dsh.llm.transport import sse
from dsh.llm.transport.sse import SseEvent, SseParser

STREAM = (
    ": keep-alive\n\n"
    'data:{"a":"A"}\r\n\r\n'
    'event: message\nid: 7\nretry: 10\ndata: {"b":\ndata: [1]}\n\n'
    'data: {"text":"line\u2028sep\u2029nel\x85vt\x0bff\x0c 🏷"}\n\n'
    "data: one\r\rdata: two\n\n\n\n"
    "unknown: x\ndata\n\n"
    "event: error\ndata: overloaded\n\n"
    "data: [DONE]\n\n"
).encode()
EVENTS: list[SseEvent] = [
    (b"", b'{"a":"A"}'),
    (b"message", b'{"b":\n[1]}'),
    (b"", '{"text":"line\u2028sep\u2029nel\x85vt\x0bff\x0c 🏷"}'.encode()),
    (b"", b"one"),
    (b"", b"two"),
    (b"", b""),
    (b"error", b"overloaded"),
    (b"", b"[DONE]"),
]


def parse(*parts: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for part in parts for event in parser.feed(part)]


def test_only_lf_crlf_and_cr_end_a_line() -> None:
    assert parse(STREAM) == EVENTS


def test_every_split_in_two_gives_the_same_events() -> None:
    for body in (
        STREAM,
        STREAM.replace(b"\n", b"\r\n").replace(b"\r\r\n", b"\r\n"),
        b"\xef\xbb\xbf" + STREAM,
    ):
        expected = parse(body)
        for at in range(len(body) + 1):
            assert parse(body[:at], body[at:]) == expected, at


def test_many_random_cuts_give_the_same_events() -> None:
    rng = random.Random(7)
    for _ in range(200):
        cuts = sorted(rng.randrange(len(STREAM)) for _ in range(rng.randrange(1, 40)))
        parts = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        assert parse(*parts) == EVENTS


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    assert parse(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


def test_one_leading_byte_order_mark_is_dropped_and_only_one() -> None:
    assert parse(b"\xef\xbb\xbfdata: a\n\n") == [(b"", b"a")]
    assert parse(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [(b"", b"a")]
    assert parse(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []
    assert parse(b"data: \xef\xbb\xbfa\n\n") == [(b"", b"\xef\xbb\xbfa")]


def test_one_space_after_the_colon_is_dropped_and_only_one() -> None:
    assert parse(b"data:  a\n\ndata:a\n\n") == [(b"", b" a"), (b"", b"a")]


def test_an_event_without_its_empty_line_is_not_dispatched_but_told_at_the_end() -> None:
    for tail in (b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r", b"data: [DO"):
        parser = SseParser()
        assert parser.feed(b"data: a\n\n" + tail) == [(b"", b"a")]
        assert parser.end() == (b"", tail.removeprefix(b"data: ").strip())


def test_nothing_is_left_at_the_end_of_an_orderly_body() -> None:
    parser = SseParser()
    parser.feed(STREAM)
    assert parser.end() is None


def test_a_line_of_16_mib_passes_and_an_endless_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"x" * (16 * 1024 * 1024)
    parts = [b"data: ", *(line[at : at + 65536] for at in range(0, len(line), 65536)), b"\n\n"]
    assert parse(*parts) == [(b"", line)]

    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    parser = SseParser()
    with pytest.raises(LlmError) as caught:
        for _ in range(100):
            parser.feed(b"data: " + b"y" * 100)
    assert caught.value.code == "MALFORMED_RESPONSE"


def by_the_book(body: bytes) -> list[SseEvent]:
    """A slow reading of the standard, line by line."""
    body = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[SseEvent] = []
    name: bytes = b""
    data: list[bytes] = []
    for line in body.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = b"", []
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return events


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            [b"data: ", b"data:", b"data", b"event: e", b":c", b"id: 1", b"\n", b"\r", b"\r\n", b"x", b" "]
        )
    ),
    st.lists(st.integers(1, 12)),
)
def test_any_body_cut_anyhow_reads_as_the_standard_says(tokens: list[bytes], sizes: list[int]) -> None:
    body = b"".join(tokens)
    parts, rest = [], body
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]

    assert parse(*parts, rest) == by_the_book(body)
