"""How strict a mock server is about the requests it gets, and what it remembers of its own replies."""

from collections.abc import Mapping

import msgspec


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must be. A wrong one is a 400 with the reason, and consumes nothing."""

    is_strict: bool = True
    """False: any JSON object will do."""
    refuses: tuple[str, ...] = ()
    """What this server cannot take, as servers differ: a field (`stream_options`), a field of a message
    (`messages.reasoning_content`), a role (`role:developer`)."""
    demands_tool_name: bool = False
    """A chat tool message must carry the tool's `name`."""
    demands_assistant_after_tool: bool = False
    """A chat user message may not follow a tool message."""
    demands_reasoning: bool | None = None
    """The reasoning of a reply with tool calls must come back verbatim. None: where the real server says so:
    DeepSeek in thinking mode, and Anthropic for the calls that are still going on."""


class Issued:
    """The tool calls a server has made, by model and id, and the reasoning that stood before each."""

    def __init__(self) -> None:
        self._reasoning: dict[tuple[str, str], set[str]] = {}

    def remember(self, model: str, calls: Mapping[str, str]) -> None:
        for call_id, reasoning in calls.items():
            self._reasoning.setdefault((model, call_id), set()).add(reasoning)

    def reasoning(self, model: str, call_id: str) -> frozenset[str]:
        """What may stand before that call; nothing where the call is none of ours."""
        return frozenset(self._reasoning.get((model, call_id), ()))
