"""From events to chunks: order, closing, usage, finish reasons, and what servers do wrong."""

from typing import Any

import pytest

from dsh.llm.failure import LlmError
from dsh.llm.grammar import StreamGrammar
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from tests.llm.build import calls, delta, fragment, reason, text, tool_call, translate


def blocks(chunks: list[Chunk]) -> list[Any]:
    assembler, grammar = BlockAssembler(), StreamGrammar()
    for chunk in chunks:
        grammar.check(chunk)
        assembler.push(chunk)
    return list(assembler.blocks())


def usage(chunks: list[Chunk]) -> Any:
    found = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_reply_becomes_deltas_and_all_closing_chunks_come_at_the_end() -> None:
    chunks = translate(
        delta(role="assistant", content=None, reasoning_content=""),
        delta(reasoning_content="think"),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop", {"prompt_tokens": 3, "completion_tokens": 2}, content=""),
    )

    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "think"),
        BlockStart(1, "text"),
        TextDelta(1, "Hel"),
        TextDelta(1, "lo"),
        BlockEnd(0, {"type": "reasoning", "text": "think"}),
        BlockEnd(1, {"type": "text", "text": "Hello"}),
        UsageChunk({"inputTokens": 3, "outputTokens": 2}),
        Finish({"kind": "stop"}),
    ]


def test_reasoning_and_text_share_one_block_each_however_they_alternate() -> None:
    chunks = translate(
        delta(content="a"),
        delta(reasoning_content="x", content="b"),
        delta(reasoning_content="y"),
        delta("stop"),
    )

    assert blocks(chunks) == [text("ab"), {"type": "reasoning", "text": "xy"}]


def test_a_reply_of_reasoning_alone_is_not_empty() -> None:
    assert reason(translate(delta(reasoning_content="hm"), delta("stop"))) == {"kind": "stop"}


@pytest.mark.parametrize(
    ("wire", "kind"),
    [("stop", "stop"), (None, "stop"), ("tool_calls", "tool-calls"), ("length", "max-tokens")],
)
def test_finish_reasons_of_a_reply_with_content(wire: str | None, kind: str) -> None:
    assert reason(translate(delta(content="a"), delta(wire))) == {"kind": kind}


def test_the_last_finish_reason_wins_and_null_leaves_it() -> None:
    assert reason(translate(delta("stop", content="a"), delta("length"), delta(None))) == {
        "kind": "max-tokens"
    }


@pytest.mark.parametrize("wire", ["stop", None, "tool_calls"])
def test_nothing_at_all_is_an_empty_response_after_its_usage(wire: str | None) -> None:
    chunks = translate(delta(wire, {"prompt_tokens": 1, "completion_tokens": 0}, content=""))

    assert isinstance(chunks[0], UsageChunk)
    assert reason(chunks)["failure"]["code"] == "EMPTY_RESPONSE"


def test_an_empty_reply_that_hit_the_limit_is_a_success() -> None:
    assert translate(delta("length")) == [Finish({"kind": "max-tokens"})]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        ("content_filter", "CONTENT_FILTER"),
        ("insufficient_system_resource", "INSUFFICIENT_SYSTEM_RESOURCE"),
        ("odd-one.2", "ODD_ONE_2"),
    ],
)
def test_other_finish_reasons_fail_with_their_name_and_close_the_blocks(wire: str, code: str) -> None:
    chunks = translate(delta(content="I can"), delta(wire))

    assert chunks[2] == BlockEnd(0, text("I can"))
    assert reason(chunks) == {"kind": "error", "failure": {"message": f"model stopped: {wire}", "code": code}}


@pytest.mark.parametrize("wire", ["한국", "f" * 1_000_000, "  "])
def test_a_finish_reason_that_makes_no_code_has_a_general_one(wire: str) -> None:
    failure = reason(translate(delta(content="I can"), delta(wire)))["failure"]

    assert failure["code"] == "UNKNOWN_FINISH_REASON"
    assert len(failure["message"]) < 400


