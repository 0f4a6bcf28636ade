"""Routes that can be set up, and who lists the models of a section's routes (`spec/llm.md` §3)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.kernel import Context
from dsh.llm.adapter import ModelInfo
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM, LLM_ADAPTERS_UPDATED, LlmRegistry
from dsh.plugins import llm
from tests.aio import aio


@asynccontextmanager
async def registry() -> AsyncIterator[tuple[Context, LlmRegistry]]:
    ctx = Context()
    try:
        await ctx.plugin(llm, {})
        yield ctx, ctx.use(LLM)
    finally:
        await ctx.dispose()


def entry(provider: str, name: str = "Name", ns: str = "llm-x") -> ConfigurableProvider:
    return ConfigurableProvider(provider=provider, display_name=name, settings_ns=ns)


def info(model: str) -> ModelInfo:
    return ModelInfo(provider="p", id=model, name=model or "-")


@aio
async def test_routes_are_listed_replaced_and_gone_with_their_registration() -> None:
    async with registry() as (ctx, found):
        told: list[int] = []
        ctx.on(LLM_ADAPTERS_UPDATED, lambda _: told.append(len(found.list_configurable_providers())))
        first = found.register_configurable_providers([entry("a"), entry("b")])
        second = found.register_configurable_providers([entry("c")])
        first.replace([entry("b"), entry("d")])
        assert [one.provider for one in found.list_configurable_providers()] == ["b", "d", "c"]
        first.replace([entry("b"), entry("d")])
        second.dispose()
        second.dispose()
        first.replace([])
        assert found.list_configurable_providers() == ()
        assert told == [2, 3, 3, 2, 0]
        with pytest.raises(LlmError) as caught:
            second.replace([])
        assert caught.value.code == "REGISTRATION_DISPOSED"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([entry("a")], "DUPLICATE_DIRECTORY"),
        ([entry("b"), entry("b")], "DUPLICATE_DIRECTORY"),
        ([entry("b"), entry(" ")], "INVALID_DIRECTORY"),
        ([entry("b", name="")], "INVALID_DIRECTORY"),
        ([entry("b", ns=" ")], "INVALID_DIRECTORY"),
    ],
)
@aio
async def test_a_list_is_taken_as_a_whole_or_not_at_all(
    entries: Sequence[ConfigurableProvider], code: str
) -> None:
    async with registry() as (_, found):
        found.register_configurable_providers([entry("a")])
        with pytest.raises(LlmError) as caught:
            found.register_configurable_providers(entries)
        assert caught.value.code == code
        assert [one.provider for one in found.list_configurable_providers()] == ["a"]


@aio
async def test_both_registrations_go_with_the_plugin_that_made_them() -> None:
    async def discover(provider: str) -> list[ModelInfo]:
        return []

    def row(inner: Context) -> None:
        inner.use(LLM).register_configurable_providers([entry("a")])
        inner.use(LLM).register_model_discovery("llm-x", discover)

    async with registry() as (ctx, found):
        fiber = ctx.plugin(row, inject=[LLM])
        await fiber
        assert await found.discover_models("llm-x", "a") == ()
        await fiber.dispose()
        assert found.list_configurable_providers() == ()
        with pytest.raises(LlmError) as caught:
            await found.discover_models("llm-x", "a")
        assert caught.value.code == "NO_DISCOVERY"


@aio
async def test_models_without_an_id_and_repeated_ones_are_left_out() -> None:
    async def discover(provider: str) -> list[ModelInfo]:
        return [info("a"), info(""), info("b"), info("a"), info(" ")]

    async with registry() as (_, found):
        found.register_model_discovery("llm-x", discover)
        assert [model.id for model in await found.discover_models("llm-x", "p")] == ["a", "b"]


@pytest.mark.parametrize("models", [None, 7, "m", [None], [{"id": "m"}]])
@aio
async def test_a_discovery_that_finds_no_models_but_nonsense_is_refused(models: Any) -> None:
    async def discover(provider: str) -> Any:
        return models

    async with registry() as (_, found):
        found.register_model_discovery("llm-x", discover)
        with pytest.raises(LlmError) as caught:
            await found.discover_models("llm-x", "p")
        assert caught.value.code == "INVALID_DISCOVERY"


@aio
async def test_one_section_has_one_discovery_and_needs_a_name() -> None:
    async def discover(provider: str) -> list[ModelInfo]:
        raise LlmError.of("NO_MODEL_LIST", f"{provider} lists none")

    async with registry() as (_, found):
        found.register_model_discovery("llm-x", discover)
        for namespace, code in [("llm-x", "DUPLICATE_DISCOVERY"), (" ", "INVALID_DISCOVERY")]:
            with pytest.raises(LlmError) as caught:
                found.register_model_discovery(namespace, discover)
            assert caught.value.code == code
        with pytest.raises(LlmError, match="p lists none"):
            await found.discover_models("llm-x", "p")
        with pytest.raises(LlmError, match="sections: llm-x"):
            await found.discover_models("llm-y", "p")
