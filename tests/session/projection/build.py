"""Short ways to a log with figures, and to the pieces of one."""

from collections.abc import Iterable, Iterator
from typing import Any

from dsh.session.chunk import BlockStart, Finish, ReasoningDelta, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.log import Session
from tests.session.build import T0, Ticks, answer, call, call_block, header, reply

ROUTE = "acme/acme-1"


class Timed:
    """A log whose events come at the times they are given, in milliseconds from its beginning."""

    def __init__(self) -> None:
        self.clock = Ticks()
        self.log = Session(header(), clock=self.clock)
        self.where: dict[str, int] = {}

    def at(self, ms: int) -> "Timed":
        """The time of the next event."""
        self.clock.now = T0 + ms - 1
        return self

    def put(self, kind: str, data: dict[str, Any], **keys: Any) -> None:
        self.log.append(kind, data, **keys)

    def turn(self, turn: int) -> None:
        self.where["turn"] = turn
        self.put("turn/start", {"turn": turn})

    def step(self, step: int) -> None:
        self.where["step"] = step
        self.put("step/start", dict(self.where))

    def route(self, provider: str = "acme", model: str = "acme-1", reason: str = "initial") -> None:
        config = {"provider": provider, "model": model}
        self.put("request/header", {"header": {"config": config}, "reason": reason})

    def begin_block(self) -> None:
        self.log.append_chunk(self.where["turn"], self.where["step"], BlockStart(0, "text"))

    def text(self, words: str) -> None:
        self.log.append_chunk(self.where["turn"], self.where["step"], TextDelta(0, words))

    def thought(self, words: str) -> None:
        self.log.append_chunk(self.where["turn"], self.where["step"], ReasoningDelta(0, words))

    def arguments(self, words: str, name: str | None = None) -> None:
        delta = ToolCallDelta(0, "c", arguments_delta=words)
        delta = delta if name is None else ToolCallDelta(0, "c", name, words)
        self.log.append_chunk(self.where["turn"], self.where["step"], delta)

    def used(self, **usage: int) -> None:
        self.log.append_chunk(self.where["turn"], self.where["step"], UsageChunk(dict(usage)))

    def finish(self, kind: str = "stop") -> None:
        self.log.append_chunk(self.where["turn"], self.where["step"], Finish({"kind": kind}))

    def message(self, *calls: str, usage: dict[str, int] | None = None) -> None:
        made = reply(*(call_block(one) for one in calls), id=f"a-{self.log.length}")
        data: dict[str, Any] = {**self.where, "message": made}
        if usage is not None:
            data["usage"] = usage
        self.put("assistant/message", data, surface="append", sources=[])

    def retry(self, *, is_started: bool = True) -> None:
        failure = {"message": "busy", "code": "RATE_LIMIT"}
        data = {
            "retryId": "r", **self.where, "provider": "acme", "mode": "normal", "policyKey": "k",
            "retry": 1, "maxRetries": 5, "delayMs": 500, "failure": failure,
        }  # fmt: skip
        self.put("llm/retry", data)
        if is_started:
            self.put("llm/retry-started", {"retryId": "r", **self.where, "retry": 1})

    def call(self, call_id: str, name: str = "bash") -> int:
        return call(self.log, call_id, name)

    def result(self, call_id: str, seq: int, *, error: str | None = None) -> None:
        answer(self.log, call_id, seq, code=error)

    def end_step(self) -> None:
        self.put("step/end", dict(self.where))

    def end_turn(self, kind: str = "completed") -> None:
        self.put("turn/end", {"turn": self.where["turn"], "reason": {"kind": kind}})


def pieces(entries: Iterable[Entry], cuts: Iterable[int]) -> Iterator[Entry]:
    """The same entries with each run cut in two, at the next of these places that falls into it."""
    places = iter(cuts)
    for entry in entries:
        at = next(places, 0) if isinstance(entry, ChunkRun) else 0
        if isinstance(entry, ChunkRun) and 0 < at < len(entry):
            yield entry.slice(0, at)
            yield entry.slice(at)
        else:
            yield entry
