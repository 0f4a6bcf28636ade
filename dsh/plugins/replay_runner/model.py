"""The recorded model: it answers each call as it was answered, on the routes that the recording names."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from dsh.kernel import CancelToken
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES, Generation, LlmAdapter, ModelInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.registry import LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.llm.script.call import Call
from dsh.llm.script.entry import Hang, Throw
from dsh.llm.script.error import ScriptError
from dsh.llm.script.player import Script
from dsh.llm.script.route import recorded_models
from dsh.session.chunk import BlockEnd, Chunk, ToolCallDelta
from dsh.session.replay.recording import Life, Recording

UNNAMED = "recorded"
"""The route, and the model, of a log that never got as far as to name one."""
PATIENCE = 50
"""Turns of the event loop that a cancellation may take to come."""
OVERFLOW = "CONTEXT_WINDOW_EXCEEDED"
NOTABLY_MORE = 1.4
"""A part that is halved had about twice as many messages."""
SUMMARY_NOTE = (
    "a summary was asked of more than the recorded one took in; that was refused as too large, "
    "as it must have been when it was recorded"
)


class Player(Protocol):
    """The life that asks."""

    async def catch_up(self) -> None: ...

    def diverged(self, problem: str) -> None: ...


class RecordedModel:
    """Serves all calls of a replay. State: the life it answers, and the calls of that life to come."""

    def __init__(self, recording: Recording, calls: Sequence[Call], notes: dict[str, None]) -> None:
        self._calls, self._notes = calls, notes
        self._models = recorded_models(recording.marks)
        self._policy = _policy(recording)
        self._summarised = {
            event.seq: len(event.data["shadowedSeqs"])
            for event in recording.marks
            if event.type == "compaction/summary"
        }
        """How many events each summary replaced, by its seq."""
        self._script = Script(())
        self._player: Player | None = None
        self._rewrite: Callable[[str], str] | None = None

    def register(self, llm: LlmRegistry) -> None:
        """Stand in for the routes of the recording that nobody else in the composition serves."""
        served = {info.provider for info in llm.list_providers()}
        models = [info for call in self._calls if (info := call.model) is not None]
        providers = dict.fromkeys(info.provider for info in (*self._models, *models))
        if any(call.is_refused for call in self._calls):
            providers[UNNAMED] = None
        routes = [provider for provider in providers if provider not in served]
        if routes:
            llm.register_adapter(routes, _Route(self, self._models, self._policy))

    @property
    def following(self) -> ModelInfo | None:
        """What was known of the model when the next call was made."""
        call = self._script.following
        return None if call is None else call.model

    def refused(self) -> LlmError | None:
        """The failure of the next call, where the adapter refused it before there was a request."""
        return self._script.refused()

    def begin(self, life: Life, player: Player, rewrite: Callable[[str], str] | None) -> None:
        """Answer this life from here on.

        Args:
            rewrite: changes the arguments of tool calls.
        """
        calls = [c for c in self._calls if c.seq is None or life.start <= c.seq < life.stop]
        self._script, self._player, self._rewrite = Script(calls, name="the recording"), player, rewrite

    def serve(self, request: LlmRequest, following: object) -> AsyncIterator[Chunk]:
        """The listener of `llm/stream`, the last one: no call ever gets to an adapter."""
        return self._served(request)

    async def _served(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        player, signal = self._player, request.signal or CancelToken()
        if player is None:
            raise LlmError.of("ABORTED", "no session is being replayed")
        if self._is_too_large(request):
            self._notes[SUMMARY_NOTE] = None
            raise LlmError.of(OVERFLOW, "more is to be summarised than the recorded summary took in")
        try:
            call = self._script.take(request)
        except ScriptError as error:
            if request.purpose != "session-title":
                player.diverged(str(error))
            raise
        entry = call.entry
        for chunk in self._rewritten(entry.chunks):
            await player.catch_up()
            _check(signal)
            yield chunk
        await player.catch_up()
        _check(signal)
        if isinstance(entry, Hang):
            await self._silence(player, signal)
        if isinstance(entry, Throw):
            raise LlmError(entry.failure)

    def _is_too_large(self, request: LlmRequest) -> bool:
        """Whether a summary is asked of notably more than the recorded one was made of.

        Then its first requests were refused as too large, of which the log holds nothing, and the part to be
        summarised was halved.
        """
        call = self._script.following
        taken = None if call is None or call.seq is None else self._summarised.get(call.seq)
        return (
            request.purpose == "compaction"
            and taken is not None
            and len(request.messages) > 2 + taken * NOTABLY_MORE
        )

    async def _silence(self, player: Player, signal: CancelToken) -> None:
        """A reply that breaks off: a cancellation follows, or the recording is at its end."""
        for _ in range(PATIENCE):
            await asyncio.sleep(0)
            await player.catch_up()
            _check(signal)
        player.diverged("the recorded reply breaks off where nobody cancels the replayed one")
        await signal.wait()
        _check(signal)

    def _rewritten(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks, with changed arguments whole in their first piece: there are as many as before."""
        if self._rewrite is None:
            yield from chunks
            return
        chunks = tuple(chunks)
        changed: dict[int, str] = {}
        for chunk in chunks:
            if isinstance(chunk, BlockEnd) and chunk.block.get("type") == "tool-call":
                text = str(chunk.block["arguments"])
                if (new := self._rewrite(text)) != text:
                    changed[chunk.index] = new
        told: set[int] = set()
        for chunk in chunks:
            if isinstance(chunk, ToolCallDelta) and chunk.index in changed:
                text = "" if chunk.index in told else changed[chunk.index]
                told.add(chunk.index)
                yield msgspec.structs.replace(chunk, arguments_delta=text)
            elif isinstance(chunk, BlockEnd) and chunk.index in changed:
                yield BlockEnd(chunk.index, {**chunk.block, "arguments": changed[chunk.index]})
            else:
                yield chunk


class _Route(LlmAdapter):
    """What the recording knows of its models. It is never asked for a stream."""

    def __init__(self, model: RecordedModel, models: Iterable[ModelInfo], policy: RetryPolicy) -> None:
        self._model, self._models, self._policy = model, tuple(models), policy

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(info for info in self._models if info.provider == provider)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        """As the next call was recorded, where it is on this model; else as the whole log knows it."""
        following = self._model.following
        known = self._models if following is None else (following, *self._models)
        for info in known:
            if (info.provider, info.id) == (provider, model):
                return info
        return ModelInfo(provider=provider, id=model, name=model)

    async def prepare(self, provider: str, model: str) -> Generation:
        """Raises what the recorded adapter refused the next call with."""
        refusal = self._model.refused()
        if refusal is not None:
            raise refusal
        return await super().prepare(provider, model)

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return self._model.serve(request, None)


def _policy(recording: Recording) -> RetryPolicy:
    """One that repeats whatever was repeated, at once; the runner asks it only where a retry was recorded."""
    retries = [event.data for event in recording.marks if event.type == "llm/retry"]
    codes = {str(data["failure"]["code"]) for data in retries}
    return RetryPolicy(
        mode="always" if any(data.get("mode") == "always" for data in retries) else "normal",
        max_retries=max([int(data.get("maxRetries", 0)) for data in retries], default=0) or 1_000,
        retryable_codes=tuple(sorted(codes | set(DEFAULT_RETRYABLE_CODES))),
        initial_delay_ms=1,
        max_delay_ms=1,
        jitter_ratio=0,
    )


def _check(signal: CancelToken) -> None:
    if signal.cancelled:
        raise LlmError.of("ABORTED", "the request was cancelled")
