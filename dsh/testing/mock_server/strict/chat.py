"""What a chat-completions server demands of a request."""

import re
from collections.abc import Mapping
from typing import Any

from dsh.testing.mock_server.strict.look import count, items, mapping, need, number, one_of, only, string
from dsh.testing.mock_server.strict.rules import Issued, Rules

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_SHARED = (
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"),
    *("temperature", "top_p", "max_tokens", "stop", "reasoning_effort", "thinking", "user"),
    *("frequency_penalty", "presence_penalty", "response_format", "logprobs", "top_logprobs"),
)
FIELDS = {
    "deepseek": _SHARED,
    "openai": (
        *_SHARED,
        *("max_completion_tokens", "n", "seed", "metadata", "store", "service_tier", "prompt_cache_key"),
        *("verbosity", "safety_identifier", "chat_template_kwargs", "enable_thinking", "think"),
        *("reasoning", "include_reasoning", "provider", "transforms", "usage", "options", "keep_alive"),
        *("top_k", "min_p", "repetition_penalty"),
    ),
}
"""The second list is what OpenAI and the servers that speak as it does know between them."""
ROLES = {
    "deepseek": ("system", "user", "assistant", "tool"),
    "openai": ("system", "developer", "user", "assistant", "tool"),
}
EFFORTS = {
    "deepseek": ("low", "medium", "high", "max"),
    "openai": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
}
MESSAGE = {
    "system": ("role", "content", "name"),
    "developer": ("role", "content", "name"),
    "user": ("role", "content", "name"),
    "assistant": ("role", "content", "name", "tool_calls", "reasoning_content", "reasoning"),
    "tool": ("role", "content", "tool_call_id", "name"),
}

REFUSABLE = frozenset(
    {
        *FIELDS["openai"],
        *(f"messages.{field}" for fields in MESSAGE.values() for field in fields),
        *(f"role:{role}" for role in MESSAGE),
    }
)
"""What `Rules.refuses` can name."""


def check_chat(body: object, spelling: str, rules: Rules, issued: Issued) -> None:
    """
    Raises:
        RequestProblem: what is wrong.
    """
    request = mapping(body, "body")
    only(request, "", FIELDS[spelling])
    for field in rules.refuses:
        need(field not in request, f"unsupported parameter: {field!r}")
    need(string(request.get("model"), "model") != "", "model: it is empty")
    need(request.get("stream") is True, "stream: this server only streams")
    _options(request, spelling)
    _tools(request)
    messages = [
        mapping(one, f"messages.{at}") for at, one in enumerate(items(request.get("messages"), "messages"))
    ]
    for at, message in enumerate(messages):
        _message(message, f"messages.{at}", spelling, rules)
    _answers(messages, rules)
    demands = spelling == "deepseek" if rules.demands_reasoning is None else rules.demands_reasoning
    if demands and mapping(request.get("thinking", {}), "thinking").get("type") != "disabled":
        _reasoning(messages, request["model"], issued)


def _options(request: Mapping[str, Any], spelling: str) -> None:
    for field in ("max_tokens", "max_completion_tokens"):
        if field in request:
            count(request[field], field)
    need(
        not {"max_tokens", "max_completion_tokens"} <= set(request),
        "max_tokens and max_completion_tokens exclude each other",
    )
    if "temperature" in request:
        number(request["temperature"], "temperature", 0, 2)
    if "stop" in request and not isinstance(request["stop"], str):
        for at, one in enumerate(items(request["stop"], "stop")):
            string(one, f"stop.{at}")
        need(len(request["stop"]) <= 16, "stop: at most 16")
    if "stream_options" in request:
        only(mapping(request["stream_options"], "stream_options"), "stream_options.", ("include_usage",))
    if "reasoning_effort" in request:
        one_of(request["reasoning_effort"], "reasoning_effort", EFFORTS[spelling])
    if "thinking" in request:
        kind = mapping(request["thinking"], "thinking").get("type")
        one_of(kind, "thinking.type", ("enabled", "disabled", "adaptive"))
        need(
            kind != "disabled" or "reasoning_effort" not in request, "reasoning_effort: thinking is disabled"
        )


