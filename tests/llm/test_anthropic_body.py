"""The body of a Messages request: its members, cache markers, thinking, and what it refuses."""

import json
from typing import Any

import msgspec
import pytest

from dsh.llm.anthropic.body import request_body
from dsh.llm.anthropic.history import WireHistory
from dsh.llm.anthropic.route import AnthropicRoute, ThinkingBudgets
from dsh.llm.failure import LlmError
from dsh.session.message import Message, assistant_message
from tests.llm.anthropic_build import MARKER, MODEL, body, claude, request, route
from tests.llm.build import result, schema, text, tool_call, user


def test_the_whole_body_in_the_order_that_goes_out() -> None:
    asked = request(
        user("a"),
        claude(tool_call("c1", arguments='{"x":1}')),
        result("c1", "done"),
        system="be brief",
        tools=(schema("read"), schema("write")),
        config={"max_tokens": 100, "temperature": 0.5, "stop": ("END",)},
    )
    parameters = {"type": "object", "properties": {}}

    assert request_body(asked, route(), WireHistory()).decode() == json.dumps(
        {
            "model": MODEL,
            "max_tokens": 100,
            "system": [{"type": "text", "text": "be brief", "cache_control": MARKER}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARKER}]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"x": 1}}],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": "done",
                            "cache_control": MARKER,
                        }
                    ],
                },
            ],
            "tools": [
                {"name": "read", "description": "the tool read", "input_schema": parameters},
                {
                    "name": "write",
                    "description": "the tool write",
                    "input_schema": parameters,
                    "cache_control": MARKER,
                },
            ],
            "stream": True,
            "temperature": 0.5,
            "stop_sequences": ["END"],
        },
        separators=(",", ":"),
    )


@pytest.mark.parametrize("system", [None, "", " \n"])
def test_what_is_absent_or_blank_is_left_out(system: str | None) -> None:
    assert body(request(system=system, config={"stop": ()})) == {
        "model": MODEL,
        "max_tokens": 8192,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": MARKER}]}
        ],
        "stream": True,
    }


def test_the_longest_reply_is_the_requests_or_the_models_or_the_routes() -> None:
    models = [{"id": MODEL, "maxTokens": 50}]
    settings = msgspec.convert({"apiKeyEnv": "K", "defaultMaxTokens": 70, "models": models}, AnthropicRoute)

    assert body(request(config={"max_tokens": 9}), settings)["max_tokens"] == 9
    assert body(request(), settings)["max_tokens"] == 50
    assert body(request(config={"model": "other"}), settings)["max_tokens"] == 70
    assert body(request())["max_tokens"] == 8192


# -- cache -----------------------------------------------------------------------------------------


def conversation(steps: int) -> list[Message]:
    messages = [user("start")]
    for step in range(steps):
        messages += [claude(text(f"say {step}"), tool_call(f"c{step}")), result(f"c{step}", "x" * 10)]
    return messages


def markers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [value["cache_control"]] if "cache_control" in value else []
        return own + [found for member in value.values() for found in markers(member)]
    return [found for item in value for found in markers(item)] if isinstance(value, list) else []


def without_markers(raw: bytes) -> bytes:
    return raw.replace(b',"cache_control":{"type":"ephemeral"}', b"")


@pytest.mark.parametrize("steps", [0, 1, 2, 20])
@pytest.mark.parametrize(
    ("retention", "marker"),
    [("none", None), ("short", MARKER), ("long", {"type": "ephemeral", "ttl": "1h"})],
)
def test_at_most_four_places_are_marked(steps: int, retention: Any, marker: Any) -> None:
    asked = request(*conversation(steps), system="s", tools=(schema("a"), schema("b")))

    assert markers(body(asked, route(cache_retention=retention))) == (
        [] if marker is None else [marker] * (3 if steps == 0 else 4)
    )


def test_a_request_begins_with_the_bytes_of_the_one_before_but_for_the_markers() -> None:
    known, before = WireHistory(), b""
    for steps in range(20):
        asked = request(*conversation(steps), system="s", tools=(schema("a"),))
        raw = without_markers(request_body(asked, route(), known))
        messages = raw[: raw.rindex(b'],"tools"')]
        assert messages.startswith(before)
        before = messages


