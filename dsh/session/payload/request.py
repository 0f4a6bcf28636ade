"""Payloads about model requests: what they are sent with, what they consume, why they fail, and retries."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.payload.block import is_name
from dsh.session.payload.shape import (
    Count,
    Misfit,
    Name,
    Number,
    Ordinal,
    Payload,
    choice,
    payload,
    shape,
)
from dsh.session.value import JsonObject


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


class CallConfig(TypedDict):
    """The model and how it is asked."""

    provider: Name
    model: Name
    reasoningEffort: NotRequired[Name]
    temperature: NotRequired[Number]
    maxTokens: NotRequired[Count]
    stop: NotRequired[Sequence[str]]


class AdapterDefaults(TypedDict):
    """Which fields of the config the adapter chose."""

    reasoningEffort: NotRequired[Literal[True]]
    maxTokens: NotRequired[Literal[True]]


class Tool(TypedDict):
    """What the model is told of one tool."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments."""


class HeaderContent(TypedDict):
    """What a request is sent with besides its messages."""

    config: CallConfig
    adapterDefaults: NotRequired[AdapterDefaults]
    system: NotRequired[str]
    tools: NotRequired[Sequence[Tool]]


class RequestHeader(TypedDict):
    """What requests are sent with from here on; always written for the first request of a loop."""

    header: HeaderContent
    reason: Literal["initial", "resume", "change"]


class RequestContext(TypedDict):
    """The route and its window, where one of the three differs from the last record."""

    provider: str
    model: str
    contextWindow: NotRequired[Count]
    """In tokens; absent where the route does not say."""


class Retry(TypedDict):
    """A request failed and is made again after a delay. Mode `always` has no `maxRetries`."""

    retryId: str
    turn: Ordinal
    step: Ordinal
    provider: str
    mode: Literal["normal"]
    policyKey: str
    retry: Ordinal
    """Which retry this is, from 1."""
    maxRetries: Count
    delayMs: Number
    failure: LlmFailure


class EndlessRetry(TypedDict):
    """A retry of the mode that goes on for ever."""

    retryId: str
    turn: Ordinal
    step: Ordinal
    provider: str
    mode: Literal["always"]
    policyKey: str
    retry: Ordinal
    delayMs: Number
    failure: LlmFailure


class RetryStarted(TypedDict):
    """The delay is over."""

    retryId: str
    turn: Ordinal
    step: Ordinal
    retry: Ordinal


class SearchBody(TypedDict):
    """The body of a search request."""

    model: str
    max_tokens: Count
    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject]


class SearchRequest(TypedDict):
    """A web search through a model, as it is sent; it holds no credentials."""

    endpoint: str
    apiVersion: str
    body: SearchBody


def _header(data: Any) -> None:
    """The part of a request header that every reader relies on."""
    header = data.get("header") if isinstance(data, dict) else None
    config = header.get("config") if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(config, dict):
        raise Misfit("data holds a header with a config")
    for key in ("provider", "model"):
        if not is_name(config.get(key)):
            raise Misfit(f"config.{key} is a non-empty string", ".header")
    if "reasoningEffort" in config and not is_name(config["reasoningEffort"]):
        raise Misfit("config.reasoningEffort is a non-empty string", ".header")
    if "adapterDefaults" not in header:
        return
    defaults = header["adapterDefaults"]
    if not isinstance(defaults, dict) or defaults.keys() - {"reasoningEffort", "maxTokens"}:
        raise Misfit("adapterDefaults marks reasoningEffort and maxTokens only", ".header")
    for key, mark in defaults.items():
        if mark is not True or key not in config:
            raise Misfit(f"adapterDefaults.{key} is true and the config has that field", ".header")


_MODES = {"normal": shape(Retry), "always": shape(EndlessRetry)}

PAYLOADS: dict[str, Payload] = {
    "request/header": payload(RequestHeader, _header, refuse=_header),
    "request/context": payload(RequestContext),
    "llm/retry": Payload((Retry, EndlessRetry), choice("mode", _MODES)),
    "llm/retry-started": payload(RetryStarted),
    "web/deepseek-search-llm-request": payload(SearchRequest),
}
"""By event type."""