def _tools(request: Mapping[str, Any]) -> None:
    if "tools" not in request:
        need("tool_choice" not in request, "tool_choice: there are no tools")
        return
    names = []
    for at, one in enumerate(items(request["tools"], "tools")):
        tool = mapping(one, f"tools.{at}")
        need(tool.get("type") == "function", f"tools.{at}.type: expected function")
        function = mapping(tool.get("function"), f"tools.{at}.function")
        name = string(function.get("name"), f"tools.{at}.function.name")
        need(
            bool(TOOL_NAME.match(name)),
            f"tools.{at}.function.name: {name!r} does not match {TOOL_NAME.pattern}",
        )
        mapping(function.get("parameters", {}), f"tools.{at}.function.parameters")
        names.append(name)
    need(len(names) == len(set(names)), "tools: names must be unique")


def _message(message: Mapping[str, Any], where: str, spelling: str, rules: Rules) -> None:
    role = one_of(message.get("role"), f"{where}.role", ROLES[spelling])
    need(f"role:{role}" not in rules.refuses, f"{where}.role: {role!r} is not known here")
    only(message, f"{where}.", MESSAGE[role])
    for field in message:
        need(f"messages.{field}" not in rules.refuses, f"{where}.{field}: it is not known here")
    if role == "assistant":
        _assistant(message, where, spelling)
        return
    _content(message.get("content"), f"{where}.content")
    if role == "tool":
        string(message.get("tool_call_id"), f"{where}.tool_call_id")
        need("name" in message or not rules.demands_tool_name, f"{where}.name: a tool message needs it")


def _content(content: object, where: str) -> None:
    if isinstance(content, str):
        return
    for at, one in enumerate(items(content, where)):
        string(mapping(one, f"{where}.{at}").get("text"), f"{where}.{at}.text")


def _assistant(message: Mapping[str, Any], where: str, spelling: str) -> None:
    calls = items(message["tool_calls"], f"{where}.tool_calls") if "tool_calls" in message else []
    content = message.get("content")
    if spelling == "deepseek" or not (calls and content is None):
        _content(content, f"{where}.content")
    for field in ("reasoning_content", "reasoning"):
        if field in message:
            string(message[field], f"{where}.{field}")
    for at, one in enumerate(calls):
        place = f"{where}.tool_calls.{at}"
        call = mapping(one, place)
        need(string(call.get("id"), f"{place}.id") != "", f"{place}.id: it is empty")
        need(call.get("type") == "function", f"{place}.type: expected function")
        function = mapping(call.get("function"), f"{place}.function")
        need(
            string(function.get("name"), f"{place}.function.name") != "",
            f"{place}.function.name: it is empty",
        )
        string(function.get("arguments"), f"{place}.function.arguments")


def _answers(messages: list[Mapping[str, Any]], rules: Rules) -> None:
    """Every call has one answer, directly after the message that made it."""
    waiting: list[str] = []
    before = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            call_id = message["tool_call_id"]
            need(call_id in waiting, f"messages.{at}: no call before it has the id {call_id!r}")
            waiting.remove(call_id)
        else:
            need(not waiting, f"messages.{at}: the calls {waiting} are not answered before it")
            if rules.demands_assistant_after_tool:
                need((before, role) != ("tool", "user"), f"messages.{at}: role user after role tool")
        if role == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls", ())]
            need(len(waiting) == len(set(waiting)), f"messages.{at}.tool_calls: ids must be unique")
        before = role
    need(not waiting, f"the calls {waiting} are not answered")


def _reasoning(messages: list[Mapping[str, Any]], model: str, issued: Issued) -> None:
    for at, message in enumerate(messages):
        found = message.get("reasoning_content", "")
        for call in message.get("tool_calls", ()):
            known = issued.reasoning(model, call["id"])
            need(
                not known or found in known,
                f"messages.{at}.reasoning_content: that before the call {call['id']!r} must be passed back",
            )
