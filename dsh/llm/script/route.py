"""What a log tells of its routes: the models with window, defaults, efforts and price, as the adapter of that
time knew them, and the retry policy, so that a replay repeats the requests that were repeated."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES, EffortInfo, ModelInfo, ReasoningInfo, RetryPolicy
from dsh.llm.retry import Backoff, RetryConfig
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Price
from dsh.session.projection.request_usage import REQUEST_USAGE


class RouteReader:
    """Follows the request rows of a log. State: the models seen so far, and which is asked now."""

    def __init__(self) -> None:
        self._at: tuple[str, str] | None = None
        self._windows: dict[tuple[str, str], int | None] = {}
        self._limits: dict[tuple[str, str], int | None] = {}
        self._efforts: dict[tuple[str, str], dict[str, None]] = {}
        self._default_efforts: dict[tuple[str, str], str | None] = {}
        self._prices: dict[tuple[str, str], Price | None] = {}

    def see(self, event: SessionEvent) -> None:
        """Take in the next event. Only the `request/…` rows say something, and where a fixture was cut short
        not even they."""
        if event.type == "request/header":
            self._header(event.data)
        elif event.type == "request/context" and (at := _route(event.data)) is not None:
            self._at = at
            self._windows[at] = event.data.get("contextWindow")
        elif event.type == REQUEST_USAGE and (at := _route(event.data)) is not None:
            self._prices[at] = _price(event.data.get("price"))

    def _header(self, data: Any) -> None:
        header = data.get("header") if isinstance(data, Mapping) else None
        config = header.get("config") if isinstance(header, Mapping) else None
        at = _route(config)
        if header is None or config is None or at is None:
            return
        self._at, defaults = at, header.get("adapterDefaults") or {}
        self._limits[at] = config.get("maxTokens") if defaults.get("maxTokens") else None
        effort = config.get("reasoningEffort")
        if effort is None:
            return
        self._efforts.setdefault(at, {})[effort] = None
        if defaults.get("reasoningEffort"):
            self._default_efforts[at] = effort

    @property
    def model(self) -> ModelInfo | None:
        """What is known of the model that is asked now; None before the first request."""
        return None if self._at is None else self.known(*self._at)

    def known(self, provider: str, model: str) -> ModelInfo:
        """What is known by now of a model."""
        at = (provider, model)
        efforts = self._efforts.get(at)
        reasoning = None
        if efforts:
            infos = tuple(EffortInfo(effort, effort) for effort in efforts)
            reasoning = ReasoningInfo(infos, self._default_efforts.get(at))
        return ModelInfo(
            provider=provider,
            id=model,
            name=model,
            context_window=self._windows.get(at),
            default_max_tokens=self._limits.get(at),
            reasoning=reasoning,
            price=self._prices.get(at),
        )

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """Every model that was asked, in order of its first request."""
        return tuple(self.known(*at) for at in dict.fromkeys((*self._limits, *self._windows)))


def _route(value: Any) -> tuple[str, str] | None:
    """Provider and model that a config or a record of the route names."""
    if not isinstance(value, Mapping):
        return None
    provider, model = value.get("provider"), value.get("model")
    return (provider, model) if isinstance(provider, str) and isinstance(model, str) else None


def _price(value: Any) -> Price | None:
    try:
        return None if value is None else msgspec.convert(value, Price)
    except msgspec.ValidationError:
        return None


def recorded_models(events: Iterable[SessionEvent]) -> tuple[ModelInfo, ...]:
    """Every model that a log asks in its turns, as the whole log knows it."""
    reader = RouteReader()
    for event in events:
        reader.see(event)
    return reader.models


def recorded_policies(events: Iterable[SessionEvent]) -> dict[str, RetryPolicy]:
    """The last known policy of each provider.

    `llm/retry` names it. Where a failure that the default policy repeats ended its turn and the log holds no
    retry of that provider, there were none. A provider without an entry had no failure to tell by.
    """
    named: dict[str, RetryPolicy] = {}
    without: set[str] = set()
    routes, failed = RouteReader(), ""
    for event in events:
        data = event.data
        if event.type in ("request/header", "request/context"):
            routes.see(event)
        elif event.type == "llm/retry":
            if (policy := policy_from_key(str(data.get("policyKey")))) is not None:
                named[str(data.get("provider"))] = policy
        elif event.type == "assistant/chunk":
            chunk = data["chunk"]
            if chunk.get("type") == "finish":
                failed = str((chunk["reason"].get("failure") or {}).get("code", ""))
        elif event.type == "turn/end":
            if failed in DEFAULT_RETRYABLE_CODES and data["reason"].get("kind") == "error":
                without.add("" if routes.model is None else routes.model.provider)
            failed = ""
    return {**{name: RetryPolicy(max_retries=0) for name in without}, **named}


def policy_from_key(key: str) -> RetryPolicy | None:
    """The policy that a `policyKey` names; None where it names none."""
    try:
        parts: Any = msgspec.json.decode(key)
        mode, (initial, most, jitter) = parts[0], parts[-3:]
        backoff = Backoff(initial_delay_ms=initial, max_delay_ms=most, jitter_ratio=jitter)
        if mode == "always" and len(parts) == 4:
            return RetryConfig(mode="always", backoff=backoff).policy()
        if mode == "normal" and len(parts) == 6:
            return RetryConfig(max_retries=parts[1], retryable_codes=parts[2], backoff=backoff).policy()
    except (msgspec.DecodeError, TypeError, ValueError, AttributeError, KeyError, IndexError, DshError):
        return None
    return None
