"""The Messages wire, inwards: each event, each stop reason, usage, signatures, and what servers do wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.anthropic.translator import MessagesTranslator
from dsh.llm.failure import LlmError
from dsh.llm.grammar import StreamGrammar
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.refusal import Refusal
from dsh.llm.transport.watchdog import StreamLimits
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
from tests.llm.anthropic_build import START, STOP, adds, begins, ends, events, says, stopped, thinks
from tests.llm.build import PlainFailures, reason


def assembled(chunks: list[Chunk]) -> BlockAssembler:
    assembler, grammar = BlockAssembler(), StreamGrammar()
    for chunk in chunks:
        grammar.check(chunk)
        assembler.push(chunk)
    return assembler


def blocks(chunks: list[Chunk]) -> list[Any]:
    return list(assembled(chunks).blocks())


def usage(chunks: list[Chunk]) -> Any:
    found = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    return found[0] if found else None


def code(chunks: list[Chunk]) -> str:
    found = reason(chunks)
    assert found["kind"] == "error", found
    return str(found["failure"]["code"])


def test_a_reply_becomes_chunks_and_a_block_ends_where_the_wire_ends_it() -> None:
    chunks = events(
        START,
        *thinks(0, "hm"),
        {"type": "ping"},
        *says(1, "Hel", "lo"),
        begins(2, "tool_use", id="t1", name="read", input={}),
        adds(2, "input_json_delta", partial_json=""),
        adds(2, "input_json_delta", partial_json='{"a":'),
        adds(2, "input_json_delta", partial_json=" 1}"),
        ends(2),
        stopped("tool_use", output_tokens=9),
        STOP,
    )

    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "hm"),
        BlockEnd(0, {"type": "reasoning", "text": "hm"}),
        BlockStart(1, "text"),
        TextDelta(1, "Hel"),
        TextDelta(1, "lo"),
        BlockEnd(1, {"type": "text", "text": "Hello"}),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, "t1", "read", ""),
        ToolCallDelta(2, "t1", arguments_delta='{"a":'),
        ToolCallDelta(2, "t1", arguments_delta=" 1}"),
        BlockEnd(2, {"type": "tool-call", "id": "t1", "name": "read", "arguments": '{"a": 1}'}),
        UsageChunk({"inputTokens": 5, "outputTokens": 9}),
        Finish(
            {"kind": "tool-calls"},
            {
                "response": {"version": 1},
                "blocks": [{"type": "thinking", "signature": "sig"}, None, None],
            },
        ),
    ]


# -- blocks ----------------------------------------------------------------------------------------


def test_a_signature_that_comes_in_pieces_is_one_and_encrypted_thinking_is_kept() -> None:
    chunks = events(
        START,
        begins(0, "thinking", thinking="", signature=""),
        adds(0, "thinking_delta", thinking="a"),
        adds(0, "signature_delta", signature="one"),
        adds(0, "signature_delta", signature="two"),
        ends(0),
        begins(1, "redacted_thinking", data="secret"),
        ends(1),
        *says(2, "x"),
        stopped(),
    )

    assert blocks(chunks)[:2] == [{"type": "reasoning", "text": "a"}, {"type": "reasoning", "text": ""}]
    assert assembled(chunks).replay_state == {
        "response": {"version": 1},
        "blocks": [
            {"type": "thinking", "signature": "onetwo"},
            {"type": "redacted_thinking", "data": "secret"},
            None,
        ],
    }


def test_thinking_that_is_signed_but_not_shown_is_kept_with_what_follows_it() -> None:
    chunks = events(START, *thinks(0, "", "sig"), *says(1, "x"), stopped())

    assert blocks(chunks) == [{"type": "reasoning", "text": ""}, {"type": "text", "text": "x"}]
    assert code(events(START, *thinks(0, "", "sig"), stopped())) == "EMPTY_RESPONSE"


def test_thinking_may_come_whole_with_its_start() -> None:
    found = assembled(
        events(START, begins(0, "thinking", thinking="a", signature="sig"), ends(0), *says(1, "x"), stopped())
    )

    assert found.blocks()[0] == {"type": "reasoning", "text": "a"}
    assert found.replay_state is not None
    assert found.replay_state["blocks"][0] == {"type": "thinking", "signature": "sig"}


def test_a_reply_without_signatures_has_no_replay_state() -> None:
    assert assembled(events(START, *says(0, "x"), stopped())).replay_state is None


def test_entries_go_with_the_calls_that_a_length_limit_cuts_off() -> None:
    tool = [
        begins(1, "tool_use", id="t", name="n", input={}),
        adds(1, "input_json_delta", partial_json="{"),
        ends(1),
    ]
    found = assembled(events(START, *thinks(0, "a"), *tool, stopped("max_tokens")))

    assert list(found.blocks()) == [{"type": "reasoning", "text": "a"}]
    assert found.replay_state is not None
    assert list(found.replay_state["blocks"]) == [{"type": "thinking", "signature": "sig"}]


@pytest.mark.parametrize(
    ("given_input", "deltas", "arguments"),
    [
        ({}, [], "{}"),
        (None, [], "{}"),
        ({}, [""], "{}"),
        ({"a": 1}, [], '{"a":1}'),
        ({"a": 1}, ['{"b"', ":2}"], '{"b":2}'),
        ({}, ['{"cut'], '{"cut'),
        ('{"a": 1}', [], '{"a": 1}'),
        ([1], [], "{}"),
    ],
)
def test_arguments_are_the_raw_text_and_an_object_where_there_is_none(
    given_input: Any, deltas: list[str], arguments: str
) -> None:
    chunks = events(
        START,
        begins(0, "tool_use", id="t", name="n", input=given_input),
        *[adds(0, "input_json_delta", partial_json=piece) for piece in deltas],
        ends(0),
        stopped("tool_use"),
    )

    assert blocks(chunks) == [{"type": "tool-call", "id": "t", "name": "n", "arguments": arguments}]
    joined = "".join(chunk.arguments_delta for chunk in chunks if isinstance(chunk, ToolCallDelta))
    assert joined == arguments


def test_calls_without_an_id_or_with_one_that_came_before_get_their_own() -> None:
    starts = [("a", 0), ("a", 1), ("", 2), (None, 3)]
    chunks = events(
        START,
        *[begins(at, "tool_use", id=name, name="n", input={}) for name, at in starts],
        *[ends(at) for _, at in starts],
        stopped("tool_use"),
    )

    assert [block["id"] for block in blocks(chunks)] == ["a", "made-1", "made-2", "made-3"]


def test_blocks_of_the_servers_own_tools_are_passed_over_and_break_no_index() -> None:
    chunks = events(
        START,
        begins(0, "server_tool_use", id="s", name="web_search", input={}),
        adds(0, "input_json_delta", partial_json='{"q":1}'),
        ends(0),
        begins(1, "web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
        ends(1),
        *says(2, "a"),
        adds(2, "citations_delta", citation={"type": "web"}),
        begins(3, "tool_use", id="t", name="n", input={}),
        ends(3),
        stopped("tool_use"),
    )

    assert [block["type"] for block in blocks(chunks)] == ["text", "tool-call"]
    assert {chunk.index for chunk in chunks if isinstance(chunk, BlockEnd)} == {0, 1}


def test_parallel_blocks_that_interleave_stay_apart() -> None:
    chunks = events(
        START,
        begins(0, "tool_use", id="a", name="n", input={}),
        begins(1, "tool_use", id="b", name="m", input={}),
        adds(1, "input_json_delta", partial_json='{"b":1}'),
        adds(0, "input_json_delta", partial_json='{"a":1}'),
        ends(1),
        ends(0),
        stopped("tool_use"),
    )

    assert [(block["id"], block["arguments"]) for block in blocks(chunks)] == [
        ("a", '{"a":1}'),
        ("b", '{"b":1}'),
    ]


def test_blocks_that_the_server_leaves_open_or_numbers_alike_are_all_kept() -> None:
    chunks = events(START, *says(0, "a")[:-1], *says(0, "b"), *says(0, "c")[:-1], stopped(), STOP)

    assert [block["text"] for block in blocks(chunks)] == ["a", "b", "c"]


def test_deltas_without_a_start_open_their_block_and_a_call_needs_one() -> None:
    chunks = events(START, adds(0, "text_delta", text="a"), ends(0), stopped())
    assert blocks(chunks) == [{"type": "text", "text": "a"}]

    with pytest.raises(LlmError) as caught:
        events(START, adds(0, "input_json_delta", partial_json="{}"))
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_a_delta_of_another_kind_than_its_block_is_malformed() -> None:
    with pytest.raises(LlmError) as caught:
        events(START, begins(0, "text", text=""), adds(0, "thinking_delta", thinking="a"))
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_equal_short_deltas_are_one_string() -> None:
    chunks = events(START, *says(0, "tok", "tok", "a" * 200, "a" * 200), stopped())
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]

    assert texts[0] is texts[1]


# -- what is no block ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"  ",
        b"[DONE]",
        b'{"type":"ping"}',
        b'{"type":"brand_new","delta":"a string","index":"x"}',
        b'{"type":"brand_new","message":[1]}',
        b'{"type":"content_block_delta"}',
        b'{"type":"content_block_delta","delta":{"type":"brand_new_delta","text":"t"}}',
        b'{"type":"content_block_stop","index":77}',
        b'{"type":"message_delta"}',
        b'{"type":"message_start"}',
    ],
)
def test_pings_and_events_that_nobody_knows_say_nothing(event: bytes) -> None:
    assert blocks(events(START, event, *says(0, "a"), event, stopped())) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    "event",
    [
        b"{not-json",
        b"null",
        b"[1]",
        b'"text"',
        b'{"type":["odd"],"index":[]}',
        b'{"type":"content_block_delta","delta":[null]}',
        b'{"type":"content_block_start","content_block":"x"}',
        b'{"type":"content_block_delta","index":"0","delta":{}}',
        b"[" * 100_000,
    ],
)
def test_an_event_that_cannot_be_read_is_malformed(event: bytes) -> None:
    with pytest.raises(LlmError) as caught:
        events(START, event)
    assert caught.value.code == "MALFORMED_RESPONSE"
    assert len(caught.value.message) < 300


def test_what_is_no_unicode_becomes_valid_text() -> None:
    half = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}'

    assert blocks(events(START, half, stopped())) == [{"type": "text", "text": "a\ufffd"}]


@given(st.binary(max_size=60))
def test_any_bytes_give_chunks_or_a_named_failure(payload: bytes) -> None:
    try:
        events(START, payload, stopped())
    except LlmError as error:
        assert error.code in ("MALFORMED_RESPONSE", "EVENT")


# -- usage -----------------------------------------------------------------------------------------

FULL = {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2, "output_tokens": 1}


@pytest.mark.parametrize(
    ("at_start", "at_end", "expected"),
    [
        (FULL, {"output_tokens": 9}, {"in": 5, "out": 9, "read": 7, "write": 2}),
        (FULL, {"input_tokens": 6, "output_tokens": 9}, {"in": 6, "out": 9, "read": 7, "write": 2}),
        (FULL, {"input_tokens": 0, "output_tokens": 9}, {"in": 5, "out": 9, "read": 7, "write": 2}),
        (FULL, {"output_tokens": 0}, {"in": 5, "out": 0, "read": 7, "write": 2}),
        (FULL, None, {"in": 5, "out": 1, "read": 7, "write": 2}),
        (None, {"input_tokens": 4, "output_tokens": 9}, {"in": 4, "out": 9}),
        ({"input_tokens": 4, "cache_read_input_tokens": None}, {"output_tokens": 9}, {"in": 4, "out": 9}),
        ({"input_tokens": -1}, {"output_tokens": 1e300}, {"in": 0, "out": 0}),
        ({"input_tokens": True}, {"output_tokens": "9"}, None),
        ({}, [], None),
        (None, None, None),
    ],
)
def test_usage_is_cumulative_and_its_parts_do_not_overlap(at_start: Any, at_end: Any, expected: Any) -> None:
    chunks = events(
        {"type": "message_start", "message": {"usage": at_start}},
        *says(0, "a"),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": at_end},
    )
    names = {
        "in": "inputTokens",
        "out": "outputTokens",
        "read": "cacheReadTokens",
        "write": "cacheWriteTokens",
    }

    assert usage(chunks) == (expected and {names[key]: value for key, value in expected.items()})


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "max-tokens"),
        (None, "stop"),
    ],
)
def test_stop_reasons_of_whole_replies(wire: str | None, kind: str) -> None:
    assert reason(events(START, *says(0, "a"), stopped(wire))) == {"kind": kind}


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ("refusal", "REFUSAL"),
        ("pause_turn", "PAUSE_TURN"),
        ("model_context_window_exceeded", "CONTEXT_WINDOW_EXCEEDED"),
        ("some-new reason", "SOME_NEW_REASON"),
        ("…", "UNKNOWN_FINISH_REASON"),
    ],
)
def test_stop_reasons_that_are_failures_close_the_blocks_and_keep_no_state(wire: str, expected: str) -> None:
    chunks = events(START, *thinks(0, "t"), *says(1, "a"), stopped(wire))

    assert code(chunks) == expected
    assert [block["type"] for block in blocks(chunks)] == ["reasoning", "text"]
    assert assembled(chunks).replay_state is None
    assert usage(chunks) == {"inputTokens": 5, "outputTokens": 9}


def test_a_refusal_says_what_the_server_says_of_it() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It asks for\nharm."}
    end = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}

    failure = reason(events(START, *says(0, "a"), end))["failure"]

    assert failure["message"] == "the model refused to answer: It asks for harm."


@pytest.mark.parametrize("wire", ["end_turn", "tool_use", "stop_sequence", None])
def test_a_reply_without_any_content_is_empty(wire: str | None) -> None:
    assert code(events(START, stopped(wire))) == "EMPTY_RESPONSE"
    assert code(events(START, *says(0, ""), stopped(wire))) == "EMPTY_RESPONSE"


def test_an_empty_reply_at_the_length_limit_is_none_and_one_without_a_token_is_an_overflow() -> None:
    assert reason(events(START, stopped("max_tokens", output_tokens=1))) == {"kind": "max-tokens"}
    assert code(events(START, stopped("max_tokens", output_tokens=0))) == "CONTEXT_WINDOW_EXCEEDED"
    told_nothing = events(START, *says(0, "a"), stopped("max_tokens", output_tokens=0))
    assert reason(told_nothing) == {"kind": "max-tokens"}


def test_a_prompt_that_is_reported_larger_than_the_window_is_an_overflow() -> None:
    start = {"type": "message_start", "message": {"usage": FULL}}

    assert code(events(start, *says(0, "a"), stopped(), window=13)) == "CONTEXT_WINDOW_EXCEEDED"
    assert reason(events(start, *says(0, "a"), stopped(), window=14)) == {"kind": "stop"}


@pytest.mark.parametrize(
    ("tail", "whole"),
    [
        (None, False),
        ((b"message_stop", b'{"type":"message_stop"}'), True),
        ((b"", b'{"type":"message_stop"}'), True),
        ((b"message_stop", b'{"type":"message_st'), False),
        ((b"message_delta", json.dumps(stopped()).encode()), False),
        ((b"", b"[DONE]"), False),
    ],
)
def test_only_message_stop_makes_a_reply_whole(tail: Any, whole: bool) -> None:
    assert MessagesTranslator(PlainFailures()).is_whole(tail, []) is whole


REFUSAL = Refusal(
    Endpoint(
        url="http://h",
        headers={},
        provider="TestAI",
        shown_url="http://h",
        secret="",
        limits=StreamLimits(),
        key_origin="",
    ),
    {},
    0.0,
)


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("overloaded_error", "connection lost", "SERVER"),
        ("api_error", "socket timed out", "SERVER"),
        ("rate_limit_error", "overloaded", "RATE_LIMIT"),
        ("authentication_error", "insufficient quota", "AUTH"),
        ("permission_error", "overloaded", "AUTH"),
        ("billing_error", "overloaded", "QUOTA"),
        ("not_found_error", "overloaded", "HTTP_404"),
        ("request_too_large", "overloaded", "INVALID_REQUEST"),
        ("timeout_error", "overloaded", "TIMEOUT"),
        ("invalid_request_error", "overloaded", "INVALID_REQUEST"),
        ("invalid_request_error", "prompt is too long: 5 tokens > 4", "CONTEXT_WINDOW_EXCEEDED"),
        ("invalid_request_error", "credit balance is too low", "QUOTA"),
        ("a_new_error", "overloaded", "SERVER"),
        (None, "m", "SERVER"),
    ],
)
@pytest.mark.parametrize("name", [b"error", b""])
def test_an_error_event_fails_by_its_type(name: bytes, kind: Any, message: str, expected: str) -> None:
    out: list[Chunk] = []
    translator = MessagesTranslator(REFUSAL)
    payload = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    for event in (START, begins(0, "tool_use", id="t", name="bash", input={}), ends(0)):
        translator.push(b"", json.dumps(event).encode(), out)

    with pytest.raises(LlmError) as caught:
        translator.push(name, payload, out)

    assert caught.value.code == expected
    assert not any(isinstance(chunk, Finish) for chunk in out)


# -- any order -------------------------------------------------------------------------------------


@st.composite
def wire_blocks(draw: st.DrawFn, index: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None, Any]:
    """The events of one block in their order, the block that comes of them or None, and its entry."""
    kind = draw(st.sampled_from(["text", "thinking", "silent", "redacted", "tool", "server"]))
    pieces = draw(st.lists(st.sampled_from(["a", "b", "", "é"]), max_size=3))
    said = "".join(pieces)
    if kind == "text":
        deltas = [adds(index, "text_delta", text=piece) for piece in pieces]
        made = [begins(index, "text", text=""), *deltas, ends(index)]
        return made, {"type": "text", "text": said} if said else None, None
    if kind in ("thinking", "silent"):
        signed = {"type": "thinking", "signature": f"sig{index}"}
        made = thinks(index, said if kind == "thinking" else "", f"sig{index}")
        return made, {"type": "reasoning", "text": said if kind == "thinking" else ""}, signed
    if kind == "redacted":
        entry = {"type": "redacted_thinking", "data": f"data{index}"}
        made = [begins(index, "redacted_thinking", data=entry["data"]), ends(index)]
        return made, {"type": "reasoning", "text": ""}, entry
    start = begins(
        index, "tool_use" if kind == "tool" else "server_tool_use", id=f"t{index}", name="n", input={}
    )
    deltas = [adds(index, "input_json_delta", partial_json=piece) for piece in pieces]
    call = {"type": "tool-call", "id": f"t{index}", "name": "n", "arguments": said or "{}"}
    return [start, *deltas, ends(index)], call if kind == "tool" else None, None


@st.composite
def mixed(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Any]]:
    """Blocks whose events come in any order that keeps each block's own; and what they come to."""
    count = draw(st.integers(1, 5))
    drawn = [draw(wire_blocks(index)) for index in range(count)]
    waiting = [list(events_) for events_, _, _ in drawn]
    out: list[dict[str, Any]] = []
    while any(waiting):
        chosen = draw(st.sampled_from([at for at, rest in enumerate(waiting) if rest]))
        out.append(waiting[chosen].pop(0))
    return out, [(block, entry) for _, block, entry in drawn if block is not None]


@given(mixed())
def test_blocks_come_whole_and_with_their_signatures_in_whatever_order(given_: Any) -> None:
    sent, expected = given_
    last = says(9, "end")  # so that thinking which nobody was shown stands before something
    found = assembled(events(START, *sent, *last, stopped()))
    state = found.replay_state
    entries = [None] * len(found.blocks()) if state is None else list(state["blocks"])

    got = list(zip(found.blocks(), entries, strict=True))
    assert got[-1] == ({"type": "text", "text": "end"}, None)
    order = repr
    assert sorted(got[:-1], key=order) == sorted(expected, key=order)
