"""The chat-completions wire, outwards: a request body in a server's dialect."""

from collections.abc import Mapping, Sequence
from typing import Any

from dsh.llm.chat.dialect import OFF, Dialect
from dsh.llm.failure import LlmError
from dsh.llm.memo import Seen
from dsh.llm.request import LlmRequest
from dsh.llm.transport.body import encode_wire
from dsh.session.message import Block, Message, ToolSchema

NO_OUTPUT = "(no output)"
NAMELESS = "unknown"
"""The name of a call that its model gave none: servers refuse a history with an empty one."""
BRIDGE = "I have the results of the tools."
"""The assistant's message after results, for servers that want one there."""


class WireMessages:
    """One conversation in a dialect, put into words a piece at a time. State: what later pieces depend on."""

    def __init__(self, dialect: Dialect, provider: str) -> None:
        """
        Args:
            provider: the route, whose own reasoning is told from that of others.
        """
        self._dialect = dialect
        self._provider = provider
        self._last_role = ""
        self._tools: dict[str, str] = {}
        """Names of the tools called, by call id."""

    def system(self, text: str | None) -> list[dict[str, Any]]:
        """The message of the system prompt, if there is any."""
        return [{"role": self._dialect.system_role, "content": text}] if text else []

    def of(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """These messages, which go on where the last ones ended.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`, a message holds an image.
        """
        wire: list[dict[str, Any]] = []
        for message in messages:
            role = message["role"]
            if role == "assistant":
                self._add(self._assistant(message), wire)
            elif role == "system":
                self._add({"role": self._dialect.system_role, "content": _text(message["content"])}, wire)
            else:
                self._user(message, wire)
        return wire

    def _add(self, made: dict[str, Any], wire: list[dict[str, Any]]) -> None:
        role = made["role"]
        if self._dialect.assistant_after_tool and self._last_role == "tool" and role == "user":
            wire.append({"role": "assistant", "content": BRIDGE})
        wire.append(made)
        self._last_role = role

    def _user(self, message: Message, wire: list[dict[str, Any]]) -> None:
        results = [block for block in message["content"] if block["type"] == "tool-result"]
        text = _text(message["content"])
        if text or not results:
            self._add({"role": "user", "content": text}, wire)
        for result in results:
            call_id = result["toolCallId"]
            made = {
                "role": "tool",
                "tool_call_id": call_id,
                "content": _text(result["content"]) or NO_OUTPUT,
            }
            if self._dialect.tool_name and (name := self._tools.get(call_id)):
                made["name"] = name
            self._add(made, wire)

    def _assistant(self, message: Message) -> dict[str, Any]:
        blocks = message["content"]
        wire: dict[str, Any] = {"role": "assistant", "content": _text(blocks)}
        if reasoning := self._reasoning(message):
            if self._dialect.reasoning_replay == "text":
                wire["content"] = "\n\n".join(part for part in (reasoning, wire["content"]) if part)
            else:
                wire[self._dialect.reasoning_replay] = reasoning
        calls = [block for block in blocks if block["type"] == "tool-call"]
        if calls:
            wire["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"] or NAMELESS, "arguments": call["arguments"]},
                }
                for call in calls
            ]
            if self._dialect.tool_name:
                self._tools.update((call["id"], call["name"] or NAMELESS) for call in calls)
        return wire

    def _reasoning(self, message: Message) -> str:
        dialect, source = self._dialect, message["source"]
        if dialect.reasoning_replay == "none":
            return ""
        if not dialect.foreign_reasoning and source.get("provider") != self._provider:
            return ""
        return "".join(block["text"] for block in message["content"] if block["type"] == "reasoning")


