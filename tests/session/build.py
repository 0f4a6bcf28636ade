"""Plain values for the session tests; a test changes what it is about."""

from collections.abc import Iterator
from typing import Any

from dsh.session.chunk_row import is_row, row_to_run
from dsh.session.chunk_run import ChunkRun
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import Message, assistant_message, text_block, tool_result_message, user_message
from dsh.session.value import JsonObject, decode_strict, encode

T0 = 1_700_000_000_000


class Ticks:
    """A clock that moves on by a millisecond with each look, or gives the times it was given."""

    def __init__(self, *times: int) -> None:
        self._times: Iterator[int] = iter(times)
        self.now = T0

    def __call__(self) -> int:
        self.now = next(self._times, self.now + 1)
        return self.now


def header(**changes: Any) -> SessionHeader:
    return SessionHeader(**{"id": "demo.1", "created_at": T0, **changes})


def session(**changes: Any) -> Session:
    return Session(header(**changes), clock=Ticks())


def in_step(turn: int = 1, step: int = 1) -> Session:
    """A session inside the first step of its first turn."""
    made = session()
    made.append("turn/start", {"turn": turn})
    made.append("step/start", {"turn": turn, "step": step})
    return made


def after_turn() -> Session:
    """A session whose first turn, of one step, has ended."""
    made = in_step()
    made.append("step/end", {"turn": 1, "step": 1})
    made.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return made


def prompt(text: str = "say hi", id: str = "m-1") -> Message:  # noqa: A002
    return user_message(text, {"kind": "user"}, id)


def reply(*blocks: JsonObject, id: str = "a-1") -> Message:  # noqa: A002
    return assistant_message(blocks or (text_block("hi!"),), "acme", "acme-1", message_id=id)


IMAGE: dict[str, Any] = {
    "type": "image",
    "attachment": {"attachmentId": "a-1", "mediaType": "image/png", "bytes": 1, "width": 1, "height": 1},
}


def call_block(call_id: str, name: str = "bash", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, text: str = "done", id: str | None = None) -> Message:  # noqa: A002
    return tool_result_message(call_id, [text_block(text)], False, message_id=id or f"r-{call_id}")


def say(log: Session, text: str, id: str) -> int:  # noqa: A002
    """Append a user message and answer its seq."""
    return log.append("user/message", prompt(text, id), surface="append").seq


def call(log: Session, call_id: str, name: str = "bash", arguments: str = "{}") -> int:
    data = {"turn": log.open_turn, "step": log.open_step, "callId": call_id}
    return log.append("tool/call", {**data, "name": name, "arguments": arguments}).seq


def answer(log: Session, call_id: str, call_seq: int, text: str = "done", *, code: str | None = None) -> int:
    """Append the result of a call; with a code that of a failure."""
    data: dict[str, Any] = {
        "turn": log.open_turn,
        "step": log.open_step,
        "message": result(call_id, text),
    }
    if code is not None:
        data["error"] = {"name": "ToolError", "code": code}
    return log.append("tool/result", data, surface="append", sources=[call_seq]).seq


def stored(kind: str, seq: int, data: Any, **envelope: Any) -> dict[str, Any]:
    """An event as a reader decodes it."""
    return {"type": kind, "seq": seq, "time": T0 + seq, "data": data, **envelope}


def as_stored(log: Session) -> list[JsonObject]:
    """The events of a session as their own writer would store them, unpacked."""
    return [decode_strict(encode(event.to_json())) for event in log.events()]


def decode_lines(lines: list[bytes]) -> list[JsonObject | ChunkRun]:
    """The body lines of a log, rows turned into runs."""
    return [row_to_run(value) if is_row(value) else value for value in map(decode_strict, lines)]


def plain(value: Any) -> Any:
    """A frozen value as plain lists and dicts."""
    return decode_strict(encode(value))
