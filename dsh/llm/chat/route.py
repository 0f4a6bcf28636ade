"""A route of the chat-completions wire as people configure it, and what follows for its models."""

from functools import cached_property
from typing import Annotated, Literal

import msgspec

from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.llm.adapter import EffortInfo, ReasoningInfo, RetryPolicy
from dsh.llm.chat.dialect import OFF, Compat, Dialect, dialect_of
from dsh.llm.retry import RetryConfig
from dsh.llm.transport.api import check_api
from dsh.llm.transport.route import check_endpoint, check_headers, check_limits
from dsh.llm.transport.watchdog import StreamLimits
from dsh.session.projection.price import Price

OPENAI_HOST = "api.openai.com"
OPENAI = Compat(max_tokens_field="max_completion_tokens")
"""OpenAI's own endpoint: its reasoning models refuse the old name, and all its models take the new one."""

_DESCRIPTIONS = {OFF: "Answer without thinking"}


class ChatModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of a route. Models outside the list work as well, unless the route is strict."""

    id: str
    """What a request calls the model."""
    name: str | None = None
    """What people call it; unset: what the catalogue says, else its id."""
    description: str | None = None
    """One line about it, for lists."""
    context_window: int | None = None
    """In tokens; unset: what the catalogue says, else the route's `defaultContextWindow`."""
    max_tokens: int | None = None
    """Longest reply, in tokens; unset: the route's `defaultMaxTokens`."""
    price: Price | None = None
    """What its tokens cost on this route; unset: what the settings or the catalogue say."""
    reasoning_effort: str | None = None
    """Effort of requests that ask for none; unset: the route's."""
    compat: Compat | None = None
    """What this model does differently from the route's `compat`."""

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ValueError("models must have ids")
        if any(limit is not None and limit <= 0 for limit in (self.context_window, self.max_tokens)):
            raise ValueError(f"contextWindow and maxTokens of model {self.id} must be above 0")


class ChatRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One route of the row `llm-openai`: an endpoint that speaks OpenAI's chat completions."""

    display_name: str | None = None
    """What people call the route; unset: its name."""
    api: str | None = None
    """The wire format by its usual name; `openai-completions` is the one that this row speaks."""
    api_key_env: Annotated[str, CREDENTIAL_REF] | None = None
    """Name of the key, as an environment variable or in the credentials file; never the key itself."""
    keyless: bool = False
    """The server wants no key: none is looked for, and no `Authorization` goes out."""
    base_url: str | None = msgspec.field(default=None, name="baseURL")
    """Endpoint, without `/chat/completions`; unset: the variable that `baseURLEnv` names."""
    base_url_env: str | None = msgspec.field(default=None, name="baseURLEnv")
    """Name of the variable of the process that holds the endpoint where `baseURL` is unset."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """More headers for each request. Never a key."""
    compat: Compat = Compat()
    """What this server does differently from others."""
    models: list[ChatModel] = msgspec.field(default_factory=list)
    """What is known of each model."""
    strict_models: bool = False
    """Refuse models that are not in `models`."""
    vendor: str | None = None
    """Whose models these are in the shipped catalogue of windows and prices; unset: `openai` where the
    endpoint is OpenAI's own, else nobody's."""
    default_context_window: int = 262_144
    """Window of models of which nothing else is known, in tokens."""
    default_max_tokens: int | None = None
    """Longest reply, in tokens, where neither the request nor the model says otherwise; unset: as the server
    likes."""
    reasoning_effort: str | None = None
    """Effort of requests that ask for none, one of `compat.effortMap`; unset: as the server likes."""
    detect_leaked_calls: bool = True
    """A reply whose text is a tool call in the model's own markup is repeated, not taken as an answer."""
    stream_idle_timeout_ms: float = 300_000
    """Longest silence while something is waited for."""
    first_token_timeout_ms: float | None = None
    """Longest wait for the first piece of a reply; unset: no limit of its own."""
    total_timeout_ms: float | None = None
    """Longest reply in time; unset: no limit."""
    retry_policy: RetryConfig = msgspec.field(default_factory=RetryConfig)
    """When a failed request is repeated, and how long is waited before."""

    # of the image path, which is not built: known, so that rows written for it load
    default_input: list[Literal["text", "image"]] = msgspec.field(default_factory=lambda: ["text"])
    """Of the image path, which is not built: no effect."""
    max_request_image_bytes: int = 20 * 1024 * 1024
    """The same: no effect."""

    def __post_init__(self) -> None:
        if self.display_name is not None and not self.display_name.strip():
            raise ValueError("displayName is blank")
        check_api(self.api, "llm-openai")
        check_endpoint(base_url=self.base_url, base_url_env=self.base_url_env, api_key_env=self.api_key_env)
        if self.api_key_env is None and not self.keyless:
            raise ValueError("a route has an apiKeyEnv, or keyless: true")
        if self.base_url is None and self.base_url_env is None:
            raise ValueError("a route has a baseURL, or a baseURLEnv")
        check_headers(self.headers)
        check_limits(self.stream_idle_timeout_ms, self.first_token_timeout_ms, self.total_timeout_ms)
        if any(
            limit is not None and limit <= 0
            for limit in (self.default_context_window, self.default_max_tokens)
        ):
            raise ValueError("defaultContextWindow and defaultMaxTokens must be above 0")
        ids = [model.id for model in self.models]
        if len(set(ids)) < len(ids):
            raise ValueError("models must have ids, each of them once")
        if self.strict_models and not ids:
            raise ValueError("strictModels without models allows none; list them in models")
        self._check_effort(None, self.reasoning_effort, dialect_of(self.compat))
        for model in self.models:
            dialect = dialect_of(self.compat, model.compat)
            self._check_effort(model.id, model.reasoning_effort or self.reasoning_effort, dialect)

    def _check_effort(self, model: str | None, effort: str | None, dialect: Dialect) -> None:
        if effort is not None and effort not in dialect.effort_map:
            where = "" if model is None else f" of model {model}"
            known = ", ".join(dialect.effort_map) or "none"
            raise ValueError(f"reasoningEffort {effort}{where} is not in compat.effortMap; it has: {known}")


