"""Models of the routes of `llm-openai`: what is known of them, how each is asked, which are not there."""

from typing import Any

import pytest

from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.model_facts import ModelFacts
from dsh.llm.chat import openai
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo
from dsh.session.chunk import BlockEnd
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from dsh.session.projection.price import Price
from dsh.testing.mock_server import MockModelServer
from dsh.testing.mock_server.strict.rules import Rules
from tests.aio import aio
from tests.plugins.chat_table import SUCCESS
from tests.plugins.openai_wire import ROUTE, against, refused, routes, usual
from tests.plugins.wire import failure_of, text_of

# -- models ----------------------------------------------------------------------------------------


@aio
async def test_models_have_what_the_route_says_and_others_its_defaults() -> None:
    route = usual(
        models=[{"id": "big", "name": "Big", "contextWindow": 10, "maxTokens": 5, "description": "d"}],
        defaultContextWindow=99,
    )
    async with routes({ROUTE: route}) as run:
        (big,) = run.llm.list_models(ROUTE)
        other = run.llm.resolve_model_info(ROUTE, "else")

    assert (big.name, big.description, big.context_window, big.default_max_tokens) == ("Big", "d", 10, 5)
    assert (other.name, other.context_window, other.default_max_tokens) == ("else", 99, None)
    assert (other.input_modalities, other.reasoning, other.price) == (("text",), None, None)


OPENAI, GATEWAY = "https://api.openai.com/v1", "https://gateway.example/v1"