def test_equal_short_deltas_are_held_once_and_long_ones_as_they_are() -> None:
    """A long reply has few different tokens, and the log keeps every delta."""
    long = "x" * 200
    chunks = translate(*(delta(content=part) for part in ("a tok", long, "a tok", long)))
    first, longer, second, _ = (chunk.text for chunk in chunks if isinstance(chunk, TextDelta))

    assert first is second
    assert longer == long


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 80,
                "prompt_cache_miss_tokens": 20,
                "completion_tokens": 50,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            {"inputTokens": 20, "outputTokens": 50, "cacheReadTokens": 80, "reasoningTokens": 30},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}},
            {"inputTokens": 6, "outputTokens": 1, "cacheReadTokens": 4},
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": None},
                "prompt_cache_hit_tokens": 3,
            },
            {"inputTokens": 7, "outputTokens": 1, "cacheReadTokens": 3},
        ),
        ({}, {"inputTokens": 0, "outputTokens": 0}),
        ({"prompt_tokens": 5}, {"inputTokens": 5, "outputTokens": 0}),
        ({"prompt_tokens": -5, "completion_tokens": "x"}, {"inputTokens": 0, "outputTokens": 0}),
        (
            {"prompt_tokens": 3, "prompt_cache_hit_tokens": 9},
            {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 9},
        ),
        ({"prompt_tokens": 3.0, "completion_tokens": True}, {"inputTokens": 3, "outputTokens": 0}),
        ([], None),
        ("many", None),
    ],
)
def test_usage_is_disjoint_and_never_negative(wire: Any, expected: Any) -> None:
    assert usage(translate(delta("stop", wire, content="a"))) == expected


def test_numbers_out_of_range_count_as_zero_instead_of_spoiling_the_reply() -> None:
    raw = b'{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1e999,"completion_tokens":7}}'

    assert usage(translate(raw)) == {"inputTokens": 0, "outputTokens": 7}


def test_usage_is_told_once_from_wherever_it_came_last() -> None:
    first, last = {"prompt_tokens": 1}, {"prompt_tokens": 2}
    trailing = b'{"choices":[],"usage":{"prompt_tokens":2}}'

    assert usage(translate(delta("stop", first, content="a"))) == {"inputTokens": 1, "outputTokens": 0}
    assert usage(translate(delta("stop", content="a"), trailing)) == {"inputTokens": 2, "outputTokens": 0}
    assert usage(translate(delta("stop", first, content="a"), delta(None, last))) == {
        "inputTokens": 2,
        "outputTokens": 0,
    }
    assert usage(translate(b'{"choices":[{"delta":{"content":"a"}}],"usage":null}')) is None


def test_only_the_first_choice_counts() -> None:
    both = b'{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}'

    assert blocks(translate(both, delta("stop"))) == [text("a")]


@pytest.mark.parametrize(
    "payload",
    [
        b"{not-json",
        b"null",
        b"[]",
        b'"x"',
        b'{"choices":[null]}',
        b'{"choices":{}}',
        b'{"choices":[{"delta":{"content":[1]}}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 5000,
    ],
)
def test_what_cannot_be_read_is_malformed_and_shown_shortly(payload: bytes) -> None:
    with pytest.raises(LlmError) as caught:
        translate(payload)

    assert caught.value.code == "MALFORMED_RESPONSE"
    assert len(caught.value.message) < 220


def test_unknown_members_are_passed_over() -> None:
    raw = b'{"id":1,"choices":[{"index":0,"delta":{"content":"a","audio":{}},"logprobs":{"x":[1]}}],"x":{}}'

    assert blocks(translate(raw)) == [text("a")]


def test_wrong_utf8_and_lone_surrogates_become_replacement_characters() -> None:
    chunks = translate(
        b'{"choices":[{"delta":{"content":"a\xffb"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\\ud83c\\udff7"}}]}',
    )

    assert blocks(chunks) == [text("a\ufffdb\ufffd🏷")]


