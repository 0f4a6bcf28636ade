"""The registry: routes, prepared calls, defaults."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import CancelToken, Context
from dsh.llm.adapter import EffortInfo, Generation, LlmAdapter, ReasoningInfo, RetryPolicy
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM, LLM_ADAPTERS_UPDATED, LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.session.chunk import Chunk
from tests.aio import aio
from tests.llm.registry_kit import REPLY, Adapter, Running, code_of, config, drained, failure_in, request


@aio
async def test_a_registration_is_all_or_nothing() -> None:
    async with Running() as run:
        run.llm.register_adapter(["a"], Adapter())

        assert code_of(lambda: run.llm.register_adapter([], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", ""], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", "b"], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", " "], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", "a"], Adapter())) == "DUPLICATE_ADAPTER"
        nameless = Adapter()
        nameless.name = " "
        assert code_of(lambda: run.llm.register_adapter(["b"], nameless)) == "INVALID_ADAPTER"
        assert [info.provider for info in run.llm.list_providers()] == ["a"]


@aio
async def test_a_handle_swaps_routes_at_once_and_ends_for_good() -> None:
    async with Running() as run:
        updates: list[int] = []
        run.ctx.on(LLM_ADAPTERS_UPDATED, lambda _: updates.append(len(run.llm.list_providers())))
        run.llm.register_adapter(["taken"], Adapter())
        handle = run.llm.register_adapter(["a", "b"], Adapter())
        handle.replace(["b", "c"])
        assert [info.provider for info in run.llm.list_providers()] == ["taken", "b", "c"]

        assert code_of(lambda: handle.replace(["d", "taken"])) == "DUPLICATE_ADAPTER"
        assert [info.provider for info in run.llm.list_providers()] == ["taken", "b", "c"]
        handle.replace([])
        handle.dispose()
        handle.dispose()

        assert code_of(lambda: handle.replace(["a"])) == "REGISTRATION_DISPOSED"
        assert updates == [1, 3, 3, 1, 1]


@aio
async def test_routes_go_with_the_plugin_that_registered_them() -> None:
    async with Running() as run:

        def row(ctx: Context) -> None:
            ctx.use(LLM).register_adapter(["mine"], Adapter())

        fiber = run.ctx.plugin(row, inject=[LLM])
        await fiber
        assert [info.provider for info in run.llm.list_providers()] == ["mine"]

        await fiber.dispose()

        assert run.llm.list_providers() == ()


@aio
async def test_who_is_gone_registers_nothing_any_more() -> None:
    """A row may hold its view of the registry across an await in which it was unmounted."""
    held: list[LlmRegistry] = []

    def row(ctx: Context) -> None:
        held.append(ctx.use(LLM))

    async def discover(provider: str) -> tuple[()]:
        return ()

    entry = ConfigurableProvider(provider="late", display_name="Late", settings_ns="llm-x")
    late: list[Callable[[], object]] = [
        lambda: held[0].register_adapter(["late"], Adapter()),
        lambda: held[0].register_configurable_providers([entry]),
        lambda: held[0].register_model_discovery("llm-x", discover),
    ]
    async with Running() as run:
        fiber = run.ctx.plugin(row, inject=[LLM])
        await fiber
        await fiber.dispose()
        for register in late:
            with pytest.raises(KernelError):
                register()

        assert run.llm.list_providers() == ()
        assert run.llm.list_configurable_providers() == ()
        with pytest.raises(LlmError) as caught:
            await run.llm.discover_models("llm-x", "late")
        assert caught.value.code == "NO_DISCOVERY"


@aio
async def test_an_unknown_route_names_the_known_ones() -> None:
    async with Running() as run:
        run.llm.register_adapter(["a", "b"], Adapter())
        with pytest.raises(LlmError, match="routes: a, b") as caught:
            await run.llm.prepare_call(config(provider="x"))
        assert caught.value.code == "NO_ADAPTER"


@aio
async def test_a_catalogue_with_bad_or_repeated_rows_is_refused() -> None:
    async with Running() as run:
        run.llm.register_adapter(["ok"], Adapter())
        run.llm.register_adapter(["twice"], Adapter(models=("m", "m")))
        run.llm.register_adapter(["empty"], Adapter(models=("",)))

        assert [info.id for info in run.llm.list_models("ok")] == ["m"]
        assert run.llm.resolve_model_info("ok", "unlisted").id == "unlisted"
        assert code_of(lambda: run.llm.list_models("twice")) == "INVALID_CATALOG"
        assert code_of(lambda: run.llm.list_models("empty")) == "INVALID_CATALOG"


@aio
async def test_defaults_are_filled_in_and_marked() -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(context_window=1000))
        filled = await run.llm.prepare_call(config())
        explicit = await run.llm.prepare_call(config(reasoning_effort="low", max_tokens=7))

        assert filled.config == config(reasoning_effort="high", max_tokens=100)
        assert filled.adapter_defaults == {"reasoningEffort": True, "maxTokens": True}
        assert (filled.context_window, filled.retry_policy) == (1000, RetryPolicy())
        assert explicit.config == config(reasoning_effort="low", max_tokens=7)
        assert explicit.adapter_defaults == {}


@aio
async def test_a_model_without_a_default_effort_is_asked_with_none() -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(reasoning=ReasoningInfo((EffortInfo("low", "Low"),))))
        call = await run.llm.prepare_call(config(max_tokens=7))

        assert (call.config, call.adapter_defaults) == (config(max_tokens=7), {})


@pytest.mark.parametrize(
    ("facts", "asked", "code"),
    [
        ({"reasoning": None}, "high", "UNSUPPORTED_REASONING_EFFORT"),
        ({}, "max", "UNSUPPORTED_REASONING_EFFORT"),
        ({"id": "other"}, None, "INVALID_MODEL_INFO"),
        ({"provider": "other"}, None, "INVALID_MODEL_INFO"),
        ({"name": " "}, None, "INVALID_MODEL_INFO"),
        ({"name": None}, None, "INVALID_MODEL_INFO"),
        ({"input_modalities": ("text", "")}, None, "INVALID_MODEL_INFO"),
        ({"context_window": "big"}, None, "INVALID_MODEL_INFO"),
        ({"default_max_tokens": 1.5}, None, "INVALID_MODEL_INFO"),
        ({"price": 3}, None, "INVALID_MODEL_INFO"),
        ({"context_window": 0}, None, "INVALID_MODEL_CONTEXT"),
        ({"context_window": 2**53}, None, "INVALID_MODEL_CONTEXT"),
        ({"default_max_tokens": 0}, None, "INVALID_MODEL_MAX_TOKENS"),
        ({"default_max_tokens": 2**53}, None, "INVALID_MODEL_MAX_TOKENS"),
        ({"reasoning": ReasoningInfo(())}, None, "INVALID_MODEL_REASONING"),
        ({"reasoning": ReasoningInfo((EffortInfo("", "A"),))}, None, "INVALID_MODEL_REASONING"),
        ({"reasoning": ReasoningInfo((EffortInfo("a", "A"),) * 2)}, None, "INVALID_MODEL_REASONING"),
        ({"reasoning": ReasoningInfo((EffortInfo("a", "A"),), "b")}, None, "INVALID_MODEL_REASONING"),
    ],
)
@aio
async def test_a_call_that_cannot_be_prepared_says_why(
    facts: dict[str, Any], asked: str | None, code: str
) -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(**facts))
        with pytest.raises(LlmError) as caught:
            await run.llm.prepare_call(config(reasoning_effort=asked))
        assert caught.value.code == code

        chunks = await drained(run.llm.stream(request(config(reasoning_effort=asked))))
        assert failure_in(chunks)["failure"]["code"] == code


class Odd(LlmAdapter):
    """Says of itself and its models whatever it is given."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        raise NotImplementedError

    def provider_info(self, provider: str) -> Any:
        return self.said.get("provider_info", super().provider_info(provider))

    def retry_policy(self, provider: str) -> Any:
        return self.said.get("retry_policy", super().retry_policy(provider))

    def list_models(self, provider: str) -> Any:
        return self.said.get("list_models", super().list_models(provider))

    def resolve_model(self, provider: str, model: str) -> Any:
        return self.said.get("resolve_model", super().resolve_model(provider, model))

    async def prepare(self, provider: str, model: str) -> Any:
        return self.said.get("prepare", await super().prepare(provider, model))


