"""What tokens cost on each route: the settings before the row, the row before the catalogue that ships."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import Context
from dsh.llm.registry import LLM, LlmRegistry
from dsh.plugins import llm, llm_anthropic, llm_deepseek, llm_openai, model_catalogue
from tests.aio import aio

SAID = {"input": 7.0, "output": 8.0}
OPENAI, CLAUDE, DEEPSEEK = "openai-compatible", "anthropic", "deepseek-official"
GATEWAY = "https://gateway.example/v1"


@asynccontextmanager
async def composed(
    *,
    openai: Mapping[str, Any] | None = None,
    claude: Mapping[str, Any] | None = None,
    deepseek: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
) -> AsyncIterator[LlmRegistry]:
    """The three rows of providers beside the catalogue; nothing is asked of any server."""
    ctx = Context()
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment({}, []))
        await ctx.plugin(llm, {})
        await ctx.plugin(model_catalogue, {"models": models or {}})
        own = {"apiKeyEnv": "K", "baseURL": "https://api.openai.com/v1", **(openai or {})}
        await ctx.plugin(llm_openai, {"providers": {OPENAI: own}})
        await ctx.plugin(llm_anthropic, {"providers": {CLAUDE: {"apiKeyEnv": "K", **(claude or {})}}})
        await ctx.plugin(llm_deepseek, deepseek or {})
        yield ctx.use(LLM)
    finally:
        await ctx.dispose()


def input_price(registry: LlmRegistry, provider: str, model: str) -> float | None:
    price = registry.resolve_model_info(provider, model).price
    return None if price is None else price.input


@aio
async def test_at_the_vendors_own_endpoint_the_shipped_price_counts() -> None:
    async with composed() as registry:
        assert input_price(registry, OPENAI, "gpt-5-mini") == 0.25
        assert input_price(registry, OPENAI, "gpt-5-mini-2025-08-07") == 0.25
        assert input_price(registry, CLAUDE, "claude-opus-5-5") == 4
        assert registry.resolve_model_info(CLAUDE, "claude-opus-5-5").context_window == 1_000_000
        assert input_price(registry, OPENAI, "model-of-mine") is None


@aio
async def test_elsewhere_it_does_not() -> None:
    async with composed(
        openai={"baseURL": GATEWAY, "vendor": "openai"}, claude={"baseURL": GATEWAY}
    ) as registry:
        assert input_price(registry, OPENAI, "gpt-5-mini") is None
        assert registry.resolve_model_info(OPENAI, "gpt-5-mini").context_window == 400_000
        assert input_price(registry, CLAUDE, "claude-opus-5-5") is None


@aio
async def test_what_depends_on_the_hour_has_no_price_until_somebody_says_one() -> None:
    async with composed() as registry:
        assert input_price(registry, DEEPSEEK, "deepseek-v4-flash") is None
        assert input_price(registry, DEEPSEEK, "deepseek-flash") is None
    async with composed(models={f"{DEEPSEEK}/deepseek-v4-flash": {"price": SAID}}) as registry:
        assert input_price(registry, DEEPSEEK, "deepseek-v4-flash") == 7


@pytest.mark.parametrize("provider", [OPENAI, CLAUDE, DEEPSEEK])
@aio
async def test_the_rows_list_of_models_may_say_prices_and_the_settings_outrank_it(provider: str) -> None:
    row = {"models": [{"id": "m", "price": SAID}]}
    name = {OPENAI: "openai", CLAUDE: "claude", DEEPSEEK: "deepseek"}[provider]
    rows: dict[str, Any] = {name: row}
    async with composed(**rows) as registry:
        assert input_price(registry, provider, "m") == 7
    async with composed(**rows, models={f"{provider}/m": {"price": {"input": 1, "output": 1}}}) as registry:
        assert input_price(registry, provider, "m") == 1


@aio
async def test_a_deepseek_model_that_only_the_catalogue_knows_has_its_limits() -> None:
    async with composed() as registry:
        info = registry.resolve_model_info(DEEPSEEK, "deepseek-flash")
        other = registry.resolve_model_info(DEEPSEEK, "unheard-of")
    assert (info.name, info.context_window, info.default_max_tokens) == (
        "DeepSeek-V4.1-Flash",
        1_000_000,
        256_000,
    )
    assert (other.name, other.context_window, other.default_max_tokens) == ("unheard-of", 1_000_000, 256_000)


@aio
async def test_no_default_is_longer_than_what_the_model_can_say() -> None:
    async with composed(models={f"{DEEPSEEK}/small": {"maxOutputTokens": 8192}}) as registry:
        assert registry.resolve_model_info(DEEPSEEK, "small").default_max_tokens == 8192