def test_separators_inside_a_string_are_text() -> None:
    assert blocks(translate('{"choices":[{"delta":{"content":"a\u2028b\x85"}}]}'.encode())) == [
        text("a\u2028b\x85")
    ]


def test_an_error_inside_the_stream_is_the_failure_also_with_empty_choices() -> None:
    for raw in (b'{"error":{"message":"x"}}', b'{"choices":[],"error":"x"}'):
        with pytest.raises(LlmError) as caught:
            translate(delta(content="half"), raw)
        assert caught.value.code == "IN_BAND"
    assert blocks(translate(b'{"error":null,"choices":[{"delta":{"content":"a"}}]}')) == [text("a")]


# -- tool calls ------------------------------------------------------------------------------------


def test_a_call_is_told_from_its_first_fragment_on_with_its_raw_arguments() -> None:
    chunks = translate(
        calls(fragment("", name="read", index=0, id="c1", type="function")),
        calls(fragment('{"pa', index=0)),
        calls(fragment('th": 1}', index=0)),
        delta("tool_calls"),
    )

    assert chunks == [
        BlockStart(0, "tool-call"),
        ToolCallDelta(0, "c1", "read", ""),
        ToolCallDelta(0, "c1", arguments_delta='{"pa'),
        ToolCallDelta(0, "c1", arguments_delta='th": 1}'),
        BlockEnd(0, tool_call("c1", "read", '{"path": 1}')),
        Finish({"kind": "tool-calls"}),
    ]


def test_a_call_after_text_counts_on_from_it_and_text_may_follow() -> None:
    chunks = translate(
        delta(content="I look"),
        calls(fragment("{}", name="read", index=0, id="c1")),
        delta(content="."),
        delta("stop"),
    )

    assert blocks(chunks) == [text("I look."), tool_call()]
    assert reason(chunks) == {"kind": "stop"}


TWO = [tool_call("a", "read", '{"q":"a"}'), tool_call("b", "grep", '{"q":"b"}')]


@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param(
            [
                calls(fragment('{"q"', name="read", index=0, id="a")),
                calls(fragment('{"q"', name="grep", index=1, id="b")),
                calls(fragment(':"a"}', index=0)),
                calls(fragment(':"b"}', index=1)),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                calls(fragment('{"q"', name="read", id="a")),
                calls(fragment(':"a"}')),
                calls(fragment('{"q"', name="grep", id="b")),
                calls(fragment(':"b"}')),
            ],
            id="no index",
        ),
        pytest.param(
            [
                calls(fragment('{"q"', name="read", id="a")),
                calls(fragment(':"a"}', id="a")),
                calls(fragment('{"q"', name="grep", id="b")),
                calls(fragment(':"b"}', id="b")),
            ],
            id="no index, id repeated",
        ),
        pytest.param(
            [
                calls(fragment('{"q"', name="read", index=0, id="a")),
                calls(fragment(':"a"}', index=0)),
                calls(fragment('{"q"', name="grep", index=0, id="b")),
                calls(fragment(':"b"}', index=0)),
            ],
            id="index 0 twice",
        ),
        pytest.param(
            [
                calls(fragment('{"q"', name="read", index=0, id="a")),
                calls(fragment('{"q"', name="grep", index=0, id="b")),
                calls(fragment(':"a"}', index=0, id="a")),
                calls(fragment(':"b"}', index=0, id="b")),
            ],
            id="index 0 twice, interleaved by id",
        ),
        pytest.param(
            [
                calls(
                    fragment('{"q":"a"}', name="read", index=0, id="a"),
                    fragment('{"q":"b"}', name="grep", index=3, id="b"),
                ),
            ],
            id="index jumps, whole at once",
        ),
        pytest.param(
            [
                calls(fragment('{"q":', name="read", index=7, id="a")),
                calls(fragment('{"q":', name="grep", index=-2, id="b")),
                calls(fragment('"a"}', index=7)),
                calls(fragment('"b"}', index=-2)),
            ],
            id="any index in any order",
        ),
    ],
)
def test_two_calls_stay_two_calls(payloads: list[bytes]) -> None:
    assert blocks(translate(*payloads, delta("tool_calls"))) == TWO


