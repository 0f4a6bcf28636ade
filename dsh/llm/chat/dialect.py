"""How the servers that speak chat completions differ: one struct of switches, from which requests are made.

DeepSeek's route is one fixed dialect; the routes of `llm-openai` say theirs under `compat`.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
SystemRole = Literal["system", "developer"]
ReasoningReplay = Literal["reasoning_content", "reasoning", "text", "none"]
ThinkingStyle = Literal["none", "thinking", "enable_thinking", "chat_template_kwargs", "reasoning"]

OFF = "off"
"""The effort that means: answer without thinking. Sent as an effort only where `effortMap` spells it."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One server's ways. The defaults are what most servers take."""

    max_tokens_field: MaxTokensField = "max_tokens"
    system_role: SystemRole = "system"
    stream_options: bool = True
    effort_map: Mapping[str, str | None] = {}
    """Efforts that may be asked for, each with its spelling in `reasoning_effort`; empty: not sent."""
    reasoning_replay: ReasoningReplay = "reasoning_content"
    foreign_reasoning: bool = False
    """Send reasoning back that another route's model wrote."""
    tool_name: bool = False
    assistant_after_tool: bool = False
    thinking_style: ThinkingStyle = "none"
    done_optional: bool = False

    @property
    def can_switch_thinking(self) -> bool:
        """Whether a request can say that the model is not to think."""
        return self.thinking_style != "none" or bool(self.effort_map.get(OFF))


DEEPSEEK = Dialect(
    effort_map={OFF: None, "low": "low", "high": "high", "max": "max"},
    foreign_reasoning=True,
    thinking_style="thinking",
)
"""DeepSeek's own API."""


class Compat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """`compat` of a route or of one of its models: what this server does differently."""

    max_tokens_field: MaxTokensField | None = None
    """What the longest reply is called: `max_tokens`, or `max_completion_tokens`, which is meant where the
    endpoint is OpenAI's own and nothing is said."""
    system_role: SystemRole | None = None
    """Role of the system prompt: `system`, or `developer`."""
    stream_options: bool | None = None
    """Ask for the usage with `stream_options`; false for servers that refuse it."""
    effort_map: dict[str, str | None] | None = None
    """Reasoning efforts that can be asked for, and what each is called in `reasoning_effort` (`""`: nothing
    is sent). Without entries none can."""
    reasoning_replay: ReasoningReplay | None = None
    """How the model gets its own reasoning back: under `reasoning_content`, under `reasoning`, as part of its
    text, or not at all (`none`)."""
    foreign_reasoning: bool | None = None
    """Send back what models of other routes reasoned earlier in the session, too."""
    tool_name: bool | None = None
    """Put the tool's name into the messages that carry results."""
    assistant_after_tool: bool | None = None
    """Put an assistant's message between results and a user's message, for servers that insist on it."""
    thinking_style: ThinkingStyle | None = None
    """The member that switches thinking: `thinking: {type}`, `enable_thinking`, the same within
    `chat_template_kwargs`, `reasoning: {effort}`, or `none`."""
    done_optional: bool | None = None
    """Take a reply as complete that has a finish reason but no `[DONE]`."""

    def __post_init__(self) -> None:
        if self.effort_map is not None and not all(name.strip() for name in self.effort_map):
            raise ValueError("effortMap has an effort without a name")


def dialect_of(*layers: Compat | None) -> Dialect:
    """The dialect of a route's `compat` under that of a model: what is set last counts."""
    fields: dict[str, Any] = {}
    for layer in layers:
        if layer is not None:
            found = msgspec.structs.asdict(layer)
            fields.update((name, value) for name, value in found.items() if value is not None)
    return Dialect(**fields)