class ModelWays(msgspec.Struct, frozen=True, eq=False, weakref=True, kw_only=True):
    """What a route says of one model, with the route's own word where it is silent. One object a model."""

    entry: ChatModel
    dialect: Dialect
    max_tokens: int | None
    reasoning_effort: str | None

    @property
    def reasoning(self) -> ReasoningInfo | None:
        """The efforts that can be asked for."""
        efforts = tuple(
            EffortInfo(name, name.replace("-", " ").replace("_", " ").title(), _DESCRIPTIONS.get(name))
            for name in self.dialect.effort_map
        )
        return ReasoningInfo(efforts, self.reasoning_effort) if efforts else None


class RouteSettings:
    """One valid state of one route: a call uses the same one from start to end."""

    def __init__(self, name: str, route: ChatRoute) -> None:
        self.name = name
        self.route = route
        self._ways: dict[tuple[str, bool], ModelWays] = {}

    @property
    def display_name(self) -> str:
        """What people call the route."""
        return self.route.display_name or self.name

    @cached_property
    def policy(self) -> RetryPolicy:
        """The retry policy as the registry keeps it."""
        return self.route.retry_policy.policy()

    @cached_property
    def limits(self) -> StreamLimits:
        """How long a call may take."""
        route = self.route
        return StreamLimits(
            idle_ms=route.stream_idle_timeout_ms,
            first_token_ms=route.first_token_timeout_ms,
            total_ms=route.total_timeout_ms,
        )

    def knows(self, model: str) -> bool:
        """Whether the route lists the model."""
        return any(entry.id == model for entry in self.route.models)

    def ways(self, model: str, *, is_openai: bool = False) -> ModelWays:
        """How a model of this route is asked, listed or not.

        Args:
            is_openai: the endpoint is OpenAI's own, whose ways count where the route says nothing.
        """
        if (known := self._ways.get((model, is_openai))) is not None:
            return known
        route = self.route
        entry = next((entry for entry in route.models if entry.id == model), ChatModel(id=model))
        made = ModelWays(
            entry=entry,
            dialect=dialect_of(OPENAI if is_openai else None, route.compat, entry.compat),
            max_tokens=entry.max_tokens or route.default_max_tokens,
            reasoning_effort=entry.reasoning_effort or route.reasoning_effort,
        )
        self._ways[model, is_openai] = made
        return made