class WireHistory:
    """The `messages` array of one conversation as JSON. State: the text of the messages so far."""

    def __init__(self, dialect: Dialect, provider: str) -> None:
        self._dialect = dialect
        self._provider = provider
        self._wire = WireMessages(dialect, provider)
        self._seen = Seen()
        self._text = bytearray()

    def members(self, system: str | None, messages: tuple[Message, ...]) -> tuple[bytes, bytearray]:
        """The members of the array, compact in UTF-8: the system text, and the messages, which are not the
        caller's to keep. Only what is new is put into words again.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`, a message holds an image.
        """
        count = self._seen.count(messages)
        if not count:
            self._wire = WireMessages(self._dialect, self._provider)
            self._text.clear()
        self._seen.note(())  # what fails here begins again from the start
        added = _members(self._wire.of(messages[count:]))
        if self._text and added:
            self._text += b","
        self._text += added
        self._seen.note(messages)
        head = _members(self._wire.system(system))
        return head + b"," if head and self._text else head, self._text


def _members(items: list[dict[str, Any]]) -> bytes:
    """The members of a JSON array, without its brackets."""
    return encode_wire(items)[1:-1]


def wire_tools(tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """The `tools` array."""
    return [
        {
            "type": "function",
            "function": tool.to_json(),
        }
        for tool in tools
    ]


def request_body(
    request: LlmRequest,
    dialect: Dialect,
    history: WireHistory,
    *,
    thinking: bool | None = None,
    effort: str | None = None,
) -> bytes:
    """The JSON body, compact in UTF-8, keys in the order that goes out; what is absent is left out
    (`spec/llm.md` §4.1).

    Args:
        history: what is remembered of the conversation's messages, in the same dialect.
        thinking: whether the model is to think; None: as the server likes.
        effort: how hard, by our name; one of the dialect's.

    Raises:
        LlmError: `UNSUPPORTED_CONTENT`.
    """
    config = request.config
    settings: dict[str, Any] = {"stream": True}
    if dialect.stream_options:
        settings["stream_options"] = {"include_usage": True}
    settings.update(_thinking(dialect, thinking, effort))
    if request.tools:
        settings["tools"] = wire_tools(request.tools)
    if config.temperature is not None:
        settings["temperature"] = config.temperature
    if config.max_tokens is not None:
        settings[dialect.max_tokens_field] = config.max_tokens
    if config.stop is not None:
        settings["stop"] = config.stop
    head = encode_wire({"model": config.model})[:-1]
    members = history.members(request.system, request.messages)
    # one copy of what may be megabytes
    return b"".join((head, b',"messages":[', *members, b"],", encode_wire(settings)[1:]))


def _thinking(dialect: Dialect, thinking: bool | None, effort: str | None) -> Mapping[str, Any]:
    """The members that say whether and how hard to think."""
    spelling = dialect.effort_map.get(effort) if effort is not None else None
    style = dialect.thinking_style
    if style == "reasoning":
        if thinking is False:
            return {"reasoning": {"effort": dialect.effort_map.get(OFF) or "none"}}
        if spelling:
            return {"reasoning": {"effort": spelling}}
        return {} if thinking is None else {"reasoning": {"enabled": True}}
    made: dict[str, Any] = {}
    if thinking is not None:
        if style == "thinking":
            made["thinking"] = {"type": "enabled" if thinking else "disabled"}
        elif style == "enable_thinking":
            made["enable_thinking"] = thinking
        elif style == "chat_template_kwargs":
            made["chat_template_kwargs"] = {"enable_thinking": thinking}
    if thinking is False:
        spelling = dialect.effort_map.get(OFF)
    if spelling:
        made["reasoning_effort"] = spelling
    return made


def _text(blocks: Sequence[Block]) -> str:
    """The text of blocks, joined without anything between; unknown kinds are skipped."""
    pieces = []
    for block in blocks:
        if block["type"] == "text":
            pieces.append(block["text"])
        elif block["type"] == "image":
            raise LlmError.of(
                "UNSUPPORTED_CONTENT", "the history holds an image, and this model takes text only"
            )
    return "".join(pieces)
