"""Plain values for the tests of this folder; a test changes what it is about."""

import json
from collections.abc import Mapping
from typing import Any

from dsh.llm.chat.translator import USUAL, ChatTranslator, ReplyRules
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.llm.transport.wording import presentable
from dsh.session.chunk import Chunk, Finish
from dsh.session.message import Message, ToolSchema, assistant_message, tool_result_message, user_message

TEXT_BLOCK = {"type": "text", "text": "hi"}


def request(*messages: Message, **changes: Any) -> LlmRequest:
    config = LlmCallConfig("deepseek-official", "deepseek-v4-flash")
    fields: dict[str, Any] = {"config": config, "messages": messages or (user("hello"),), **changes}
    return LlmRequest(**fields)


def user(text: str) -> Message:
    return user_message(text)


def assistant(*blocks: Mapping[str, Any]) -> Message:
    return assistant_message(blocks, provider="deepseek-official", model="deepseek-v4-flash")


def result(call_id: str, text: str, *, is_error: bool = False) -> Message:
    return tool_result_message(call_id, [{"type": "text", "text": text}], is_error=is_error)


def tool_call(call_id: str = "c1", name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "text": text}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def schema(name: str = "read") -> ToolSchema:
    return ToolSchema(name, f"the tool {name}", {"type": "object", "properties": {}})


def delta(finish: str | None = None, usage: Any = None, **members: Any) -> bytes:
    """The payload of an event with one choice."""
    event: dict[str, Any] = {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}
    if usage is not None:
        event["usage"] = usage
    return json.dumps(event).encode()


def calls(*fragments: Mapping[str, Any]) -> bytes:
    """The payload of an event with fragments of tool calls."""
    return delta(tool_calls=list(fragments))


def fragment(arguments: Any = None, *, name: str | None = None, **members: Any) -> dict[str, Any]:
    function: dict[str, Any] = {}
    if name is not None:
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    return {**members, "function": function}


class PlainFailures:
    """Implements `Failures` without a server's answer around it."""

    def in_band(self, error: Any) -> LlmFailure:
        return LlmFailure(str(error), "IN_BAND")

    def of_event(self, payload: bytes) -> LlmError:
        return LlmError(LlmFailure(payload.decode(), "EVENT"))

    def shown(self, text: str) -> str:
        return presentable(text)


def translate(*payloads: bytes, rules: ReplyRules = USUAL) -> list[Chunk]:
    """The chunks of a stream that ends as it should. Made-up call ids are `made-1`, `made-2`, …"""
    made = iter(range(1, 100))
    translator = ChatTranslator(PlainFailures(), new_id=lambda: f"made-{next(made)}", rules=rules)
    out: list[Chunk] = []
    for payload in payloads:
        translator.push(b"", payload, out)
    return out + translator.finish()


def reason(chunks: list[Chunk]) -> Mapping[str, Any]:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason
