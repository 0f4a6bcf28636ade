"""What the Anthropic Messages API demands of a request."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dsh.testing.mock_server.dialect.anthropic import signature
from dsh.testing.mock_server.strict.look import (
    count,
    filled,
    items,
    mapping,
    need,
    number,
    one_of,
    only,
    string,
)
from dsh.testing.mock_server.strict.rules import Issued, Rules

FIELDS = (
    *("model", "max_tokens", "system", "messages", "tools", "tool_choice", "stream", "stop_sequences"),
    *("temperature", "top_p", "top_k", "thinking", "metadata", "service_tier", "container"),
    *("context_management", "output_config"),
)
ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
MIN_BUDGET_TOKENS = 1024
MAX_CACHE_MARKERS = 4
BLOCKS = {
    "text": ("type", "text", "cache_control"),
    "image": ("type", "source", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
}
THINKING = ("thinking", "redacted_thinking")
OF_ROLE = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def check_anthropic(body: object, headers: Mapping[str, str], rules: Rules, issued: Issued) -> None:
    """
    Raises:
        RequestProblem: what is wrong.
    """
    need("anthropic-version" in headers, "anthropic-version: header is required")
    request = mapping(body, "body")
    only(request, "", FIELDS)
    for field in rules.refuses:
        need(field not in request, f"{field}: extra inputs are not permitted")
    need(string(request.get("model"), "model") != "", "model: it is empty")
    need(request.get("stream") is True, "stream: this server only streams")
    limit = count(request.get("max_tokens"), "max_tokens")
    has_budget = _thinking(request, limit)
    _options(request)
    _system(request)
    _tools(request)
    messages = [
        mapping(one, f"messages.{at}") for at, one in enumerate(items(request.get("messages"), "messages"))
    ]
    for at, message in enumerate(messages):
        _message(message, at)
    _answers(messages)
    markers = sum(1 for _ in _markers(request))
    need(
        markers <= MAX_CACHE_MARKERS,
        f"at most {MAX_CACHE_MARKERS} blocks with cache_control, found {markers}",
    )
    if has_budget and rules.demands_reasoning is not False:
        _passed_back(messages, request["model"], issued)


def _thinking(request: Mapping[str, Any], limit: int) -> bool:
    """Whether the model thinks by a budget, which binds it to the thinking of the calls under way."""
    if "thinking" not in request:
        return False
    thinking = mapping(request["thinking"], "thinking")
    kind = one_of(thinking.get("type"), "thinking.type", ("enabled", "disabled", "adaptive", "between_tools"))
    if kind in ("disabled", "between_tools"):
        only(thinking, "thinking.", ("type",))
        return False
    if kind == "enabled":
        budget = count(thinking.get("budget_tokens"), "thinking.budget_tokens", least=MIN_BUDGET_TOKENS)
        need(budget < limit, f"max_tokens: {limit} must be greater than thinking.budget_tokens, {budget}")
    need(request.get("temperature", 1) == 1, "temperature: it may only be 1 when thinking is enabled")
    need("top_k" not in request, "top_k: it must be unset when thinking is enabled")
    choice = mapping(request.get("tool_choice", {"type": "auto"}), "tool_choice")
    need(
        choice.get("type") in ("auto", "none"),
        "tool_choice: thinking may not be enabled when it forces a tool",
    )
    return kind == "enabled"


def _options(request: Mapping[str, Any]) -> None:
    if "temperature" in request:
        number(request["temperature"], "temperature", 0, 1)
    for at, one in enumerate(items(request.get("stop_sequences", ["."]), "stop_sequences")):
        filled(one, f"stop_sequences.{at}")
    if "metadata" in request:
        only(mapping(request["metadata"], "metadata"), "metadata.", ("user_id",))


def _system(request: Mapping[str, Any]) -> None:
    system = request.get("system", "-")
    if isinstance(system, str):
        filled(system, "system")
        return
    for at, one in enumerate(items(system, "system")):
        need(mapping(one, f"system.{at}").get("type") == "text", f"system.{at}.type: expected text")
        _block(one, f"system.{at}")


def _tools(request: Mapping[str, Any]) -> None:
    if "tools" not in request:
        need("tool_choice" not in request, "tool_choice: it may only be set where there are tools")
        return
    names = []
    for at, one in enumerate(items(request["tools"], "tools")):
        tool = mapping(one, f"tools.{at}")
        only(tool, f"tools.{at}.", ("name", "description", "input_schema", "cache_control", "type"))
        name = string(tool.get("name"), f"tools.{at}.name")
        need(bool(TOOL_NAME.match(name)), f"tools.{at}.name: {name!r} does not match {TOOL_NAME.pattern}")
        schema = mapping(tool.get("input_schema"), f"tools.{at}.input_schema")
        need(schema.get("type") == "object", f"tools.{at}.input_schema.type: expected object")
        names.append(name)
    need(len(names) == len(set(names)), "tools: tool names must be unique")


def _message(message: Mapping[str, Any], at: int) -> None:
    where = f"messages.{at}"
    only(message, f"{where}.", ("role", "content"))
    role = one_of(message.get("role"), f"{where}.role", ("user", "assistant"))
    expected = "assistant" if at % 2 else "user"
    need(role == expected, f"{where}.role: roles must alternate, beginning with user; found {role}")
    content = message.get("content")
    if isinstance(content, str):
        filled(content, f"{where}.content")
        return
    blocks = items(content, f"{where}.content")
    for number_, one in enumerate(blocks):
        place = f"{where}.content.{number_}"
        kind = one_of(mapping(one, place).get("type"), f"{place}.type", OF_ROLE[role])
        _block(one, place)
        is_last = number_ == len(blocks) - 1
        need(not (is_last and kind in THINKING), f"{place}: the final block cannot be thinking")


def _block(block: Mapping[str, Any], where: str) -> None:
    kind = block["type"]
    only(block, f"{where}.", BLOCKS[kind])
    if kind == "text":
        filled(block.get("text"), f"{where}.text")
    elif kind == "thinking":
        thinking = string(block.get("thinking"), f"{where}.thinking")
        signed = string(block.get("signature"), f"{where}.signature")
        need(signed == signature(thinking), f"{where}.signature: invalid signature in thinking block")
    elif kind == "redacted_thinking":
        need(string(block.get("data"), f"{where}.data") != "", f"{where}.data: it is empty")
    elif kind == "tool_use":
        need(
            bool(ID.match(string(block.get("id"), f"{where}.id"))), f"{where}.id: it must match {ID.pattern}"
        )
        need(string(block.get("name"), f"{where}.name") != "", f"{where}.name: it is empty")
        mapping(block.get("input"), f"{where}.input")
    elif kind == "tool_result":
        _result(block, where)
    if "cache_control" in block:
        marker = mapping(block["cache_control"], f"{where}.cache_control")
        need(marker.get("type") == "ephemeral", f"{where}.cache_control.type: expected ephemeral")


def _result(block: Mapping[str, Any], where: str) -> None:
    string(block.get("tool_use_id"), f"{where}.tool_use_id")
    need(isinstance(block.get("is_error", False), bool), f"{where}.is_error: expected a boolean")
    content = block.get("content")
    if isinstance(content, str):
        filled(content, f"{where}.content")
        return
    for at, one in enumerate(items(content, f"{where}.content")):
        inner = mapping(one, f"{where}.content.{at}")
        one_of(inner.get("type"), f"{where}.content.{at}.type", ("text", "image"))
        _block(inner, f"{where}.content.{at}")


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _answers(messages: list[Mapping[str, Any]]) -> None:
    """Results stand first in the message after their calls, one for each of them; ids are used once."""
    waiting: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        kinds = [block["type"] for block in _blocks(message)]
        if message["role"] == "assistant":
            waiting = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
            doubled = seen.intersection(waiting) or len(waiting) != len(set(waiting))
            need(not doubled, f"messages.{at}: `tool_use` ids must be unique")
            seen.update(waiting)
            continue
        found = [block["tool_use_id"] for block in _blocks(message) if block["type"] == "tool_result"]
        need(
            sorted(found) == sorted(waiting),
            f"messages.{at}: the calls {waiting} need one `tool_result` each, found {found}",
        )
        need(
            set(kinds[: len(found)]) <= {"tool_result"},
            f"messages.{at}: `tool_result` blocks must come first",
        )
        waiting = []
    need(messages[-1]["role"] == "user", "the conversation must end with a user message")


def _markers(value: object) -> Iterator[object]:
    """Every cache marker, at any depth; a tool's arguments and schema are not looked into."""
    if isinstance(value, Mapping):
        if "cache_control" in value:
            yield value["cache_control"]
        for name, inner in value.items():
            if name not in ("input", "input_schema"):
                yield from _markers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _markers(inner)


def _passed_back(messages: list[Mapping[str, Any]], model: str, issued: Issued) -> None:
    """The thinking before the tool calls that are still going on."""
    for at in range(len(messages) - 1, 0, -2):
        if not any(block["type"] == "tool_result" for block in _blocks(messages[at])):
            return
        blocks = _blocks(messages[at - 1])
        found = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
        for block in blocks:
            known = issued.reasoning(model, block["id"]) if block["type"] == "tool_use" else frozenset()
            need(
                not known or found in known,
                f"messages.{at - 1}: the thinking before the call {block.get('id')!r} must be passed back",
            )