class Known:
    """A catalogue of the test's own."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        said = {"openai-compatible/said": ModelFacts(context_window=7, price=Price(input=9, output=9))}
        return said.get(f"{provider}/{model}")

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        return ModelFacts(name=f"{vendor}'s", context_window=1000, price=Price(input=1, output=2))


@pytest.mark.parametrize(
    ("route", "model", "expected"),
    [
        (usual(OPENAI), "x", ("openai's", 1000, 1)),
        (usual(OPENAI), "said", ("openai's", 7, 9)),
        (
            usual(OPENAI, models=[{"id": "x", "contextWindow": 5}]),
            "x",
            ("openai's", 5, 1),
        ),
        (usual(GATEWAY, vendor="mistral"), "x", ("mistral's", 1000, None)),
        (usual(GATEWAY), "x", ("x", 262_144, None)),
        (usual(GATEWAY), "said", ("said", 7, 9)),
        (usual(), "x", ("x", 262_144, None)),
    ],
)
@aio
async def test_settings_come_before_the_route_and_the_route_before_the_shipped_catalogue(
    route: dict[str, Any], model: str, expected: tuple[str, int, float | None]
) -> None:
    async with routes({ROUTE: route}) as run:
        run.ctx.provide(MODEL_CATALOGUE, Known())
        info = run.llm.resolve_model_info(ROUTE, model)

    assert (info.name, info.context_window, info.price and info.price.input) == expected


@aio
async def test_each_model_is_asked_in_its_own_dialect_within_one_conversation() -> None:
    route = {
        "compat": {"reasoningReplay": "none", "effortMap": {"low": "low"}},
        "reasoningEffort": "low",
        "defaultMaxTokens": 50,
        "models": [
            {
                "id": "thinker",
                "maxTokens": 9,
                "reasoningEffort": "deep",
                "compat": {
                    "reasoningReplay": "reasoning",
                    "maxTokensField": "max_completion_tokens",
                    "effortMap": {"off": "none", "deep": "high"},
                },
            }
        ],
    }
    thought = assistant_message(
        [{"type": "reasoning", "text": "why"}, {"type": "text", "text": "so"}], provider=ROUTE, model="m"
    )
    memo = Memo()
    async with against("success", repeat_last=True, route=route) as (run, server):
        for model in ("plain", "thinker", "plain"):
            await run.ask(user_message("a"), thought, user_message("b"), model=model, memo=memo)
        plain, thinker, again = (request.body for request in server.requests)

        assert plain == again
        assert (plain["max_tokens"], plain["reasoning_effort"]) == (50, "low")
        assert plain["messages"][1] == {"role": "assistant", "content": "so"}
        assert (thinker["max_completion_tokens"], thinker["reasoning_effort"]) == (9, "high")
        assert thinker["messages"][1] == {"role": "assistant", "content": "so", "reasoning": "why"}


@pytest.mark.parametrize(
    ("compat", "member"),
    [({}, "max_completion_tokens"), ({"maxTokensField": "max_tokens"}, "max_tokens")],
)
@aio
async def test_at_openais_own_endpoint_the_new_name_is_meant_unless_the_route_says_another(
    compat: dict[str, Any], member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = {"defaultMaxTokens": 50, "compat": compat}
    async with against("success", repeat_last=True, route=route) as (run, server):
        await run.ask(model="m")
        monkeypatch.setattr(openai, "OPENAI_HOST", server.base_url.split("/")[2])
        await run.ask(model="another")
        elsewhere, own = (request.body for request in server.requests)

        assert elsewhere["max_tokens"] == own[member] == 50


@aio
async def test_a_refusal_of_a_members_name_says_the_key_of_the_route() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model."
    refusal = {"status": 400, "body": {"error": {"message": f"{said} Use 'max_completion_tokens'."}}}
    async with against(refusal) as (run, server):
        failure = failure_of(await run.ask(model="m"))

        assert failure["code"] == "INVALID_REQUEST"
        assert failure["message"].startswith(said)
        assert f"(for route {ROUTE}, set compat.maxTokensField: max_completion_tokens)" in failure["message"]
        assert len(server.requests) == 1  # no list of models is asked for


@aio
async def test_an_effort_is_sent_as_the_server_spells_it_and_another_is_refused() -> None:
    route = {"compat": {"effortMap": {"off": "none", "very-high": "xhigh"}}}
    async with against("success", repeat_last=True, route=route) as (run, server):
        await run.ask()
        await run.ask(config={"reasoning_effort": "very-high"})
        await run.ask(config={"reasoning_effort": "off"})
        await run.ask(purpose="session-title", config={"reasoning_effort": "very-high"})
        error = await refused(run, config={"reasoning_effort": "low"})
        info = run.llm.resolve_model_info(ROUTE, "m")

        efforts = [request.body.get("reasoning_effort") for request in server.requests]
        assert efforts == [None, "xhigh", "none", "none"]
        assert error.code == "UNSUPPORTED_REASONING_EFFORT"
        assert "offers: off, very-high" in error.message
        assert info.reasoning is not None
        assert [(effort.id, effort.name) for effort in info.reasoning.efforts] == [
            ("off", "Off"),
            ("very-high", "Very High"),
        ]


@aio
async def test_a_title_is_asked_for_without_effort_where_thinking_cannot_be_switched() -> None:
    route = {"compat": {"effortMap": {"low": "low"}}, "reasoningEffort": "low"}
    async with against("success", route=route) as (run, server):
        await run.ask(purpose="session-title")
        assert "reasoning_effort" not in server.requests[0].body


@pytest.mark.parametrize(
    ("compat", "rules"),
    [
        ({"streamOptions": False}, {"refuses": ("stream_options",)}),
        ({"toolName": True}, {"demands_tool_name": True}),
        ({"assistantAfterTool": True}, {"demands_assistant_after_tool": True}),
        ({"reasoningReplay": "none"}, {"refuses": ("messages.reasoning_content", "messages.reasoning")}),
        ({"reasoningReplay": "text"}, {"refuses": ("messages.reasoning_content", "messages.reasoning")}),
        ({"reasoningReplay": "reasoning"}, {"refuses": ("messages.reasoning_content",)}),
        ({"systemRole": "developer"}, {"refuses": ("role:system",)}),
        ({}, {"refuses": ("role:developer",), "demands_reasoning": True}),
    ],
)
@aio
async def test_a_server_that_insists_on_its_ways_takes_what_the_dialect_makes(
    compat: dict[str, Any], rules: dict[str, Any]
) -> None:
    history: list[Message] = [user_message("go")]
    script = [{"reasoning": ["look ", "first"], "tools": [{"id": "c1", "name": "read", "args": ["{}"]}]}]
    async with against(*script, "success", "success", route={"compat": compat}, rules=Rules(**rules)) as (
        run,
        server,
    ):
        first = await run.ask(*history, system="s")
        blocks = [chunk.block for chunk in first if isinstance(chunk, BlockEnd)]
        history += [
            assistant_message(blocks, provider=ROUTE, model="gpt-x"),
            tool_result_message("c1", [{"type": "text", "text": "r"}]),
        ]
        assert text_of(await run.ask(*history, system="s")) == SUCCESS
        assert text_of(await run.ask(*history, user_message("and?"), system="s")) == SUCCESS
        assert server.refused == []


# -- models that are not there ---------------------------------------------------------------------


@aio
async def test_a_strict_route_refuses_other_models_without_asking() -> None:
    route = {"strictModels": True, "models": [{"id": "gpt-5-mini"}, {"id": "o3"}]}
    async with against(route=route) as (run, server):
        error = await refused(run, model="gpt-5-mni")
        assert error.code == "UNKNOWN_MODEL"
        assert "route openai-compatible has no model 'gpt-5-mni'; nearest: gpt-5-mini;" in error.message
        assert text_of(await run.ask(model="o3")) == SUCCESS
        assert (len(server.requests), server.listings) == (1, 0)


NO_MODEL = {"status": 404, "body": {"error": {"message": "The model `gpt-x` does not exist"}}}


@aio
async def test_a_server_without_the_model_is_asked_once_for_those_it_has() -> None:
    async with against(NO_MODEL, repeat_last=True, models=("gpt-5", "gpt-x1", "o3")) as (run, server):
        failures = [failure_of(await run.ask()) for _ in range(2)]

        assert failures[0] == failures[1]
        assert (failures[0]["code"], failures[0]["status"]) == ("HTTP_404", 404)
        assert (
            "has no model 'gpt-x': The model `gpt-x` does not exist; nearest: gpt-x1"
            in failures[0]["message"]
        )
        assert "agent-default-model" in failures[0]["message"]
        assert server.listings == 1


@aio
async def test_a_server_that_lists_nothing_leaves_the_message_without_names() -> None:
    async with against(NO_MODEL, models=()) as (run, _):
        message = failure_of(await run.ask())["message"]
    assert "has no model 'gpt-x': The model `gpt-x` does not exist; the model is chosen by" in message


@aio
async def test_the_models_a_server_lists_can_be_asked_for() -> None:
    async with against(models=("a", "b", "a")) as (run, server):
        found = await run.llm.discover_models("llm-openai", ROUTE)
        again = await run.llm.discover_models("llm-openai", ROUTE)

        assert [model.id for model in found] == ["a", "b"]
        assert found == again
        assert server.listings == 1
        (listed,) = run.llm.list_configurable_providers()
        assert (listed.provider, listed.settings_ns) == (ROUTE, "llm-openai")
        assert listed.settings_path == ("providers", ROUTE)


@aio
async def test_a_server_that_cannot_list_says_so_without_the_key() -> None:
    async with MockModelServer(api_key="other") as server, routes({ROUTE: usual(server.base_url)}) as run:
        with pytest.raises(LlmError) as caught:
            await run.llm.discover_models("llm-openai", ROUTE)
    assert caught.value.code == "NO_MODEL_LIST"
    assert "HTTP 401" in caught.value.message
    with pytest.raises(LlmError, match="cannot be asked"):
        async with routes({ROUTE: usual("http://127.0.0.1:9/v1")}) as run:
            await run.llm.discover_models("llm-openai", ROUTE)
