"""The Messages wire, outwards: the body of a request."""

from typing import Any

import msgspec

from dsh.llm.anthropic.history import WireHistory
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.transport.body import encode_wire

MARKERS: dict[str, dict[str, str] | None] = {
    "none": None,
    "short": {"type": "ephemeral"},
    "long": {"type": "ephemeral", "ttl": "1h"},
}
"""`cache_control` by retention."""


def request_body(request: LlmRequest, route: AnthropicRoute, history: WireHistory) -> bytes:
    """The JSON body, compact in UTF-8; what is absent is left out (`spec/llm.md` §5.1).

    The beginning that stays the same from request to request is marked for the provider's cache at four
    places: the last tool, the system text, the last block of the user's last two messages.

    Args:
        history: what is remembered of the conversation's messages.

    Raises:
        LlmError: `UNSUPPORTED_OPTION`, `UNSUPPORTED_REASONING_EFFORT`, `UNSUPPORTED_CONTENT`.
    """
    config = request.config
    marker = MARKERS[route.cache_retention]
    marked = {} if marker is None else {"cache_control": marker}
    max_tokens = config.max_tokens or route.max_tokens(config.model)
    head: dict[str, Any] = {"model": config.model, "max_tokens": max_tokens}
    if request.system and request.system.strip():
        head["system"] = [{"type": "text", "text": request.system, **marked}]
    rest: dict[str, Any] = {}
    if request.tools:
        rest["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
    member = b"" if marker is None else b',"cache_control":' + msgspec.json.encode(marker)
    frame = encode_wire([request.system, rest]) if route.ways(config.model).is_bound else None
    members = history.members(request.messages, config.provider, config.model, member, frame)
    if request.tools:
        rest["tools"][-1].update(marked)
    rest["stream"] = True
    if config.temperature is not None:
        rest["temperature"] = config.temperature
    if config.stop:
        rest["stop_sequences"] = config.stop
    rest |= _thinking(request, route, max_tokens, history.can_think)
    # one copy of what may be megabytes
    return b"".join((encode_wire(head)[:-1], b',"messages":[', *members, b"],", encode_wire(rest)[1:]))


def _thinking(
    request: LlmRequest, route: AnthropicRoute, max_tokens: int, can_take_budget: bool
) -> dict[str, Any]:
    """The members that make a model think, or keep it from it.

    The title of a session is made without thinking, and so is a summary whose length leaves no room for it.
    """
    config, ways = request.config, route.ways(request.config.model)
    name = f"{config.provider}/{config.model}"
    effort = config.reasoning_effort
    if effort is None:
        effort = route.effort(config.model)
    if effort is not None and effort not in ways.efforts:
        raise LlmError.of(
            "UNSUPPORTED_REASONING_EFFORT",
            f"model {name} has no reasoning effort {effort!r}; it offers: {', '.join(ways.efforts)} "
            f"(thinkingStyle: {ways.style}, thinkingOff: {ways.off})",
        )
    if request.purpose == "session-title":
        return ways.without()
    if config.temperature is not None and effort != "off":
        raise LlmError.of(
            "UNSUPPORTED_OPTION",
            f"temperature cannot be set while {name} thinks; leave it out"
            + ("" if ways.off == "never" else ", or set the effort to off"),
        )
    if effort is None:
        return {}
    if effort == "off":
        return ways.without()
    if ways.style == "adaptive":
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    budget = route.thinking_budgets.of(effort)
    if budget < max_tokens:
        return {"thinking": {"type": "enabled", "budget_tokens": budget}} if can_take_budget else {}
    if request.purpose is None:
        raise LlmError.of(
            "UNSUPPORTED_OPTION",
            f"effort {effort} lets {name} think {budget} tokens, which is no less than the {max_tokens} of "
            f"the whole reply; raise maxTokens, or lower thinkingBudgets.{effort}",
        )
    return ways.without()
