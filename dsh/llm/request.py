"""What a model is asked: call settings, and the whole request."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dsh.kernel import CancelToken
from dsh.llm.memo import Memo
from dsh.session.message import Message, ToolSchema

Purpose = Literal["compaction", "session-title"]


class LlmCallConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The settings of a call. Equality is field by field; an absent `stop` is not an empty one."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """`{provider, model, reasoningEffort?, temperature?, maxTokens?, stop?}`."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LlmCallConfig":
        """Read the `config` of a logged request header.

        Raises:
            msgspec.ValidationError: a field has the wrong type.
        """
        return msgspec.convert(dict(value), cls)


class LlmRequest(msgspec.Struct, frozen=True, eq=False, weakref=True, kw_only=True):
    """One request, immutable, compared by identity."""

    config: LlmCallConfig
    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolSchema, ...] = ()
    session_id: str | None = None
    purpose: Purpose | None = None
    """Set for auxiliary calls; a turn's own requests have none."""
    signal: CancelToken | None = None
    memo: Memo | None = None
    """What is remembered of the conversation from request to request; calls beside the turns have none."""
