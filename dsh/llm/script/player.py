"""Plays a script: the next entry for each call, chunk by chunk (`spec/llm.md` §8)."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from dsh.kernel import Cancelled, CancelToken
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.script.call import Call
from dsh.llm.script.entry import Hang, ScriptEntry, Throw
from dsh.llm.script.error import EXHAUSTED, UNCONSUMED, ScriptError
from dsh.session.chunk import Chunk


class Script:
    """The calls of one session in order. State: which come next."""

    def __init__(self, calls: Iterable[Call], *, name: str = "the script") -> None:
        calls = list(calls)
        self.name = name
        self._turns = [call for call in calls if call.purpose != "session-title"]
        self._titles = [call for call in calls if call.purpose == "session-title"]
        self._length, self._next = len(self._turns), 0
        self._next_title = 0

    def take(self, request: LlmRequest) -> Call:
        """The call that answers a request. Titles are asked beside the turns, so they have an order of
        their own.

        Raises:
            ScriptError: `SCRIPT_EXHAUSTED`.
        """
        if request.purpose == "session-title" and self._titles:
            if self._next_title == len(self._titles):
                raise self._exhausted(request, len(self._titles))
            self._next_title += 1
            return self._titles[self._next_title - 1]
        wanted = request.purpose or "turn"
        at = self._next
        while at < self._length:
            call = self._turns[at]
            if call.purpose is None or call.purpose == wanted:
                self._next = at + 1
                return call
            if call.is_needed:
                break
            at += 1
        raise self._exhausted(request, self._length)

    def _exhausted(self, request: LlmRequest, length: int) -> ScriptError:
        asked = {"compaction": "a summary", "session-title": "a title"}.get(request.purpose or "", "a reply")
        if self._next < self._length and request.purpose != "session-title":
            call = self._turns[self._next]
            where = "" if call.seq is None else f" (seq {call.seq})"
            found = f"call {self._next + 1} of {self.name}{where} is for purpose {call.purpose!r}"
        else:
            found = f"{self.name} holds no more than {length}"
        return ScriptError(
            EXHAUSTED, f"the model is asked for {asked}, but {found}", hint="record the session again"
        )

    @property
    def following(self) -> Call | None:
        """The call that comes next in the turns; None at the end."""
        return self._turns[self._next] if self._next < self._length else None

    @property
    def unconsumed(self) -> tuple[Call, ...]:
        """The calls that nobody has made yet, without those that need not be made."""
        rest = (*self._turns[self._next :], *self._titles[self._next_title :])
        return tuple(call for call in rest if call.is_needed)

    def assert_consumed(self) -> None:
        """Check that every call was made.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`.
        """
        if rest := self.unconsumed:
            first = rest[0]
            where = "" if first.seq is None else f", the first of them at seq {first.seq}"
            raise ScriptError(
                UNCONSUMED,
                f"{len(rest)} of the calls of {self.name} were not made{where}",
                hint="record the session again",
            )


class ScriptAdapter(LlmAdapter):
    """One script as an adapter of whatever route it is registered for. State: the script's."""

    def __init__(self, script: Script, models: Iterable[ModelInfo] = (), *, pace_ms: float = 0) -> None:
        self.script = script
        self._models = tuple(models)
        self._pace_ms = pace_ms

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(info for info in self._models if info.provider == provider)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        """As the next call was recorded, where it is on this model; else as the recording knows it."""
        call = self.script.following
        known = self._models if call is None or call.model is None else (call.model, *self._models)
        for info in known:
            if (info.provider, info.id) == (provider, model):
                return info
        return ModelInfo(provider=provider, id=model, name=model)

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return play(self.script.take(request).entry, request.signal, pace_ms=self._pace_ms)


async def play(entry: ScriptEntry, signal: CancelToken | None, *, pace_ms: float = 0) -> AsyncIterator[Chunk]:
    """The chunks of an entry.

    Args:
        pace_ms: how long to wait before each chunk.

    Raises:
        LlmError: `ABORTED`, the caller cancelled; or what the entry throws.
    """
    signal = signal or CancelToken()
    try:
        for chunk in entry.chunks:
            signal.raise_if_cancelled()
            if pace_ms > 0:
                await signal.sleep(pace_ms / 1000)
            yield chunk
        signal.raise_if_cancelled()
        if isinstance(entry, Hang):
            _tell(entry.ready_file)
            await _cancellation(signal)
    except Cancelled:
        raise LlmError.of("ABORTED", "the request was cancelled") from None
    if isinstance(entry, Throw):
        raise LlmError(entry.failure)


def _tell(ready_file: str | None) -> None:
    if ready_file is not None:
        Path(ready_file).write_text("ready\n", encoding="utf-8")


async def _cancellation(signal: CancelToken) -> None:
    gate = asyncio.Event()
    undo = signal.on_cancel(lambda _: gate.set())
    try:
        await gate.wait()
    finally:
        undo()
    signal.raise_if_cancelled()