@pytest.mark.parametrize("said", [{"provider_info": None}, {"provider_info": {}}, {"retry_policy": None}])
@aio
async def test_an_adapter_that_does_not_say_what_it_is_gets_no_route(said: dict[str, Any]) -> None:
    async with Running() as run:
        assert code_of(lambda: run.llm.register_adapter(["p"], Odd(**said))) == "INVALID_ADAPTER"
        assert run.llm.list_providers() == ()


@pytest.mark.parametrize("models", [None, 7, "m", [None], [{"id": "m"}]])
@aio
async def test_a_list_of_models_that_is_none_is_refused(models: object) -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Odd(list_models=models))
        assert code_of(lambda: run.llm.list_models("p")) == "INVALID_CATALOG"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"prepare": None}, "INVALID_ADAPTER"),
        ({"resolve_model": None}, "INVALID_MODEL_INFO"),
        ({"resolve_model": {"provider": "p", "id": "m", "name": "m"}}, "INVALID_MODEL_INFO"),
    ],
)
@aio
async def test_a_call_of_an_adapter_that_prepares_nonsense_says_so(said: dict[str, Any], code: str) -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Odd(**said))
        with pytest.raises(LlmError) as caught:
            await run.llm.prepare_call(config())
        assert caught.value.code == code


@aio
async def test_a_prepared_call_is_used_once_and_for_its_own_config() -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter())
        call = await run.llm.prepare_call(config())
        other = request(config(max_tokens=1))
        assert code_of(lambda: call.stream(other)) == "INVALID_PREPARED_CALL"

        assert await drained(call.stream(request(call.config))) == list(REPLY)

        assert code_of(lambda: call.stream(request(call.config))) == "INVALID_PREPARED_CALL"


