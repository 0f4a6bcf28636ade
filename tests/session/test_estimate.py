"""The log's price by the table of the specification, and weights in bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.calibration import (
    MAX_FACTOR,
    MAX_RATIO,
    MIN_FACTOR,
    MIN_RATIO,
    START_FACTOR,
    START_RATIO,
    is_credible,
    learned_factor,
    learned_ratio,
)
from dsh.session.derive import project
from dsh.session.estimate import (
    FRAME,
    FRAME_BYTES,
    log_price,
    log_price_of_blocks,
    log_price_of_header,
    log_price_of_system,
    log_price_of_tools,
    utf8_length,
    utf16_length,
    weight,
    weight_of_blocks,
    weight_of_header,
)
from dsh.session.value import encode, freeze
from tests.corpus import CORPUS, needs_corpus
from tests.session.build import IMAGE, call_block, prompt, reply, result
from tests.session.test_corpus import read

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "name", "arguments", "content"]), inner, max_size=4
        ).flatmap(
            lambda made: st.sampled_from(["text", "reasoning", "tool-call", "tool-result", "odd"]).map(
                lambda kind: {"type": kind, **made}
            )
        )
    ),
    max_leaves=10,
)
CHINESE = "模型看到的上下文"
EMOJI = "\U0001f600"


def text(words: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": words}


@pytest.mark.parametrize(
    ("block", "price"),
    [
        (text(""), 4),
        (text("a"), 1 + 4),
        (text("abcd"), 1 + 4),
        (text("abcde"), 2 + 4),
        (text("abcde", "reasoning"), 2 + 4),
        (text(CHINESE), 2 + 4),  # eight characters, eight units
        (text(EMOJI * 2), 1 + 4),  # two characters, four units
        (text(EMOJI * 2 + "x"), 2 + 4),
        (text("\ud800abcd"), 2 + 4),  # half a character is one unit
        (call_block("c", "bash", "{}"), 1 + 1 + 4),
        (call_block("c", "bash!", "{'a'}"), 2 + 2 + 4),
        (call_block("c", "", ""), 4),
        ({"type": "tool-result", "toolCallId": "c", "content": [text("abcd"), text("")]}, 5 + 4 + 4),
        ({"type": "tool-result", "toolCallId": "c", "content": []}, 4),
        ({"type": "odd"}, 4 + 4),  # {"type":"odd"} has 14 characters
        ({"type": "odd", "é": "ü"}, 4 + 6),  # {"type":"odd","é":"ü"} has 22: nothing is escaped
    ],
)
def test_a_block_costs_what_the_table_says(block: dict[str, Any], price: int) -> None:
    assert log_price_of_blocks([block]) == price


def test_a_message_costs_its_blocks_and_four() -> None:
    assert log_price(prompt("abcd")) == 5 + 4
    assert log_price(reply(text("abcd"), call_block("c", "bash", "{}"))) == 5 + 6 + 4
    assert log_price(result("c", "abcd")) == 5 + 4 + 4
    assert log_price(reply(IMAGE)) == 4 + -(-len(encode(IMAGE)) // 4) + 4


def test_a_header_costs_its_system_text_and_its_tools() -> None:
    tools = [{"name": "bash", "description": "runs", "parameters": {}}]
    assert log_price_of_system("abcde") == 2 + 4
    assert log_price_of_tools(tools) == -(-len(encode(tools)) // 4) + 4
    assert log_price_of_header({"config": {}, "system": "abcde", "tools": tools}) == (
        log_price_of_system("abcde") + log_price_of_tools(tools)
    )
    assert log_price_of_header({"config": {}}) == log_price_of_header(None) == 0
    assert weight_of_header({"config": {}}) == weight_of_header(None) == 0
    assert weight_of_header({"config": {}, "tools": tools}) == len(encode(tools))


@needs_corpus
def test_the_price_is_the_one_that_the_original_writes() -> None:
    view = read(CORPUS / "fixtures" / "headless-agent-compaction-recovery-session.jsonl").view
    found = 0
    for event in view.events():
        if event.type in ("compaction/summary", "compaction/prune"):
            messages = (project(view.event(seq)) for seq in event.data["shadowedSeqs"])
            assert sum(log_price(m) for m in messages if m is not None) == event.data["shadowedTokenCount"]
            found += 1
    assert found


@given(st.text(st.characters()))
def test_lengths_are_those_of_the_encodings(words: str) -> None:
    assert utf16_length(words) == len(words.encode("utf-16-le", "surrogatepass")) // 2
    assert utf8_length(words) == len(words.encode("utf-8", "surrogatepass"))


@given(st.lists(json_values, max_size=5))
def test_whatever_stands_in_a_message_has_a_price_and_a_weight(blocks: list[Any]) -> None:
    frozen = freeze(blocks, "blocks", stored=True)

    assert log_price_of_blocks(frozen) >= FRAME * len(blocks)
    assert weight_of_blocks(frozen) >= 0


def test_results_in_results_cost_no_stack() -> None:
    block: Any = text("deep")
    for _ in range(200):
        block = {"type": "tool-result", "toolCallId": "c", "content": [block]}

    assert log_price_of_blocks([block]) == 200 * 4 + 5


def test_a_chinese_character_weighs_three_bytes_and_costs_a_quarter() -> None:
    message, plain = prompt(CHINESE * 100), prompt("x" * 800)

    assert log_price(message) == log_price(plain)
    assert weight(message) - weight(prompt("")) == 3 * (weight(plain) - weight(prompt("")))


# -- what is learned -------------------------------------------------------------------------------


def test_nothing_reported_leaves_the_start_values() -> None:
    assert learned_ratio(0, 0) == START_RATIO
    assert learned_factor(0, 0) == pytest.approx(START_FACTOR)


@pytest.mark.parametrize("ratio", [1.5, 3.0, 5.0, 7.0])
def test_a_large_request_says_nearly_all_and_a_small_one_little(ratio: float) -> None:
    tokens = 100_000
    assert learned_ratio(round(tokens * ratio), tokens) == pytest.approx(ratio, rel=0.02)
    assert learned_ratio(round(10 * ratio), 10) == pytest.approx(START_RATIO, rel=0.05)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_what_is_learned_stays_within_bounds(weight: int, tokens: int) -> None:
    assert MIN_RATIO <= learned_ratio(weight, tokens) <= MAX_RATIO
    assert MIN_FACTOR <= learned_factor(weight, tokens) <= MAX_FACTOR


@pytest.mark.parametrize(
    ("tokens", "heavy", "credible"),
    [(0, 0, False), (0, 9, False), (1, 8, True), (1, 9, False), (99, 1, True)],
)
def test_a_report_of_too_few_tokens_is_not_believed(tokens: int, heavy: int, credible: bool) -> None:
    assert is_credible(tokens, heavy) is credible


def test_a_header_weighs_its_system_text_in_a_frame_and_its_tools() -> None:
    tools = [{"name": "bash"}]

    assert weight_of_header(None) == weight_of_header({"system": "", "tools": []}) == 0
    assert weight_of_header({"system": "漢a"}) == 4 + FRAME_BYTES
    assert weight_of_header({"system": "a", "tools": tools}) == 1 + FRAME_BYTES + len(encode(tools))