@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param(
            [calls(fragment(None, name="read", index=0, id="c1"), fragment("{}", index=0))], id="two entries"
        ),
        pytest.param([calls(fragment("{}", name="read", index=0, id="c1"))], id="whole at once"),
        pytest.param(
            [calls({"index": 0, "id": "c1"}), calls(fragment("{}", name="read", index=0))], id="name later"
        ),
        pytest.param([calls({"id": "c1"}), calls(fragment("{}", name="read"))], id="name later, no index"),
        pytest.param(
            [calls(fragment("{", name="read", index=0, id="c1")), calls(fragment("}", index=1))],
            id="new index, no id",
        ),
        pytest.param(
            [
                calls(fragment("{", name="read", index=0, id="c1")),
                calls(fragment("}", name=None, index=0, id=None)),
            ],
            id="null id",
        ),
        pytest.param(
            [
                calls(fragment("{", name="read", index=0, id="c1")),
                calls(fragment("}", name="", index=0, id="")),
            ],
            id="empty id and name",
        ),
        pytest.param([calls(fragment({}, name="read", index=0, id="c1"))], id="object for arguments"),
        pytest.param(
            [calls(fragment("{", name="read", index=0, id="c1")), calls(fragment("}", index=0, id="c9"))],
            id="another id without a name",
        ),
        pytest.param(
            [calls(fragment("{", name="read", id="c1")), calls(fragment("}", name="read"))],
            id="name again, no index",
        ),
    ],
)
def test_one_call_stays_one_call(payloads: list[bytes]) -> None:
    assert blocks(translate(*payloads, delta("tool_calls"))) == [tool_call("c1", "read", "{}")]


def test_a_fragment_that_may_belong_to_several_calls_is_an_error() -> None:
    with pytest.raises(LlmError, match="any of 2 calls") as caught:
        translate(
            calls(fragment("{", name="a", index=0, id="a"), fragment("{", name="b", index=1, id="b")),
            calls(fragment("}", index=2)),
        )
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_no_arguments_are_an_empty_string() -> None:
    assert blocks(translate(calls(fragment("", name="read", index=0, id="c1")))) == [tool_call(arguments="")]
    assert blocks(translate(calls(fragment(None, name="read", index=0, id="c1")))) == [
        tool_call(arguments="")
    ]


def test_calls_without_ids_get_one_each() -> None:
    chunks = translate(calls(fragment("{}", name="read", index=0), fragment("{}", name="read", index=1)))

    assert blocks(chunks) == [tool_call("made-1"), tool_call("made-2")]


def test_whole_calls_without_index_and_id_stay_apart() -> None:
    chunks = translate(calls(fragment('{"a":1}', name="read")), calls(fragment('{"a":2}', name="read")))

    assert blocks(chunks) == [
        tool_call("made-1", arguments='{"a":1}'),
        tool_call("made-2", arguments='{"a":2}'),
    ]


def test_an_id_that_is_used_twice_is_kept_once() -> None:
    by_index = translate(
        calls(fragment("{}", name="read", index=0, id="x")),
        calls(fragment("{}", name="read", index=1, id="x")),
    )
    without = translate(
        calls(fragment("{}", name="read", id="x")), calls(fragment("{}", name="read", id="x"))
    )

    assert blocks(by_index) == blocks(without) == [tool_call("x"), tool_call("made-2")]


def test_an_object_in_place_of_the_argument_text_is_serialised() -> None:
    chunks = translate(calls(fragment({"path": "ä", "n": 1}, name="read", index=0, id="c1")))

    assert blocks(chunks) == [tool_call(arguments='{"path":"ä","n":1}')]
