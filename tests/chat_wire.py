"""What the DeepSeek dialect makes of requests and messages, for tests that look at bodies."""

from collections.abc import Sequence
from typing import Any

from dsh.llm.chat.body import WireHistory, WireMessages, request_body
from dsh.llm.chat.deepseek import PROVIDER, Effort, Thinking, thinking_of
from dsh.llm.chat.dialect import DEEPSEEK
from dsh.llm.request import LlmRequest
from dsh.session.message import Message


def deepseek_history() -> WireHistory:
    """An empty memory of a conversation."""
    return WireHistory(DEEPSEEK, PROVIDER)


def deepseek_messages(system: str | None, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` array."""
    wire = WireMessages(DEEPSEEK, PROVIDER)
    return [*wire.system(system), *wire.of(messages)]


def deepseek_body(
    request: LlmRequest,
    history: WireHistory | None = None,
    *,
    thinking: Thinking | None = None,
    configured: Effort | None = None,
) -> bytes:
    """The request body, with a row's `thinking` and `reasoningEffort`."""
    on, effort = thinking_of(request, thinking, configured)
    return request_body(request, DEEPSEEK, history or deepseek_history(), thinking=on, effort=effort)
