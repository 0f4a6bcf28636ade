"""Scripts as a model: which script and which call of it answers a request (`spec/llm.md` §8)."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from dsh.llm.adapter import LlmAdapter, ModelInfo, ProviderInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.script.call import Call
from dsh.llm.script.entry import Throw, play
from dsh.llm.script.error import EXHAUSTED, UNCONSUMED, UNRECORDED_SESSION, ScriptError
from dsh.llm.script.placeholder import filled_entry
from dsh.llm.stream import close_stream
from dsh.session.chunk import Chunk
from dsh.session.message import text_in


class Script:
    """The calls of one session in order. State: which come next."""

    def __init__(
        self, calls: Iterable[Call], *, name: str = "the script", opening: str | None = None
    ) -> None:
        """
        Args:
            opening: what the user had said last when the first call was made, where that is known.
        """
        calls = list(calls)
        self.name, self.opening = name, opening
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

    def refused(self) -> LlmError | None:
        """What an adapter has to raise where it prepares the next call, which is then made; None where that
        call was not refused."""
        call = self.following
        if call is None or not call.is_refused or not isinstance(call.entry, Throw):
            return None
        self._next += 1
        return LlmError(call.entry.failure)

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


class Scripts:
    """The scripts of a recorded session and its children, in the order in which they are claimed. State: who
    has claimed which.

    Live ids are new ones. The session that calls first claims the first script, the parent's; each other one
    claims at its first call the script that opens with the same words, so that children which run side by
    side may come in any order, else the next. Calls without a session share one.
    """

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = tuple(scripts)
        self._free = list(scripts)
        self._claimed: dict[str | None, Script] = {}

    def of(self, request: LlmRequest) -> Script:
        """The script of the session that makes a request.

        Raises:
            ScriptError: `SCRIPT_UNRECORDED_SESSION`, there are more sessions than scripts.
        """
        script = self._claimed.get(request.session_id)
        if script is None:
            if not self._free:
                raise ScriptError(
                    UNRECORDED_SESSION,
                    "a session calls the model that was not recorded; there are recordings of "
                    f"{len(self._scripts)}",
                    hint="record the session again, with its children",
                )
            script = self._claimed[request.session_id] = self._fitting(opening_of(request.messages))
            self._free.remove(script)
        return script

    def _fitting(self, opening: str | None) -> Script:
        """Whichever script is free and opens so; else the first one."""
        if self._claimed and opening is not None:
            return next((script for script in self._free if script.opening == opening), self._free[0])
        return self._free[0]

    @property
    def is_begun(self) -> bool:
        return bool(self._claimed)

    @property
    def sole(self) -> Script | None:
        """The only script, where there is one alone."""
        return self._scripts[0] if len(self._scripts) == 1 else None

    def assert_consumed(self) -> None:
        """Check that every recorded call was made.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`.
        """
        for script in self._scripts:
            script.assert_consumed()


class ScriptAdapter(LlmAdapter):
    """Scripts as the adapter of whatever routes it is registered for. State: the scripts'."""

    def __init__(
        self,
        scripts: Scripts,
        models: Iterable[ModelInfo] = (),
        *,
        pace_ms: float = 0,
        policies: Mapping[str, RetryPolicy] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            models: what is known of models, by route and id; the first entry counts.
            pace_ms: how long to wait before each chunk.
            policies: retry policies by route, where it is not the default one.
            names: what routes are called, where it is not their id.
        """
        self.scripts = scripts
        self._models = tuple(models)
        self._pace_ms = pace_ms
        self._policies, self._names = dict(policies or {}), dict(names or {})

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, self._names.get(provider, provider))

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._policies.get(provider, RetryPolicy())

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(info for info in self._models if info.provider == provider)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        """As the next call was recorded, where that is known; else as `models` say."""
        following = None if self.scripts.sole is None else self.scripts.sole.following
        known = self._models
        if following is not None and following.model is not None:
            known = (following.model, *known)
        for info in known:
            if (info.provider, info.id) == (provider, model):
                return info
        return ModelInfo(provider=provider, id=model, name=model)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        """The next reply. Raises as `Scripts.of`, `Script.take`, `filled` and `play`."""
        call = self.scripts.of(request).take(request)
        entry = filled_entry(call.entry, request.messages)
        chunks = play(entry, request.signal, pace_ms=self._pace_ms)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)


def opening_of(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """The last of these messages that is the user's own, or one agent's to another, as text."""
    said = None
    for message in messages:
        source = message["source"]
        if source.get("kind") == "user" or source.get("form") == "relay":
            said = text_in(message["content"])
    return said
