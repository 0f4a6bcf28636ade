"""A model that says what a list of replies tells it to, one a call, in order."""

import itertools
from collections.abc import AsyncIterator, Sequence

from dsh.kernel import Cancelled, CancelToken
from dsh.llm.adapter import LlmAdapter, ModelInfo, ProviderInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.script.entry import play
from dsh.llm.script.error import EXHAUSTED, UNCONSUMED, ScriptError
from dsh.llm.script.script_file import PlacedReply
from dsh.llm.stream import close_stream
from dsh.session.chunk import Chunk

DELTA_CHARS = 16


class ScriptedAdapter(LlmAdapter):
    """Plays replies. State: which were played, to which sessions, and how many call ids were given out."""

    def __init__(
        self,
        replies: Sequence[PlacedReply],
        models: Sequence[ModelInfo],
        *,
        repeat_last: bool = False,
        pace_ms: float = 0,
        delta_chars: int = DELTA_CHARS,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._queue = [placed for placed in replies for _ in range(placed.reply.repeat)]
        self._last = replies[-1] if repeat_last and replies else None
        self._ending = f", the last of them at {replies[-1].place}" if replies else ""
        self._length = len(self._queue)
        self._models = tuple(models)
        self._pace_ms, self._delta_chars = pace_ms, delta_chars
        self._policy = policy or RetryPolicy()
        self._ids = itertools.count(1)
        self._sessions: set[str | None] = set()
        self._taken: set[str] = set()
        """Ids of calls that were made before this adapter answered a session."""

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, "Scripted")

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(info for info in self._models if info.provider == provider)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        known = {(info.provider, info.id): info for info in self._models}
        return known.get((provider, model), ModelInfo(provider=provider, id=model, name=model))

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        """The next reply.

        Raises:
            ScriptError: `SCRIPT_EXHAUSTED`, `SCRIPT_UNEXPECTED_REQUEST`, `SCRIPT_PLACEHOLDER`.
            LlmError: what the reply fails with; `ABORTED`.
        """
        placed = self._take(request)
        reply, signal = placed.reply, request.signal or CancelToken()
        reply.check_request(request, placed.place)
        if request.session_id not in self._sessions:
            self._sessions.add(request.session_id)
            blocks = itertools.chain.from_iterable(message["content"] for message in request.messages)
            self._taken |= {block["id"] for block in blocks if block["type"] == "tool-call"}
        entry = reply.entry(request.messages, self._new_id, delta_chars=self._delta_chars)
        if reply.delay_ms > 0:
            try:
                await signal.sleep(reply.delay_ms / 1000)
            except Cancelled:
                raise LlmError.of("ABORTED", "the request was cancelled") from None
        chunks = play(entry, signal, pace_ms=self._pace_ms)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    def _new_id(self) -> str:
        return next(name for number in self._ids if (name := f"scripted-{number}") not in self._taken)

    def _take(self, request: LlmRequest) -> PlacedReply:
        for at, placed in enumerate(self._queue):
            if placed.reply.purpose is None or placed.reply.purpose == request.purpose:
                return self._queue.pop(at)
        last = self._last
        if last is not None and last.reply.purpose in (None, request.purpose):
            return last
        asked = f"call for {request.purpose}" if request.purpose else "call"
        raise ScriptError(
            EXHAUSTED,
            f"there is no reply for this {asked}: the script has {self._length}, {self._played} were played"
            + self._ending,
            hint="add a reply, or set repeatLast: true",
        )

    @property
    def _played(self) -> int:
        return self._length - len(self._queue)

    @property
    def is_begun(self) -> bool:
        return self._played > 0

    def assert_consumed(self) -> None:
        """Check that every reply was played.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`, names the first that was not.
        """
        if self._queue:
            raise ScriptError(
                UNCONSUMED,
                f"{len(self._queue)} of {self._length} replies were not played, "
                f"the first is at {self._queue[0].place}",
            )
