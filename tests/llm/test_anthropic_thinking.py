"""What each model of the Messages wire takes of thinking: by its name, as the route says, as it is sent."""

from typing import Any

import msgspec
import pytest

from dsh.llm.anthropic.route import AnthropicRoute, ThinkingBudgets
from dsh.llm.anthropic.thinking import Ways, known_ways
from dsh.llm.failure import LlmError
from tests.llm.anthropic_build import body, request, route

OLD, NEWER = Ways(), Ways("adaptive")
DISABLED = Ways("adaptive", "disabled")
ALWAYS = Ways("adaptive", "never")


@pytest.mark.parametrize(
    ("model", "ways"),
    [
        # no version, or none that counts
        ("some-model", OLD),
        ("", OLD),
        ("deepseek-5-5", OLD),
        ("claude", OLD),
        ("claude-", OLD),
        ("claude-opus", OLD),
        ("claude-opus-latest", OLD),
        ("claude-opus-20290101", OLD),
        ("claude-2.1", OLD),
        ("claude-instant-1.2", OLD),
        ("claude-3-7-sonnet-20250219", OLD),
        ("claude-3-7-sonnet-latest", OLD),
        ("anthropic/claude-3.7-sonnet", OLD),
        # below and at 4.6
        ("claude-sonnet-4-20250514", OLD),
        ("claude-sonnet-4-0", OLD),
        ("claude-opus-4-1-20250805", OLD),
        ("claude-haiku-4-5-20251001", OLD),
        ("claude-opus-4-5", OLD),
        ("anthropic/claude-opus-4.5", OLD),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", OLD),
        ("claude-opus-4-6", NEWER),
        ("claude-sonnet-4-6", NEWER),
        ("anthropic/claude-opus-4.6", NEWER),
        ("Claude-Opus-4-6", NEWER),
        ("eu.anthropic.claude-opus-4-7-v1", NEWER),
        ("claude-opus-4-8@20260601", NEWER),
        ("claude-opus-4-10", NEWER),
        # from 5 on: thinking is on unless it is turned off
        ("claude-opus-5", DISABLED),
        ("claude-opus-5-20260701", DISABLED),
        ("claude-sonnet-5", DISABLED),
        ("claude-sonnet-5-20260901", DISABLED),
        ("claude-haiku-5-5", Ways("adaptive", "disabled", True)),
        ("claude-haiku-7", Ways("adaptive", "disabled", True)),
        ("claude-sonnet-5-5", Ways("adaptive", "between_tools", True)),
        ("claude-sonnet-10", Ways("adaptive", "between_tools", True)),
        ("claude-opus-5-4", Ways("adaptive", "disabled", True)),
        ("claude-opus-5-5", Ways("adaptive", "never", True)),
        ("claude-opus-6", Ways("adaptive", "never", True)),
        ("claude-fable-5", ALWAYS),
        ("claude-mythos-5", ALWAYS),
        ("claude-mythos-preview", ALWAYS),
        ("claude-fable-5-1", Ways("adaptive", "never", True)),
        ("claude-fable-5-2", Ways("adaptive", "never", True)),
        ("claude-unheard-of-5", OLD),
        ("claude-saga-5", ALWAYS),
    ],
)
def test_a_models_ways_follow_from_its_name(model: str, ways: Ways) -> None:
    assert known_ways(model) == ways
    assert route().ways(model) == ways


def test_the_route_overrules_the_name_and_the_model_overrules_the_route() -> None:
    models = [
        {"id": "mine", "thinkingStyle": "adaptive"},
        {"id": "claude-opus-5", "thinkingStyle": "auto", "thinkingOff": "auto"},
    ]
    settings = msgspec.convert(
        {"apiKeyEnv": "K", "thinkingStyle": "none", "thinkingOff": "never", "models": models}, AnthropicRoute
    )

    assert settings.ways("mine") == Ways("adaptive", "never")
    assert settings.ways("claude-opus-5") == DISABLED
    assert settings.ways("other") == Ways("none", "never")
    assert settings.ways("claude-fable-5-1").is_bound


