"""From a history to a request body: golden shapes, key order, prefix stability, clean Unicode."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.failure import LlmError
from dsh.llm.request import LlmCallConfig
from dsh.llm.transport.body import encode_wire
from dsh.session.message import Message, user_message
from tests.chat_wire import deepseek_body, deepseek_messages
from tests.llm.build import assistant, reasoning, request, result, schema, text, tool_call, user


def encoded(*messages: Message, config: dict[str, Any] | None = None, **changes: Any) -> bytes:
    made = LlmCallConfig("deepseek-official", "deepseek-v4-flash", **(config or {}))
    return deepseek_body(request(*messages, config=made, **changes))


def body(*messages: Message, config: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encoded(*messages, config=config, **changes))
    return found


def test_keys_come_in_one_order_and_absent_ones_are_left_out() -> None:
    full = body(
        user("hi"),
        config={"reasoning_effort": "max", "temperature": 0.5, "max_tokens": 9, "stop": ("x",)},
        system="be brief",
        tools=(schema(),),
    )

    assert list(full) == [
        "model",
        "messages",
        "stream",
        "stream_options",
        "thinking",
        "reasoning_effort",
        "tools",
        "temperature",
        "max_tokens",
        "stop",
    ]
    assert list(body(user("hi"))) == ["model", "messages", "stream", "stream_options"]
    assert full["stream_options"] == {"include_usage": True}
    assert full["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "the tool read",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


def test_every_shape_of_history_has_its_wire_form() -> None:
    history = (
        user("look"),
        assistant(reasoning("why"), tool_call("c1", "read", '{"path": "a"}')),
        result("c1", "content"),
        assistant(reasoning("so"), text("It "), text("says."), tool_call("c2", "bash", ""), tool_call("c3")),
        result("c2", "", is_error=True),
        result("c3", "x"),
        user_message([]),
        assistant(reasoning("only")),
    )

    assert deepseek_messages("sys", history) == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "why",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "content"},
        {
            "role": "assistant",
            "content": "It says.",
            "reasoning_content": "so",
            "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": ""}},
                {"id": "c3", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "(no output)"},
        {"role": "tool", "tool_call_id": "c3", "content": "x"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "", "reasoning_content": "only"},
    ]
    assert list(deepseek_messages(None, history)[1]) == ["role", "content", "reasoning_content", "tool_calls"]


def test_text_beside_results_goes_first_and_unknown_blocks_are_skipped() -> None:
    mixed = user_message(
        [
            {"type": "tool-result", "toolCallId": "c", "content": [text("r"), {"type": "chart"}]},
            {"type": "chart", "data": 1},
            text("and this"),
        ]
    )

    assert deepseek_messages(None, [mixed]) == [
        {"role": "user", "content": "and this"},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]


def test_an_image_on_this_wire_is_refused_by_name() -> None:
    with pytest.raises(LlmError) as caught:
        body(user_message([{"type": "image", "attachment": {"id": "a"}}]))
    assert caught.value.code == "UNSUPPORTED_CONTENT"


@pytest.mark.parametrize(
    ("thinking", "configured", "asked", "expected"),
    [
        (None, None, None, (None, None)),
        ("enabled", None, None, ("enabled", None)),
        ("disabled", None, None, ("disabled", None)),
        (None, "low", None, ("enabled", "low")),
        (None, "low", "max", ("enabled", "max")),
        ("enabled", None, "off", ("disabled", None)),
        ("disabled", None, "off", ("disabled", None)),
        (None, None, "high", ("enabled", "high")),
    ],
)
def test_thinking_follows_the_request_then_the_row(
    thinking: Any, configured: Any, asked: str | None, expected: tuple[Any, Any]
) -> None:
    config = LlmCallConfig("p", "m", reasoning_effort=asked)
    made = json.loads(deepseek_body(request(config=config), thinking=thinking, configured=configured))

    assert (made.get("thinking", {}).get("type"), made.get("reasoning_effort")) == expected


def test_a_title_is_made_without_thinking() -> None:
    config = LlmCallConfig("p", "m", reasoning_effort="max")
    asked = request(config=config, purpose="session-title")
    made = json.loads(deepseek_body(asked, thinking="enabled", configured="high"))

    assert made["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in made


@pytest.mark.parametrize(("thinking", "asked"), [("disabled", "high"), (None, "extreme")])
def test_an_effort_that_cannot_be_had_is_an_error(thinking: Any, asked: str) -> None:
    with pytest.raises(LlmError) as caught:
        deepseek_body(request(config=LlmCallConfig("p", "m", reasoning_effort=asked)), thinking=thinking)
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


def test_the_body_is_compact_raw_utf8_without_half_characters() -> None:
    text = encoded(
        user("한 🏷 \ud83d x"), assistant(tool_call(arguments='{"a":"\udc00"}')), system="\ud83d\udc4d"
    )

    assert "한 🏷 \ufffd x".encode() in text
    assert "👍".encode() in text
    assert b'"stream":true' in text
    assert (
        json.loads(text.decode())["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"a":"\ufffd"}'
    )


messages = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=8)),
        st.builds(
            lambda r, t: assistant(reasoning(r), text(t), tool_call()),
            st.text(max_size=8),
            st.text(max_size=8),
        ),
        st.builds(lambda t: result("c1", t), st.text(max_size=8)),
    ),
    min_size=1,
    max_size=8,
)


@given(messages, st.integers(0, 8))
def test_a_longer_history_begins_with_the_bytes_of_the_shorter(history: list[Message], cut: int) -> None:
    shorter = encode_wire({"messages": deepseek_messages("s", history[:cut])})
    longer = encode_wire({"messages": deepseek_messages("s", history)})

    assert longer.startswith(shorter.removesuffix(b"]}"))
    assert msgspec.json.decode(longer)["messages"]
