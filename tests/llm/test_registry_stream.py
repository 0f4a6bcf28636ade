"""Calls through the registry: failures that arrive as a finish, listeners, what the boundary changes."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dsh.errors import DshError
from dsh.kernel import CancelToken
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.session.chunk import Chunk, Finish, TextDelta
from dsh.session.message import user_message
from tests.aio import aio
from tests.llm.build import assistant, text
from tests.llm.registry_kit import REPLY, Adapter, Running, config, drained, failure_in, request


def contradictory() -> LlmError:
    """A failure whose code was changed after it was made: its other facts are not believed."""
    error = LlmError.of("SERVER", "boom", status=500)
    error.code = "OTHER"
    return error


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (LlmError.of("SERVER", "boom", status=500), {"message": "boom", "code": "SERVER", "status": 500}),
        (DshError("mine", code="OWN"), {"message": "mine", "code": "OWN"}),
        (contradictory(), {"message": "boom", "code": "OTHER"}),
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


@pytest.mark.parametrize("chunks", [[TextDelta(0, "a")], REPLY[:3]], ids=["no block", "no finish"])
@aio
async def test_the_grammar_is_on_and_a_broken_stream_is_raised(chunks: list[Chunk]) -> None:
    async with Running() as run:
        run.llm.register_adapter(["p"], Adapter(*chunks))
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
        plain = user_message("no image")
        await drained(run.llm.stream(request(config(), message, plain)))
        await drained(run.llm.stream(request(config(provider="q"), message)))

        placeholder = {"type": "text", "text": "[image 01234567 left out: text only]"}
        content: Any = blind.seen[0].messages[0]["content"]
        assert list(content) == [
            {"type": "text", "text": "see"},
            placeholder,
            {**nested, "content": (placeholder,)},
        ]
        assert seeing.seen[0].messages[0] is message
        assert blind.seen[0].messages[1] is plain
