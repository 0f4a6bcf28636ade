"""From a session log to the calls that the model answered in it (`spec/llm.md` §8).

Pure: entries go in, calls come out, in the order in which they were made. A reply ends with its `finish`;
one that has none was cut off by a cancellation or by the death of the process, or its stream raised, and
then nobody can say what the model did: an error.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dsh.llm.failure import LlmFailure
from dsh.llm.script.call import Call, Cut, check_whole
from dsh.llm.script.entry import Chunks, Hang, ScriptEntry, Throw
from dsh.llm.script.error import INVALID, ScriptError
from dsh.llm.script.route import RouteReader
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, UsageChunk, chunk_from_json
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import encode

_REFUSALS = frozenset({"UNKNOWN_MODEL", "UNSUPPORTED_OPTION", "UNSUPPORTED_REASONING_EFFORT"})
"""What an adapter refuses before there is a request, besides `INVALID_MODEL_…`."""
NOT_RECORDED = "NOT_RECORDED"
"""Code of a failure that the log only mentions, such as that of a summary that did not come about."""


def recorded_calls(entries: Iterable[Entry], *, start: int = 0) -> list[Call]:
    """Every model call of a log, auxiliary ones included. Replies that were cut off hang (`Call.cut`).

    Args:
        start: the seq from which on calls count; what stands before only says which model is asked. For a
            child session that is its `seedLength`.

    Raises:
        ScriptError: `SCRIPT_UNFINISHED_CALL`, a stream raised; `SCRIPT_INVALID`, as `derived_calls`.
    """
    calls = derived_calls(entries, start=start)
    check_whole(calls, allowed=("cancelled", "crashed"))
    return calls


def derived_calls(entries: Iterable[Entry], *, start: int = 0) -> list[Call]:
    """The same, with streams that raised as calls with the cut `raised`, for an override to replace.

    Raises:
        ScriptError: `SCRIPT_INVALID`, an event that calls are made of lacks what it must have.
    """
    walk = _Walk(start)
    for entry in entries:
        for event in entry.events() if isinstance(entry, ChunkRun) else (entry,):
            try:
                walk.see(event)
            except (KeyError, TypeError, AttributeError, ValueError, InvalidEvent) as error:
                told = str(error) if isinstance(error, InvalidEvent) else "its data is not what it must be"
                raise ScriptError(INVALID, f"seq {event.seq}: {event.type}: {told}") from None
    return walk.end()


class _Walk:
    """State: the calls so far, and the reply that has no end yet."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._calls: list[Call] = []
        self._routes = RouteReader()
        self._at: tuple[int, int] = (0, 0)
        self._attempt = 0
        self._first: int | None = None
        """The seq that the open call begins with; None where none is open."""
        self._chunks: list[Chunk] = []
        self._maybe_made = False
        """A step is open in which no call is known of yet."""
        self._opened_at = 0
        self._tells_requests = False
        """Each request stands in the log (ours): where none does, none was made."""
        self._summaries: dict[str, int] = {}
        """Compactions under way without a summary: the seq of their start by id."""
        self._failed_summary: Call | None = None
        """The call for a summary that did not come about, while nothing was asked since."""
        self._titles: list[SessionEvent] = []
        """Title requests without an answer yet."""
        self._title_usage: Mapping[str, Any] | None = None

    def see(self, event: SessionEvent) -> None:
        self._routes.see(event)
        match event.type:
            case "assistant/chunk":
                self._chunk(event)
            case "step/start":
                self._at, self._attempt = (event.data["turn"], event.data["step"]), 0
                self._maybe_made, self._opened_at = True, event.seq
            case "request/digest":
                self._tells_requests = True
                self._open(event.seq)
            case "turn/end":
                self._turn_ended(event)
            case "compaction/start":
                self._summaries[str(event.data.get("compactionId"))] = event.seq
            case "compaction/summary":
                self._summary(event)
            case "compaction/end":
                self._compaction_ended(event)
            case "session/title-llm-request":
                self._titles.append(event)
            case "request/usage" if event.data.get("purpose") == "session-title":
                self._title_usage = event.data.get("usage")
            case "session/title":
                self._titled(event)

    def _chunk(self, event: SessionEvent) -> None:
        data = event.data
        at = (data["turn"], data["step"])
        if self._first is not None and at != self._at:
            self._add(Hang(tuple(self._chunks)), "raised")
            self._attempt = 0
        self._at = at
        if self._first is None or not self._chunks:
            self._open(event.seq)
        chunk = chunk_from_json(_readable(data["chunk"]))
        self._chunks.append(chunk)
        if isinstance(chunk, Finish):
            self._add(Chunks(tuple(self._chunks)))

    def _open(self, seq: int) -> None:
        self._failed_summary = None
        if self._first is None:
            self._attempt += 1
        self._first = seq
        self._maybe_made = False

    def _add(
        self,
        entry: ScriptEntry,
        cut: Cut | None = None,
        *,
        is_needed: bool = True,
        is_refused: bool = False,
    ) -> None:
        seq = self._opened_at if self._first is None else self._first
        turn, step = self._at
        self._first, self._chunks = None, []
        self._put(
            Call(
                entry=entry,
                seq=seq,
                turn=turn,
                step=step,
                attempt=max(self._attempt, 1),
                purpose="turn",
                model=self._routes.model,
                cut=cut,
                is_needed=is_needed,
                is_refused=is_refused,
            )
        )

    def _put(self, call: Call) -> None:
        if call.seq is not None and call.seq >= self._start:
            self._calls.append(call)

    def _turn_ended(self, event: SessionEvent) -> None:
        kind = event.data["reason"].get("kind")
        cut: Cut = "cancelled" if kind == "aborted" else "crashed" if kind == "interrupted" else "raised"
        if cut != "raised":
            self._summary_cut(cut)
        if self._first is not None:
            self._add(Hang(tuple(self._chunks)), cut)
        elif self._maybe_made and cut == "cancelled":
            self._add(Hang(()), cut, is_needed=False)
        elif self._maybe_made and (refusal := _refusal(event.data["reason"])) is not None:
            self._add(Throw((), refusal), is_needed=False, is_refused=True)
        self._maybe_made = False

    def _summary_cut(self, cut: Cut) -> None:
        """The turn ended in the middle of a compaction, or because of the same as it."""
        begun = [*self._summaries.values()]
        self._summaries.clear()
        if self._calls and self._calls[-1] is self._failed_summary:
            begun.append(self._calls.pop().seq or 0)
        for seq in begun:
            self._put_summary(Hang(()), seq, cut=cut, is_needed=False)

    def _summary(self, event: SessionEvent) -> None:
        data = event.data
        self._summaries.pop(str(data.get("compactionId")), None)
        if data.get("llmStreamCall") is not True or "rawOutput" not in data:
            return
        chunks = whole_reply(data["rawOutput"], data.get("usage"))
        model = self._routes.known(str(data.get("provider")), str(data.get("model")))
        self._put(Call(entry=Chunks(chunks), seq=event.seq, purpose="compaction", model=model))

    def _compaction_ended(self, event: SessionEvent) -> None:
        begun = self._summaries.pop(str(event.data.get("compactionId")), None)
        error = event.data.get("error")
        if begun is None or not error:
            return
        self._put_summary(Throw((), LlmFailure(str(error), NOT_RECORDED)), begun, is_needed=False)
        self._failed_summary = self._calls[-1] if self._calls else None

    def _put_summary(
        self, entry: ScriptEntry, seq: int, *, cut: Cut | None = None, is_needed: bool = True
    ) -> None:
        model = self._routes.model
        self._put(Call(entry=entry, seq=seq, purpose="compaction", model=model, cut=cut, is_needed=is_needed))

    def _titled(self, event: SessionEvent) -> None:
        source = event.data.get("source", {})
        if source.get("kind") == "provider" and self._titles:
            request = self._titles.pop(0)
            title = {"type": "text", "text": event.data["title"]}
            usage, self._title_usage = self._title_usage, None
            self._title(request, Chunks(whole_reply([title], usage)))

    def _title(self, request: SessionEvent, entry: Chunks | Throw) -> None:
        route = request.data.get("route", {})
        model = self._routes.known(str(route.get("provider")), str(route.get("model")))
        self._put(Call(entry=entry, seq=request.seq, purpose="session-title", model=model))

    def end(self) -> list[Call]:
        if self._summaries:
            self._summary_cut("crashed")
        if self._first is not None:
            self._add(Hang(tuple(self._chunks)), "crashed")
        for request in self._titles:
            failure = LlmFailure("no title came of this request when it was recorded", NOT_RECORDED)
            self._title(request, Throw((), failure))
        if self._tells_requests:
            self._calls = [call for call in self._calls if not _is_doubtful(call)]
        return [self._priced(call) for call in self._calls]

    def _priced(self, call: Call) -> Call:
        """With the price of its model, which the log tells only behind the reply."""
        if call.model is None:
            return call
        price = self._routes.known(call.model.provider, call.model.id).price
        return msgspec.structs.replace(call, model=msgspec.structs.replace(call.model, price=price))