MODELS = {
    "claude-sonnet-4-5": ("off", "low", "medium", "high"),
    "claude-opus-4-7": ("off", "low", "medium", "high"),
    "claude-opus-5": ("off", "low", "medium", "high"),
    "claude-sonnet-5-5": ("off", "low", "medium", "high"),
    "claude-opus-5-5": ("low", "medium", "high"),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("effort", ["off", "low", "medium", "high", "max", ""])
def test_what_is_offered_can_be_sent_and_nothing_else(model: str, effort: str) -> None:
    asked = request(config={"model": model, "reasoning_effort": effort})
    assert route().ways(model).efforts == MODELS[model]

    if effort in MODELS[model]:
        body(asked)
        return
    with pytest.raises(LlmError) as caught:
        body(asked)
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
    assert ", ".join(MODELS[model]) in caught.value.message


def said(
    model: str, settings: AnthropicRoute | None = None, purpose: str | None = None, **config: Any
) -> Any:
    """What a request says of thinking."""
    found = body(request(config={"model": model, **config}, purpose=purpose), settings)
    return {key: found[key] for key in ("thinking", "output_config") if key in found}


@pytest.mark.parametrize(
    ("model", "off"),
    [
        ("claude-sonnet-4-5", {}),
        ("claude-opus-4-8", {}),
        ("claude-sonnet-5", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
    ],
)
def test_off_is_said_as_the_model_takes_it(model: str, off: Any) -> None:
    assert said(model) == off
    assert said(model, reasoning_effort="off") == off
    assert said(model, route(reasoning_effort="high"), purpose="session-title") == off


def test_a_model_that_always_thinks_is_left_to_itself_and_thinks_little_for_a_title() -> None:
    little = {"output_config": {"effort": "low"}}

    assert said("claude-fable-5-2") == {}
    assert said("claude-fable-5-2", purpose="compaction") == {}
    assert said("claude-fable-5-2", purpose="session-title") == little
    assert route().effort("claude-fable-5-2") is None
    assert route(reasoning_effort="medium").effort("claude-fable-5-2") == "medium"
    high = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    assert said("claude-fable-5-2", route(reasoning_effort="high")) == high
    assert said("x", route(thinking_off="never"), purpose="session-title") == little


def test_the_effort_of_the_route_is_not_asked_of_a_model_that_does_not_think() -> None:
    models = [{"id": "plain", "thinkingStyle": "none"}]
    settings = msgspec.convert(
        {"apiKeyEnv": "K", "reasoningEffort": "high", "models": models}, AnthropicRoute
    )

    assert settings.effort("plain") == "off"
    assert said("plain", settings) == {}
    assert said("plain", settings, purpose="session-title") == {}
    assert settings.effort("other") == "high"
    assert said("m", route(thinking_style="none", thinking_off="never"), purpose="session-title") == {}


def test_the_smallest_budget_that_the_api_takes_can_be_given() -> None:
    settings = route(thinking_budgets=ThinkingBudgets(low=1024))

    assert said("m", settings, reasoning_effort="low", max_tokens=1025)["thinking"]["budget_tokens"] == 1024


def test_a_model_that_always_thinks_takes_no_temperature() -> None:
    with pytest.raises(LlmError) as caught:
        said("claude-opus-5-5", temperature=0.5)
    assert caught.value.code == "UNSUPPORTED_OPTION"
    assert "set the effort" not in caught.value.message
    assert said("claude-opus-5", temperature=0.5) == {"thinking": {"type": "disabled"}}


def test_a_summary_too_short_for_a_budget_is_made_as_without_thinking() -> None:
    settings = route(thinking_style="budget", thinking_off="disabled", reasoning_effort="high")

    short = said("m", settings, purpose="compaction", max_tokens=6144)
    assert short == {"thinking": {"type": "disabled"}}
    assert "budget_tokens" in said("m", settings, purpose="compaction", max_tokens=6145)["thinking"]
