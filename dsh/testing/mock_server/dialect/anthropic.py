"""The Anthropic Messages wire: named events, numbered blocks, signed thinking."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dsh.testing.mock_server.dialect.sse import event
from dsh.testing.mock_server.part import (
    Call,
    End,
    Fault,
    Finish,
    Opening,
    Part,
    Reasoning,
    Redacted,
    Text,
    Usage,
)
from dsh.testing.mock_server.plan import Step

REASONS = {
    "stop": "end_turn",
    "tool-calls": "tool_use",
    "max-tokens": "max_tokens",
    "pause": "pause_turn",
    "overflow": "model_context_window_exceeded",
}
ERRORS: Mapping[str, tuple[int, str, str]] = {
    "rate_limit": (429, "This request would exceed your rate limit", "rate_limit_error"),
    "server_error": (500, "Internal server error", "api_error"),
    "service_unavailable": (503, "Service unavailable", "api_error"),
    "overloaded": (529, "Overloaded", "overloaded_error"),
    "auth_error": (401, "invalid x-api-key", "authentication_error"),
    "permission": (403, "Your API key may not use this model", "permission_error"),
    "not_found": (404, "model: m", "not_found_error"),
    "invalid_request": (400, "Invalid request", "invalid_request_error"),
    "too_large": (413, "Request exceeds the maximum size", "request_too_large"),
    "context_overflow": (
        400,
        "prompt is too long: 210000 tokens > 200000 maximum",
        "invalid_request_error",
    ),
    "quota_exceeded": (
        400,
        "Your credit balance is too low to access the Anthropic API.",
        "invalid_request_error",
    ),
    "request_timeout": (408, "Request timed out", "timeout_error"),
    "too_early": (425, "Too early", "api_error"),
}
"""By kind: status, message, type."""
PING = event({"type": "ping"}, "ping")


def signature(thinking: str) -> str:
    """What this server signs a block of thinking with, so that it knows its own when they come back."""
    return "mock-sig-" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def typed(value: Mapping[str, Any]) -> bytes:
    """An event that is named as its payload says."""
    return event(value, str(value["type"]))


class _Writer:
    """One reply under way: which block is open, and how many there were."""

    def __init__(self, used: Usage) -> None:
        self.sent: list[Step] = []
        self._used = used
        self._next = 0
        self._open: str | None = None
        self._thinking = ""

    def put(self, part: Part) -> None:
        if isinstance(part, Opening):
            self._start()
        elif isinstance(part, Text):
            self._enter("text", {"type": "text", "text": ""})
            self._delta({"type": "text_delta", "text": part.text})
        elif isinstance(part, Reasoning):
            self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            self._thinking += part.text
            self._delta({"type": "thinking_delta", "thinking": part.text})
        elif isinstance(part, Redacted):
            self._enter("", {"type": "redacted_thinking", "data": part.data})
        elif isinstance(part, Call):
            self._enter("", {"type": "tool_use", "id": part.id, "name": part.name, "input": {}})
            for fragment in part.fragments:
                self._delta({"type": "input_json_delta", "partial_json": fragment})
        elif isinstance(part, Finish):
            self._finish(part)
        elif isinstance(part, End):
            self.sent.append(typed({"type": "message_stop"}))
        elif isinstance(part, Fault):
            self.sent.append(typed(_error_body(part)))
        else:
            self.sent.append(part)

    def _start(self) -> None:
        message: dict[str, Any] = {
            "id": "msg_mock_1",
            "type": "message",
            "role": "assistant",
            "model": "mock",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**input_usage(self._used), "output_tokens": 1},
        }
        self.sent.append(typed({"type": "message_start", "message": message}))

    def _enter(self, kind: str, block: Mapping[str, Any]) -> None:
        """Go on in the open block of that kind, or close it and begin a new one."""
        if self._open is not None and self._open == kind != "":
            return
        self._leave()
        self._open = kind
        self.sent.append(typed({"type": "content_block_start", "index": self._next, "content_block": block}))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        self.sent.append(typed({"type": "content_block_delta", "index": self._next, "delta": delta}))

    def _leave(self) -> None:
        if self._open is None:
            return
        if self._open == "thinking":
            self._delta({"type": "signature_delta", "signature": signature(self._thinking)})
            self._thinking = ""
        self.sent.append(typed({"type": "content_block_stop", "index": self._next}))
        self._open = None
        self._next += 1

    def _finish(self, part: Finish) -> None:
        self._leave()
        usage = {"output_tokens": part.usage.output} if isinstance(part.usage, Usage) else part.usage
        value: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": REASONS.get(part.reason, part.reason), "stop_sequence": None},
        }
        self.sent.append(typed(value if usage is None else {**value, "usage": usage}))


def input_usage(used: Usage) -> dict[str, int]:
    """What goes in, in disjoint counts."""
    return {
        "input_tokens": used.uncached,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
    }


class AnthropicDialect(msgspec.Struct, frozen=True):
    """Anthropic's Messages API."""

    @property
    def name(self) -> str:
        return "anthropic"

    @property
    def path(self) -> str:
        return "/messages"

    @property
    def garbled(self) -> bytes:
        return b"event: content_block_delta\ndata: {not-json\n\n"

    @property
    def malformed(self) -> bytes:
        return typed({"type": "content_block_delta", "index": "first", "delta": None})

    def steps(self, parts: Iterable[Part]) -> list[Step]:
        said = list(parts)
        told = [part.usage for part in said if isinstance(part, Finish) and isinstance(part.usage, Usage)]
        writer = _Writer(told[0] if told else Usage())
        for part in said:
            writer.put(part)
        return writer.sent

    def asked(self, request: Any) -> "AnthropicDialect":
        return self

    def fault(self, fault: Fault) -> tuple[int, Any]:
        return ERRORS[fault.kind][0], _error_body(fault)

    def failure(self, status: int, message: str, code: str = "") -> Any:
        kinds = {401: "authentication_error", 404: "not_found_error", 500: "api_error"}
        return _body(f"{code}: {message}" if code else message, kinds.get(status, "invalid_request_error"))

    def key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return headers.get("x-api-key", token if scheme == "Bearer" else None)

    def models(self, ids: Sequence[str]) -> Any:
        entries = [
            {"type": "model", "id": one, "display_name": one.title(), "created_at": "2026-01-01T00:00:00Z"}
            for one in ids
        ]
        ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
        return {"data": entries, "has_more": False, **ends}

    def request_id(self, value: str) -> Mapping[str, str]:
        return {"request-id": value}


def _body(message: str, type_: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "message": message}}


def _error_body(fault: Fault) -> dict[str, Any]:
    _, message, type_ = ERRORS[fault.kind]
    return _body(fault.message or message, type_)


ANTHROPIC = AnthropicDialect()