@aio
async def test_a_change_between_preparing_and_calling_mixes_nothing() -> None:
    async with Running() as run:
        adapter = Adapter()
        handle = run.llm.register_adapter(["p"], adapter)
        played: list[str] = []

        class Next(Adapter):
            async def prepare(self, provider: str, model: str) -> Generation:
                async def stream(given: LlmRequest) -> AsyncIterator[Chunk]:
                    played.append("first generation")
                    for chunk in REPLY:
                        yield chunk

                return Generation(self.resolve_model(provider, model), stream)

        handle.dispose()
        handle = run.llm.register_adapter(["p"], Next())
        call = await run.llm.prepare_call(config())
        handle.dispose()
        run.llm.register_adapter(["p"], Adapter(LlmError.of("SERVER", "new one")))

        assert await drained(call.stream(request(call.config))) == list(REPLY)
        assert played == ["first generation"]


@aio
async def test_the_retry_policy_is_the_one_at_registration() -> None:
    async with Running() as run:
        adapter = Adapter()
        handle = run.llm.register_adapter(["p"], adapter)
        adapter.policy = RetryPolicy(max_retries=1)
        call = await run.llm.prepare_call(config())
        handle.replace(["p"])
        again = await run.llm.prepare_call(config())
        handle.dispose()

        assert call.retry_policy.max_retries == 5
        assert again.retry_policy.max_retries == 1


@aio
async def test_preparing_stops_with_its_signal() -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter())
        signal = CancelToken()
        signal.cancel("enough")
        with pytest.raises(Exception, match="cancelled"):
            await run.llm.prepare_call(config(), signal)