def _is_doubtful(call: Call) -> bool:
    """Whether the call was perhaps made in a turn that was cancelled."""
    return call.purpose == "turn" and call.cut == "cancelled" and not call.is_needed


def _refusal(reason: Mapping[str, Any]) -> LlmFailure | None:
    """The failure of a turn whose last call the adapter refused, so that no request was made."""
    error = reason.get("error") or {}
    code = str(error.get("code", ""))
    if code not in _REFUSALS and not code.startswith("INVALID_MODEL_"):
        return None
    return LlmFailure(str(error["message"]), code)


def _readable(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """A chunk without what early writers logged of a careless provider: a null name, null or parsed
    arguments (`spec/llm.md` §4.4)."""
    if chunk.get("type") != "tool-call-delta":
        return chunk
    arguments, call_id = chunk.get("argumentsDelta"), chunk.get("id")
    if type(arguments) is str and type(call_id) is str and chunk.get("name", "") is not None:
        return chunk
    out = {key: value for key, value in chunk.items() if not (key == "name" and value is None)}
    if type(arguments) is not str:
        out["argumentsDelta"] = "" if arguments is None else encode(arguments).decode()
    if type(call_id) is not str:
        out["id"] = ""
    return out


def whole_reply(blocks: Iterable[Mapping[str, Any]], usage: Mapping[str, Any] | None) -> tuple[Chunk, ...]:
    """The chunks of a reply of which only the blocks are known: each begins and ends at once."""
    chunks: list[Chunk] = []
    for index, block in enumerate(blocks):
        chunks.append(BlockStart(index, block["type"]))
        chunks.append(BlockEnd(index, dict(block)))
    if usage is not None:
        chunks.append(UsageChunk(dict(usage)))
    return (*chunks, Finish({"kind": "stop"}))
