"""What the mock model server puts on the wire: named behaviours and scripted replies, as lists of steps."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

STREAM_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
}
Outcome = Literal["completed", "reset", "stalled", "client_closed", "server_error"]


class Pause(msgspec.Struct, frozen=True):
    """Send nothing for a while."""

    ms: float


class Reset(msgspec.Struct, frozen=True):
    """Destroy the connection without an orderly end."""


class Stall(msgspec.Struct, frozen=True):
    """Stay silent until the client goes."""


Step: TypeAlias = bytes | Pause | Reset | Stall
"""Bytes are sent as one HTTP chunk."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `status` 0 means that not even a status line is sent."""

    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: STREAM_HEADERS)
    steps: tuple[Step, ...] = ()


class MockOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the behaviours say. Defaults as in `spec/llm.md` §7."""

    success_text: str = "Hello from the mock model."
    partial_text: str = "This reply will break"
    reasoning_text: str = "Thinking about it."
    chunk_size: int = 8
    """Code points per delta."""
    chunk_delay_ms: float = 25
    """Between the deltas of `slow_success`."""
    disconnect_delay_ms: float = 10
    """Between the last bytes and a reset."""
    retry_after_ms: float = 1000
    """Told by `rate_limit`, rounded up to whole seconds."""
    request_id: str = "mock-request-1"
    """`x-request-id` of every answer."""
    tool_name: str = "bash"
    tool_arguments: str = '{"command": "echo mock", "description": "mock call"}'

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size counts code points from 1, found {self.chunk_size}")
        for name in ("chunk_delay_ms", "disconnect_delay_ms", "retry_after_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is a number of milliseconds from 0, found {getattr(self, name)}")


DONE = b"data: [DONE]\n\n"
USAGE: Mapping[str, Any] = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_cache_hit_tokens": 64,
    "prompt_cache_miss_tokens": 36,
}


def event(value: Any) -> bytes:
    """One server-sent event with a JSON payload."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def delta(
    delta: Mapping[str, Any], finish: str | None = None, usage: Mapping[str, Any] | None = None
) -> bytes:
    """A chat-completions chunk with one choice."""
    value: dict[str, Any] = {
        "id": "mock-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if usage is not None:
        value["usage"] = usage
    return event(value)


OPENING = delta({"role": "assistant", "content": None, "reasoning_content": ""})


def pieces(text: str, size: int) -> list[str]:
    """The text cut into pieces of `size` code points."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def texts(text: str, options: MockOptions) -> list[bytes]:
    """The text as content deltas."""
    return [delta({"content": piece}) for piece in pieces(text, options.chunk_size)]


def ending(reason: str = "stop", usage: Mapping[str, Any] | None = USAGE) -> list[bytes]:
    """The chunk that holds the finish reason, and the end of the stream."""
    return [delta({"content": ""}, reason, usage), DONE]


def error_plan(
    status: int, message: str, type_: str, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Plan:
    """An HTTP error with a JSON body."""
    body = {"error": {"message": message, "type": type_, "param": None, "code": code}}
    head = {"content-type": "application/json", **(headers or {})}
    return Plan(status=status, headers=head, steps=(json.dumps(body).encode(),))


def tool_call(call_id: str | None, name: str, arguments: Iterable[str], index: int | None = 0) -> list[bytes]:
    """A tool call: one opening delta, then one for each piece of its arguments."""
    place = {} if index is None else {"index": index}
    identity = {} if call_id is None else {"id": call_id}
    opening = {**place, **identity, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{**place, "function": {"arguments": piece}} for piece in arguments]
    return [delta({"tool_calls": [fragment]}) for fragment in (opening, *rest)]


def scripted(reply: Mapping[str, Any]) -> Plan:
    """The plan of a free-form reply, in the form of the recorded scenarios.

    `reasoning`, `text`: lists of deltas; `tools`: `{id, name, args: [str] | raw + split}`; `finish`; `usage`;
    `repeat`: how often the text is sent; or `status`, `body`, `headers`: an HTTP error; or `raw`: text to
    send as it is, and `cut`: reset afterwards. `delay_ms` stands between the deltas.

    Raises:
        ValueError: an unknown member.
    """
    known = {"reasoning", "text", "tools", "finish", "usage", "repeat", "status", "body", "headers", "raw"}
    if unknown := set(reply) - known - {"cut", "delay_ms", "batch"}:
        raise ValueError(f"scripted reply: unknown members {sorted(unknown)}; known are {sorted(known)}")
    if "status" in reply:
        body = reply.get("body", {"error": {"message": "scripted"}})
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **reply.get("headers", {})}
        return Plan(status=reply["status"], headers=headers, steps=(raw,))
    sent: list[bytes]
    if "raw" in reply:
        sent = [text.encode("utf-8", "surrogateescape") for text in reply["raw"]]
    else:
        sent = _deltas(reply)
    steps: list[Step] = []
    for item in sent:
        steps.append(item)
        if reply.get("delay_ms"):
            steps.append(Pause(reply["delay_ms"]))
    if reply.get("cut"):
        steps.append(Reset())
    return Plan(steps=tuple(steps))


def _deltas(reply: Mapping[str, Any]) -> list[bytes]:
    sent = [OPENING]
    sent += [delta({"content": None, "reasoning_content": piece}) for piece in reply.get("reasoning", ())]
    sent += [delta({"content": piece}) for piece in reply.get("text", ())] * reply.get("repeat", 1)
    for index, call in enumerate(reply.get("tools", ())):
        arguments = call["args"] if "args" in call else pieces(call["raw"], call["split"]) or [""]
        sent += tool_call(call["id"], call["name"], arguments, index)
    reason = reply.get("finish") or ("tool_calls" if reply.get("tools") else "stop")
    return sent + ending(reason, reply.get("usage", USAGE))


Behaviour: TypeAlias = Callable[[MockOptions], Plan]
