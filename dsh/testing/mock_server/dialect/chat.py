"""The chat-completions wire, as DeepSeek writes it and as OpenAI does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

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

DONE = b"data: [DONE]\n\n"
REASONS = {
    "tool-calls": "tool_calls",
    "max-tokens": "length",
    "refusal": "content_filter",
    "overflow": "length",
    "resource": "insufficient_system_resource",
}
ERRORS: Mapping[str, tuple[int, str, str, str | None]] = {
    "rate_limit": (429, "Rate limit reached for requests", "rate_limit_error", "rate_limit_exceeded"),
    "server_error": (500, "The server had an error", "server_error", None),
    "service_unavailable": (503, "The engine is overloaded", "server_error", None),
    "overloaded": (529, "The engine is overloaded", "server_error", None),
    "auth_error": (401, "Incorrect API key", "authentication_error", "invalid_api_key"),
    "permission": (403, "You are not allowed to use this model", "permission_error", None),
    "not_found": (404, "The model `m` does not exist", "invalid_request_error", "model_not_found"),
    "invalid_request": (400, "Invalid request", "invalid_request_error", None),
    "too_large": (413, "The request is too large", "invalid_request_error", None),
    "context_overflow": (
        400,
        "This model's maximum context length is 131072 tokens.",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "quota_exceeded": (429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
    "request_timeout": (408, "Request timed out", "timeout", None),
    "too_early": (425, "Too early", "too_early", None),
}
"""By kind: status, message, type, code."""


def delta(
    delta: Mapping[str, Any], finish: str | None = None, usage: Mapping[str, Any] | None = None
) -> bytes:
    """A chunk with one choice."""
    value = _chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])
    if usage is not None:
        value["usage"] = usage
    return event(value)


def _chunk(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "id": "mock-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "choices": choices,
    }


def tool_call(call_id: str | None, name: str, arguments: Iterable[str], index: int | None = 0) -> list[bytes]:
    """A tool call: one opening delta, then one for each fragment of its arguments."""
    place = {} if index is None else {"index": index}
    identity = {} if call_id is None else {"id": call_id}
    opening = {**place, **identity, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{**place, "function": {"arguments": piece}} for piece in arguments]
    return [delta({"tool_calls": [fragment]}) for fragment in (opening, *rest)]


class ChatDialect(msgspec.Struct, frozen=True):
    """DeepSeek: `reasoning_content`, cache hits and misses. OpenAI: `reasoning`, details, usage last."""

    name: Literal["deepseek", "openai"] = "deepseek"
    tells_usage: bool = True

    @property
    def path(self) -> str:
        return "/chat/completions"

    @property
    def garbled(self) -> bytes:
        return b"data: {not-json\n\n"

    @property
    def malformed(self) -> bytes:
        return event({"choices": [None]})

    @property
    def reasoning_field(self) -> str:
        return "reasoning_content" if self.name == "deepseek" else "reasoning"

    def steps(self, parts: Iterable[Part]) -> list[Step]:
        sent: list[Step] = []
        calls = 0
        for part in parts:
            if isinstance(part, Opening):
                sent.append(self._opening())
            elif isinstance(part, Text):
                sent.append(delta({"content": part.text}))
            elif isinstance(part, Reasoning):
                sent.append(self._reasoning(part.text))
            elif isinstance(part, Call):
                sent += tool_call(part.id, part.name, part.fragments, calls)
                calls += 1
            elif isinstance(part, Finish):
                sent += self._finish(part)
            elif isinstance(part, End):
                sent.append(DONE)
            elif isinstance(part, Fault):
                sent.append(event(self.fault(part)[1]))
            elif not isinstance(part, Redacted):
                sent.append(part)
        return sent

    def _opening(self) -> bytes:
        opening: dict[str, Any] = {"role": "assistant", "content": None}
        return delta({**opening, "reasoning_content": ""} if self.name == "deepseek" else opening)

    def _reasoning(self, text: str) -> bytes:
        return delta({self.reasoning_field: text})

    def _finish(self, part: Finish) -> list[bytes]:
        reason = REASONS.get(part.reason, part.reason)
        usage = self.usage(part.usage) if isinstance(part.usage, Usage) else part.usage
        if self.name == "deepseek":
            return [delta({"content": ""}, reason, usage)]
        if usage is None or not self.tells_usage:
            return [delta({}, reason)]
        return [delta({}, reason), event({**_chunk([]), "usage": usage})]

    def usage(self, used: Usage) -> dict[str, Any]:
        """The counts in this server's names: cached tokens are part of the prompt."""
        prompt = used.uncached + used.cache_read + used.cache_write
        counts: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": used.output,
            "total_tokens": prompt + used.output,
        }
        if self.name == "deepseek":
            counts["prompt_cache_hit_tokens"] = used.cache_read
            counts["prompt_cache_miss_tokens"] = prompt - used.cache_read
        else:
            counts["prompt_tokens_details"] = {"cached_tokens": used.cache_read}
        if used.reasoning or self.name == "openai":
            counts["completion_tokens_details"] = {"reasoning_tokens": used.reasoning}
        return counts

    def asked(self, request: Any) -> "ChatDialect":
        options = request.get("stream_options") if isinstance(request, Mapping) else None
        wants = isinstance(options, Mapping) and options.get("include_usage") is True
        return msgspec.structs.replace(self, tells_usage=wants) if self.name == "openai" else self

    def fault(self, fault: Fault) -> tuple[int, Any]:
        status, message, type_, code = ERRORS[fault.kind]
        return status, _body(fault.message or message, type_, code)

    def failure(self, status: int, message: str, code: str = "") -> Any:
        kinds = {401: "authentication_error", 500: "mock"}
        return _body(message, kinds.get(status, "invalid_request_error"), code or None)

    def key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        return key if scheme == "Bearer" else None

    def models(self, ids: Sequence[str]) -> Any:
        entries = [{"id": one, "object": "model", "created": 1, "owned_by": "mock"} for one in ids]
        return {"object": "list", "data": entries}

    def request_id(self, value: str) -> Mapping[str, str]:
        return {"x-request-id": value}


def _body(message: str, type_: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


DEEPSEEK = ChatDialect("deepseek")
OPENAI = ChatDialect("openai")
