"""The assembler: what a reply amounts to, whatever the order of its chunks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import DshError
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


def assembled(*chunks: Chunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def call(index: int, call_id: str = "c", name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def test_blocks_come_in_order_of_first_appearance() -> None:
    reply = assembled(TextDelta(3, "b"), ReasoningDelta(1, "a"), TextDelta(3, "c"))

    assert reply.blocks() == ({"type": "text", "text": "bc"}, {"type": "reasoning", "text": "a"})


def test_a_delta_opens_a_block_that_nothing_opened() -> None:
    assert assembled(
        ToolCallDelta(0, "c1", "read", '{"a"'), ToolCallDelta(0, "c1", arguments_delta=":1}")
    ).blocks() == (call(0, "c1", "read", '{"a":1}'),)


def test_a_repeated_start_and_whatever_follows_the_end_are_ignored() -> None:
    reply = assembled(
        BlockStart(0, "text"),
        TextDelta(0, "a"),
        BlockStart(0, "reasoning"),
        BlockEnd(0, {"type": "text", "text": "final"}),
        TextDelta(0, "late"),
        BlockEnd(0, {"type": "text", "text": "second"}),
    )

    assert reply.blocks() == ({"type": "text", "text": "final"},)


def test_the_last_id_and_the_last_name_that_is_not_empty_count() -> None:
    reply = assembled(
        ToolCallDelta(0, "a", "first", "{"),
        ToolCallDelta(0, "b", "", "}"),
        ToolCallDelta(0, "", arguments_delta=""),
    )

    assert reply.blocks() == (call(0, "b", "first", "{}"),)


def test_a_call_without_id_and_name_is_named_by_its_index() -> None:
    delta = ToolCallDelta(4, "", arguments_delta="{}")
    named = (call(4, "call-4", "", "{}"),)
    assert assembled(delta).blocks() == named
    assert assembled(delta, BlockEnd(4, call(4, "", "", "{}"))).blocks() == named


def test_an_open_block_of_an_unknown_kind_is_an_error_and_a_closed_one_is_kept() -> None:
    with pytest.raises(DshError, match="never closed"):
        assembled(BlockStart(0, "audio")).blocks()

    audio = {"type": "audio", "data": "…"}
    assert assembled(BlockStart(0, "audio"), BlockEnd(0, audio)).blocks() == (audio,)


def test_max_tokens_drops_tool_calls_and_their_replay_entries_together() -> None:
    chunks: list[Chunk] = [TextDelta(0, "a"), ToolCallDelta(1, "c", "read", "{"), ReasoningDelta(2, "r")]
    finish = Finish({"kind": "max-tokens"}, {"response": "r", "blocks": [1, 2, 3]})
    reply = assembled(*chunks, finish)

    assert [block["type"] for block in reply.blocks()] == ["text", "reasoning"]
    assert reply.replay_state == {"response": "r", "blocks": [1, 3]}


def test_replay_state_that_does_not_fit_the_blocks_is_dropped_and_one_without_blocks_passes() -> None:
    def state(value: dict[str, Any]) -> Any:
        return assembled(TextDelta(0, "a"), Finish({"kind": "stop"}, value)).replay_state

    assert state({"response": 1, "blocks": [1, 2]}) is None
    assert state({"response": 1}) == {"response": 1}
    assert assembled(Finish({"kind": "stop"})).replay_state is None


def test_an_interrupted_reply_keeps_text_and_reasoning_that_are_not_blank() -> None:
    reply = assembled(
        TextDelta(0, " \n"),
        ReasoningDelta(1, "why"),
        ToolCallDelta(2, "c", "read", "{"),
        TextDelta(3, "half"),
    )

    assert reply.interrupted_blocks() == (
        {"type": "reasoning", "text": "why"},
        {"type": "text", "text": "half"},
    )


def test_finish_defaults_to_stop_and_the_last_usage_counts() -> None:
    reply = assembled(
        UsageChunk({"inputTokens": 1, "outputTokens": 1}), UsageChunk({"inputTokens": 2, "outputTokens": 2})
    )

    assert reply.finish == {"kind": "stop"}
    assert reply.usage == {"inputTokens": 2, "outputTokens": 2}
    assert assembled().usage is None


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[list[Chunk]], list[Chunk]]:
    """Legal sequences of chunks, one for each block, and one way to run them together in that order."""
    sequences: list[list[Chunk]] = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["text", "reasoning", "tool-call"]))
        texts = draw(st.lists(st.text(max_size=5), max_size=4))
        chunks: list[Chunk] = [BlockStart(index, kind)]
        if kind == "tool-call":
            chunks += [ToolCallDelta(index, f"c{index}", "t", text) for text in texts]
            block = call(index, f"c{index}", "t" if texts else "", "".join(texts))
        else:
            chunks += [(TextDelta if kind == "text" else ReasoningDelta)(index, text) for text in texts]
            block = {"type": kind, "text": "".join(texts)}
        if draw(st.booleans()):
            chunks.append(BlockEnd(index, block))
        sequences.append(chunks)
    mixed = [sequence[0] for sequence in sequences]
    queues = [sequence[1:] for sequence in sequences]
    while any(queues):
        queue = draw(st.sampled_from([q for q in queues if q]))
        mixed.append(queue.pop(0))
    return sequences, mixed


@given(interleaved())
def test_any_interleaving_of_legal_sequences_gives_the_same_blocks(
    case: tuple[list[list[Chunk]], list[Chunk]],
) -> None:
    sequences, mixed = case
    in_order = assembled(*(chunk for sequence in sequences for chunk in sequence))

    assert assembled(*mixed).blocks() == in_order.blocks()
