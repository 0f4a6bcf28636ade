"""The registry: routes, prepared calls, defaults, and failures that arrive as a finish."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dsh.errors import DshError
from dsh.kernel import CancelToken, Context
from dsh.llm.adapter import (
    EffortInfo,
    Generation,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ReasoningInfo,
    RetryPolicy,
)
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo
from dsh.llm.registry import LLM, LLM_ADAPTERS_UPDATED, LLM_STREAM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import llm
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta
from dsh.session.message import user_message
from tests.aio import aio
from tests.llm.build import assistant, text

EFFORTS = ReasoningInfo((EffortInfo("low", "Low"), EffortInfo("high", "High")), "high")
REPLY: tuple[Chunk, ...] = (
    BlockStart(0, "text"),
    TextDelta(0, "hi"),
    BlockEnd(0, {"type": "text", "text": "hi"}),
    Finish({"kind": "stop"}),
)


class Adapter(LlmAdapter):
    """Plays chunks or raises; its facts can be changed."""

    def __init__(self, *script: Chunk | Exception, **facts: Any) -> None:
        self.script = script or REPLY
        self.facts: dict[str, Any] = {"reasoning": EFFORTS, "default_max_tokens": 100, **facts}
        self.policy = RetryPolicy()
        self.name = "Test"
        self.seen: list[LlmRequest] = []
        self.closed = 0

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, self.name)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(self.resolve_model(provider, name) for name in self.facts.get("models", ("m",)))

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        facts = {key: value for key, value in self.facts.items() if key != "models"}
        return ModelInfo(**{"provider": provider, "id": model, "name": model, **facts})

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        self.seen.append(request)
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1


class Running:
    """A root with the `llm` row."""

    def __init__(self) -> None:
        self.ctx = Context()

    async def __aenter__(self) -> "Running":
        await self.ctx.plugin(llm, {})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ctx.dispose()

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)


def config(**changes: Any) -> LlmCallConfig:
    return LlmCallConfig(**{"provider": "p", "model": "m", **changes})


def request(call: LlmCallConfig, *messages: Any, **changes: Any) -> LlmRequest:
    return LlmRequest(config=call, messages=messages or (user_message("hi"),), **changes)


async def drained(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in chunks]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LlmError) as caught:
        call()
    return caught.value.code


def failure_in(chunks: list[Chunk]) -> Any:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason


# -- routes ----------------------------------------------------------------------------------------


@aio
async def test_a_registration_is_all_or_nothing() -> None:
    async with Running() as run:
        run.llm.register_adapter(["a"], Adapter())

        assert code_of(lambda: run.llm.register_adapter([], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", ""], Adapter())) == "INVALID_ADAPTER"
        assert code_of(lambda: run.llm.register_adapter(["b", "b"], Adapter())) == "INVALID_ADAPTER"
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


# -- prepared calls --------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("facts", "asked", "code"),
    [
        ({"reasoning": None}, "high", "UNSUPPORTED_REASONING_EFFORT"),
        ({}, "max", "UNSUPPORTED_REASONING_EFFORT"),
        ({"id": "other"}, None, "INVALID_MODEL_INFO"),
        ({"provider": "other"}, None, "INVALID_MODEL_INFO"),
        ({"name": " "}, None, "INVALID_MODEL_INFO"),
        ({"context_window": 0}, None, "INVALID_MODEL_CONTEXT"),
        ({"context_window": 2**53}, None, "INVALID_MODEL_CONTEXT"),
        ({"default_max_tokens": 0}, None, "INVALID_MODEL_MAX_TOKENS"),
        ({"default_max_tokens": 2**53}, None, "INVALID_MODEL_MAX_TOKENS"),
        ({"reasoning": ReasoningInfo(())}, None, "INVALID_MODEL_REASONING"),
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


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (LlmError.of("SERVER", "boom", status=500), {"message": "boom", "code": "SERVER", "status": 500}),
        (DshError("mine", code="OWN"), {"message": "mine", "code": "OWN"}),
        (ValueError("odd \ud83d"), {"message": "odd \ufffd", "code": "UNKNOWN"}),
        (ValueError(), {"message": "ValueError", "code": "UNKNOWN"}),
    ],
)
@aio
async def test_what_an_adapter_raises_becomes_one_finish(error: Exception, failure: Any) -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(*REPLY[:2], error))
        call = await run.llm.prepare_call(config())
        chunks = await drained(call.stream(request(call.config)))

        assert chunks == [*REPLY[:2], Finish({"kind": "error", "failure": failure})]


@aio
async def test_a_raise_of_a_cancelled_call_is_aborted_and_keeps_its_code() -> None:
    async with Running() as run:
        signal = CancelToken()
        signal.cancel("enough")
        run.llm.register_adapter(["p"], Adapter(LlmError.of("TIMEOUT", "slow")))
        run.llm.register_adapter(["q"], Adapter(LlmError.of("ABORTED", "gone")))
        timed_out = await drained(run.llm.stream(request(config(), signal=None)))
        aborted = await drained(run.llm.stream(request(config(provider="q"))))

        assert failure_in(timed_out)["kind"] == "error"
        assert failure_in(aborted) == {"kind": "aborted", "failure": {"message": "gone", "code": "ABORTED"}}
        call = await run.llm.prepare_call(config())
        chunks = await drained(call.stream(request(call.config, signal=signal)))
        assert failure_in(chunks) == {"kind": "aborted", "failure": {"message": "slow", "code": "TIMEOUT"}}


@aio
async def test_nothing_follows_a_finish() -> None:
    async with Running() as run:
        adapter = Adapter(*REPLY, TextDelta(0, "late"))
        run.llm.register_adapter(["p"], adapter)

        assert await drained(run.llm.stream(request(config()))) == list(REPLY)
        assert adapter.closed == 1


@aio
async def test_a_consumer_that_stops_closes_the_adapter() -> None:
    async with Running() as run:
        adapter = Adapter()
        run.llm.register_adapter(["p"], adapter)
        call = await run.llm.prepare_call(config())
        chunks = call.stream(request(call.config))
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]

        assert adapter.closed == 1


@aio
async def test_a_listener_may_serve_a_route_that_has_no_adapter() -> None:
    async with Running() as run:

        async def serve(
            given: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]
        ) -> AsyncIterator[Chunk]:
            for chunk in REPLY:
                yield chunk

        assert failure_in(await drained(run.llm.stream(request(config()))))["failure"]["code"] == "NO_ADAPTER"
        run.ctx.on(LLM_STREAM, serve)
        assert await drained(run.llm.stream(request(config()))) == list(REPLY)


@aio
async def test_what_a_listener_raises_is_raised() -> None:
    async with Running() as run:

        async def fail(
            given: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]
        ) -> AsyncIterator[Chunk]:
            async for chunk in following():
                yield chunk
                raise RuntimeError("listener")

        run.llm.register_adapter(["p"], Adapter())
        run.ctx.on(LLM_STREAM, fail)
        with pytest.raises(RuntimeError, match="listener"):
            await drained(run.llm.stream(request(config())))


@aio
async def test_the_grammar_is_on_and_a_broken_stream_is_raised() -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(TextDelta(0, "a")))
        with pytest.raises(DshError) as caught:
            await drained(run.llm.stream(request(config())))
        assert caught.value.code == "INVARIANT"


@aio
async def test_replay_state_survives_only_with_the_adapter_that_owns_it() -> None:
    async with Running() as run:
        ours, theirs = Adapter(), Adapter()
        run.llm.register_adapter(["p", "p2"], ours)
        run.llm.register_adapter(["q"], theirs)

        def reply_of(provider: str) -> Any:
            message = assistant(text("a"))
            source = {"kind": "model", "provider": provider, "model": "m", "replayState": {"response": 1}}
            return {**message, "source": source}

        await drained(run.llm.stream(request(config(), reply_of("p2"), reply_of("q"), reply_of("gone"))))

        assert ["replayState" in message["source"] for message in ours.seen[0].messages] == [
            True,
            False,
            False,
        ]


@aio
async def test_what_a_conversation_remembers_holds_only_for_the_routes_there_are() -> None:
    """Another adapter takes over the provider of an old reply: its state is foreign from then on."""
    async with Running() as run:
        ours = Adapter()
        run.llm.register_adapter(["p"], ours)
        second = run.llm.register_adapter(["q"], ours)
        source = {"kind": "model", "provider": "q", "model": "m", "replayState": {"response": 1}}
        reply: Any = {**assistant(text("a")), "source": source}
        memo = Memo()
        for _ in range(2):
            await drained(run.llm.stream(msgspec.structs.replace(request(config(), reply), memo=memo)))
            second.dispose()

        assert ["replayState" in seen.messages[0]["source"] for seen in ours.seen] == [True, False]


@aio
async def test_what_a_conversation_remembers_holds_only_for_what_the_model_takes() -> None:
    image = {"type": "image", "attachment": {"id": "sha256:0123456789abcdef"}}
    message = user_message([image])
    async with Running() as run:
        adapter = Adapter()
        run.llm.register_adapter(["p"], adapter)
        memo = Memo()
        for modalities in (("text", "image"), ("text",), ("text", "image")):
            adapter.facts["input_modalities"] = modalities
            await drained(run.llm.stream(msgspec.structs.replace(request(config(), message), memo=memo)))

        assert [seen.messages[0]["content"][0]["type"] for seen in adapter.seen] == ["image", "text", "image"]


@aio
async def test_images_become_a_stable_text_for_a_model_that_takes_text_only() -> None:
    image = {"type": "image", "attachment": {"id": "sha256:0123456789abcdef"}}
    nested = {"type": "tool-result", "toolCallId": "c", "content": [image]}
    message = user_message([{"type": "text", "text": "see"}, image, nested])
    async with Running() as run:
        blind, seeing = Adapter(input_modalities=("text",)), Adapter(input_modalities=("text", "image"))
        run.llm.register_adapter(["p"], blind)
        run.llm.register_adapter(["q"], seeing)
        await drained(run.llm.stream(request(config(), message)))
        await drained(run.llm.stream(request(config(provider="q"), message)))

        placeholder = {"type": "text", "text": "[image 01234567 left out: text only]"}
        content: Any = blind.seen[0].messages[0]["content"]
        assert list(content) == [
            {"type": "text", "text": "see"},
            placeholder,
            {**nested, "content": (placeholder,)},
        ]
        assert seeing.seen[0].messages[0] is message
