"""What several payloads hold: a failed model request, what a request consumed, and which model it went to."""

from typing import NotRequired, TypedDict

from dsh.session.payload.shape import Count, Number


class LlmFailure(TypedDict):
    """Why a model request failed, or a turn."""

    message: str
    code: str
    """Stable upper-case name."""
    status: NotRequired[Number]
    """HTTP status."""
    providerRetryAfterMs: NotRequired[Number]
    """Milliseconds the provider asked to wait."""
    requestId: NotRequired[str]
    """The provider's own id of the request."""


class TokenUsage(TypedDict):
    """Tokens of one request. The counts are disjoint: billed input is input, cache read and cache write."""

    inputTokens: Count
    outputTokens: Count
    cacheReadTokens: NotRequired[Count]
    cacheWriteTokens: NotRequired[Count]
    reasoningTokens: NotRequired[Count]


class ModelRoute(TypedDict):
    """A provider and one of its models."""

    provider: str
    model: str
