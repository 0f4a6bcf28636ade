"""A session written event by event as a run writes it, and kept as a log that the commands can open."""

from pathlib import Path
from typing import Any

from dsh.cli.sessions.conversation.item import Item
from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.export import json_lines
from dsh.persistence.view import LogView
from dsh.session.chunk import Chunk
from dsh.session.log import Session
from tests.session.build import Ticks, answer, call, call_block, header, reply

ROUTE = "acme/acme-1"


class Talk:
    """One session. Each event is a millisecond after the one before."""

    def __init__(self, **fields: Any) -> None:
        self.clock = Ticks()
        self.log = Session(header(**fields), clock=self.clock)
        self._messages = 0

    def event(self, kind: str, data: Any, **more: Any) -> int:
        return self.log.append(kind, data, **more).seq

    def turn(self, turn: int = 1) -> "Talk":
        self.event("turn/start", {"turn": turn})
        return self

    def step(self, step: int = 1) -> "Talk":
        self.event("step/start", {"turn": self.log.open_turn, "step": step})
        return self

    def end_step(self) -> "Talk":
        self.event("step/end", {"turn": self.log.open_turn, "step": self.log.open_step})
        return self

    def end(self, **reason: Any) -> "Talk":
        reason = reason or {"kind": "completed"}
        self.event("turn/end", {"turn": self.log.open_turn, "reason": reason})
        return self

    def user(self, text: str, **source: Any) -> int:
        self._messages += 1
        message = {
            "content": [{"type": "text", "text": text}],
            "source": source or {"kind": "user"},
            "role": "user",
            "id": f"m-{self._messages}",
        }
        return self.event("user/message", message, surface="append")

    def stream(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self.log.append_chunk(self.log.open_turn or 0, self.log.open_step or 0, chunk)

    def reply(self, *blocks: Any, **more: Any) -> int:
        self._messages += 1
        message = reply(*blocks, id=f"a-{self._messages}")
        data = {"turn": self.log.open_turn, "step": self.log.open_step, "message": message, **more}
        return self.event("assistant/message", data, surface="append", sources=[])

    def say(self, text: str) -> int:
        return self.reply({"type": "text", "text": text})

    def ask(self, *calls: tuple[str, str, str]) -> int:
        """A reply that calls tools: id, name and arguments of each."""
        return self.reply(*(call_block(*call) for call in calls))

    def start(self, call_id: str, name: str = "bash", arguments: str = "{}") -> int:
        return call(self.log, call_id, name, arguments)

    def answer(self, call_id: str, text: str, at: int) -> int:
        return answer(self.log, call_id, at, text)

    def tool(self, name: str, arguments: str, text: str, call_id: str = "c-1") -> None:
        """A reply that calls one tool, and its result."""
        self.ask((call_id, name, arguments))
        self.answer(call_id, text, self.start(call_id, name, arguments))

    def view(self) -> LogView:
        return LogView(self.log.copy())

    def items(self, *, pieces: bool = False) -> list[Item]:
        return list(conversation(self.view(), pieces=pieces))

    def store(self, path: Path) -> Path:
        path.write_bytes(b"".join(json_lines(self.view())))
        return path


def answered(text: str = "hi!") -> Talk:
    """One turn of one step."""
    talk = Talk().turn().step()
    talk.user("say hi")
    talk.say(text)
    return talk.end_step().end()