def test_the_place_that_was_marked_last_is_marked_again() -> None:
    """So that the provider finds what it cached, however many blocks were added since."""

    def marked(steps: int) -> list[int]:
        found = body(request(*conversation(steps)))["messages"]
        return [at for at, message in enumerate(found) if markers(message)]

    assert marked(3)[-1] == marked(4)[0]


# -- thinking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effort", "budget"), [("low", 2048), ("medium", 4096), ("high", 6144)])
def test_an_effort_is_a_budget(effort: str, budget: int) -> None:
    asked = request(config={"reasoning_effort": effort})

    assert body(asked)["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert body(request(), route(reasoning_effort=effort))["thinking"]["budget_tokens"] == budget


@pytest.mark.parametrize(
    "model", ["claude-opus-4-7", "claude-sonnet-4-6", "claude-fable-5-1", "claude-opus-5"]
)
def test_newer_models_are_told_the_effort_by_its_name(model: str) -> None:
    found = body(request(config={"reasoning_effort": "medium", "model": model}))

    assert (found["thinking"], found["output_config"]) == ({"type": "adaptive"}, {"effort": "medium"})


@pytest.mark.parametrize(
    ("model", "style"),
    [
        ("claude-3-7-sonnet-20250219", "budget"),
        ("claude-sonnet-4-20250514", "budget"),
        ("claude-opus-4-1-20250805", "budget"),
        ("claude-haiku-4-5-20251001", "budget"),
        ("claude-opus-4-6", "adaptive"),
        ("eu.anthropic.claude-opus-4-7-v1", "adaptive"),
        ("claude-sonnet-5-20260901", "adaptive"),
        ("claude-sonnet-10", "adaptive"),
        ("some-model", "budget"),
    ],
)
def test_how_a_model_is_made_to_think_follows_its_version(model: str, style: str) -> None:
    assert route().ways(model).style == style
    assert route(thinking_style="budget").ways(model).style == "budget"


@pytest.mark.parametrize("config", [{}, {"reasoning_effort": "off"}])
def test_nothing_is_said_of_thinking_where_it_is_off(config: dict[str, Any]) -> None:
    assert not body(request(config=config)).keys() & {"thinking", "output_config"}


def test_a_title_and_a_summary_too_short_for_it_are_made_without_thinking() -> None:
    high = route(reasoning_effort="high")

    assert "thinking" not in body(request(purpose="session-title"), high)
    assert "thinking" not in body(request(purpose="compaction", config={"max_tokens": 6144}), high)
    assert "thinking" in body(request(purpose="compaction", config={"max_tokens": 6145}), high)


def test_a_tool_loop_of_another_model_goes_on_without_a_budget_and_with_adaptive_thinking() -> None:
    history = (
        user("a"),
        assistant_message([tool_call("c1")], "deepseek-official", "deepseek-v4-flash"),
        result("c1", "x"),
    )

    assert "thinking" not in body(request(*history, config={"reasoning_effort": "low"}))
    newer = request(*history, config={"reasoning_effort": "low", "model": "claude-opus-5"})
    assert body(newer)["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize(
    ("config", "changes", "code", "words"),
    [
        ({"reasoning_effort": "max"}, {}, "UNSUPPORTED_REASONING_EFFORT", "off, low, medium, high"),
        ({"reasoning_effort": "low"}, {"thinking_style": "none"}, "UNSUPPORTED_REASONING_EFFORT", "none"),
        ({"reasoning_effort": "low", "temperature": 0.0}, {}, "UNSUPPORTED_OPTION", "temperature"),
        (
            {"reasoning_effort": "low", "temperature": 1.0, "model": "claude-opus-5"},
            {},
            "UNSUPPORTED_OPTION",
            "temperature",
        ),
        ({"reasoning_effort": "high", "max_tokens": 6144}, {}, "UNSUPPORTED_OPTION", "raise maxTokens"),
        (
            {"reasoning_effort": "high"},
            {"thinking_budgets": ThinkingBudgets(high=9000)},
            "UNSUPPORTED_OPTION",
            "thinkingBudgets.high",
        ),
    ],
)
def test_what_the_wire_cannot_express_is_refused_and_named(
    config: dict[str, Any], changes: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(LlmError) as caught:
        body(request(config=config), route(**changes))
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_budget_below_the_whole_reply_is_taken() -> None:
    assert "thinking" in body(request(config={"reasoning_effort": "high", "max_tokens": 6145}))
