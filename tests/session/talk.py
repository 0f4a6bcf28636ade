"""A conversation written straight into a log: whole exchanges, prunes and compactions in one call each."""

from collections.abc import Sequence
from typing import Any

from dsh.session.chunk import Finish, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.derive import project
from dsh.session.digest import digest_payload
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.session.build import call_block, header, prompt, reply, result

USER = {"kind": "user"}


class Talk:
    """Appends to one log, and keeps turn and step."""

    def __init__(self, log: Session | None = None) -> None:
        self.log = Session(header()) if log is None else log
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"n{self.number}"

    @property
    def where(self) -> dict[str, Any]:
        return {"turn": self.log.open_turn, "step": self.log.open_step}

    def put(self, kind: str, data: dict[str, Any], **keys: Any) -> int:
        return self.log.append(kind, data, **keys).seq

    def turn(self) -> None:
        self.put("turn/start", {"turn": self.log.last_turn + 1})

    def end_turn(self) -> None:
        self.put("turn/end", {"turn": self.log.open_turn, "reason": {"kind": "completed"}})

    def step(self, number: int = 1) -> None:
        self.put("step/start", {"turn": self.log.open_turn, "step": number})

    def end_step(self) -> None:
        self.put("step/end", self.where)

    def route(
        self, model: str = "acme-1", *, system: str = "", tools: Sequence[Any] = (), reason: str = "change"
    ) -> None:
        config = {"provider": "acme", "model": model}
        head = {"config": config, "system": system, "tools": list(tools)}
        self.put("request/header", {"header": head, "reason": reason})

    def user(self, text: str) -> int:
        return self.put("user/message", dict(prompt(text, self.name())), surface="append")

    def digest(self) -> int:
        """What is logged when a request is complete."""
        payload = digest_payload(**self.where, attempt=1, digest="0" * 64, messages=1)
        return self.put("request/digest", payload, ignorable=True)

    def stream(self, text: str = "", *calls: tuple[str, str], usage: Any = None) -> list[int]:
        """The chunks of a reply; a text comes in two pieces. Answers their seqs."""
        log, (turn, step) = self.log, self.where.values()
        middle = len(text) // 2
        chunks: list[Any] = [TextDelta(0, text[:middle]), TextDelta(0, text[middle:])] if text else []
        chunks += [ToolCallDelta(at, one, "bash", raw) for at, (one, raw) in enumerate(calls, 1)]
        chunks += [UsageChunk(usage)] if usage is not None else []
        return [log.append_chunk(turn, step, chunk) for chunk in [*chunks, Finish({"kind": "stop"})]]

    def message(
        self, text: str = "", *calls: tuple[str, str], usage: Any = None, sources: Any = None, **extra: Any
    ) -> int:
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [call_block(one, "bash", raw) for one, raw in calls]
        made = {**reply(id=self.name()), "content": blocks}
        data = {**self.where, "message": made, **({} if usage is None else {"usage": usage}), **extra}
        return self.put("assistant/message", data, surface="append", sources=sources)

    def answer(self, text: str = "", *calls: tuple[str, str], usage: Any = None) -> int:
        """A reply, streamed and logged."""
        return self.message(text, *calls, usage=usage, sources=self.stream(text, *calls, usage=usage))

    def result(self, call_id: str, text: str) -> int:
        """A call is made and answered."""
        at = self.put("tool/call", {**self.where, "callId": call_id, "name": "bash", "arguments": "{}"})
        data = {**self.where, "message": result(call_id, text)}
        return self.put("tool/result", data, surface="append", sources=[at])

    def price(self, *seqs: int) -> int:
        """The log price of some nodes."""
        messages = (project(self.log.event(seq)) for seq in seqs)
        return sum(log_price(message) for message in messages if message is not None)

    def prune(self, seq: int, text: str, **claim: Any) -> int:
        """A tool result is cut, with the price of what it was before it."""
        span = {"start": seq, "end": seq}
        said = {"shadowedRange": span, "shadowedSeqs": [seq], "shadowedTokenCount": self.price(seq)}
        self.put("compaction/prune", {**said, **claim})
        old = self.log.event(seq).data
        message = result(old["message"]["source"]["callId"], text, old["message"]["id"])
        operation = {"op": "replace", **span}
        return self.put("tool/result", {**old, "message": message}, surface=operation, sources=[seq])

    def compact(self, first: int, last: int, text: str, **claim: Any) -> int:
        """The nodes from one place of the surface to another become a checkpoint."""
        nodes = self.log.surface_nodes[first : last + 1]
        span = {"start": nodes[0], "end": nodes[-1]}
        ids = {"compactionId": self.name()}
        start = self.put("compaction/start", {**ids, "turn": self.log.open_turn})
        summary = {
            **ids, "summary": [{"type": "text", "text": text}], "provider": "acme", "model": "acme-1",
            "shadowedRange": span, "shadowedSeqs": nodes, "shadowedTokenCount": self.price(*nodes), **claim,
        }  # fmt: skip
        at = self.put("compaction/summary", summary)
        source = {"kind": "plugin", "plugin": "compact", **ids}
        point = user_message(text, source, self.name())
        keys: Any = {"surface": {"op": "replace", **span}, "sources": [start, at, *nodes]}
        seq = self.put("user/message", dict(point), **keys)
        self.put("compaction/end", {**ids, "turn": self.log.open_turn})
        return seq
