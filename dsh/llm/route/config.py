"""What the routes of every wire have in common as people configure them: models, key, endpoint, times."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.llm.adapter import RetryPolicy
from dsh.llm.retry import RetryConfig
from dsh.llm.transport.credential import is_key_name
from dsh.llm.transport.endpoint import base_url_problem
from dsh.llm.transport.watchdog import StreamLimits
from dsh.session.projection.price import Price

OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
"""Headers that a route cannot set: they are ours, or would hold the key."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_ROWS = {"openai-completions": "llm-openai", "anthropic-messages": "llm-anthropic"}
"""Which row speaks which wire format, by the names that settings of others know them by."""


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of a route."""

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

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ValueError("models must have ids")
        if any(limit is not None and limit <= 0 for limit in (self.context_window, self.max_tokens)):
            raise ValueError(f"contextWindow and maxTokens of model {self.id} must be above 0")


class RouteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What every route has."""

    api_key_env: Annotated[str, CREDENTIAL_REF] | None = None
    """Name of the key, as an environment variable or in the credentials file; never the key itself."""
    base_url: str | None = msgspec.field(default=None, name="baseURL")
    """Endpoint."""
    models: Sequence[ModelConfig] = ()
    """What is known of each model. Others can be used as well."""
    default_context_window: int = 262_144
    """Window of models of which nothing else is known, in tokens."""
    stream_idle_timeout_ms: float = 300_000
    """Longest silence while something is waited for."""
    first_token_timeout_ms: float | None = None
    """Longest wait for the first piece of a reply; unset: no limit of its own."""
    total_timeout_ms: float | None = None
    """Longest reply in time; unset: no limit."""
    retry_policy: RetryConfig = msgspec.field(default_factory=RetryConfig)
    """When a failed request is repeated, and how long is waited before."""

    def __post_init__(self) -> None:
        if self.base_url is not None and (problem := base_url_problem(self.base_url.strip())) is not None:
            raise ValueError(f"baseURL {problem}")
        if self.api_key_env is not None and not is_key_name(self.api_key_env):
            raise ValueError("apiKeyEnv is not the name of a variable; name the one that holds the key")
        limits = (self.stream_idle_timeout_ms, self.first_token_timeout_ms, self.total_timeout_ms)
        if any(limit is not None and not 0 < limit <= MAX_TIMER_MS for limit in limits):
            raise ValueError(f"timeouts must be above 0 and at most {MAX_TIMER_MS} ms")
        ids = [model.id for model in self.models]
        if (twice := next((name for name in ids if ids.count(name) > 1), None)) is not None:
            raise ValueError(f"models holds {twice} twice")

    def shown_name(self, route: str) -> str:
        """What people call the route."""
        return route

    def listed(self, model: str) -> ModelConfig | None:
        """What the route says of a model; None where it does not list it."""
        return next((entry for entry in self.models if entry.id == model), None)

    def allows(self, model: str) -> bool:
        """Whether a request may name the model."""
        return True

    @property
    def sends_key(self) -> bool:
        """Whether requests carry a key."""
        return True

    @property
    def url_variable(self) -> str | None:
        """The variable of the process that holds the endpoint where `baseURL` is unset."""
        return None

    @property
    def public_url(self) -> str | None:
        """The endpoint where neither `baseURL` nor the variable says one."""
        return None

    @property
    def more_headers(self) -> Mapping[str, str]:
        """Headers for each request beside our own, in lower case."""
        return {}

    @property
    def limits(self) -> StreamLimits:
        """How long a call may take."""
        return StreamLimits(
            idle_ms=self.stream_idle_timeout_ms,
            first_token_ms=self.first_token_timeout_ms,
            total_ms=self.total_timeout_ms,
        )

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy as the registry keeps it."""
        return self.retry_policy.policy()


class NamedRoute(RouteConfig, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A route of a row that has any number of them."""

    display_name: str | None = None
    """What people call the route; unset: its name."""
    api: str | None = None
    """The wire format by its usual name."""
    keyless: bool = False
    """The server takes requests without a key: none is looked for, none is sent."""
    base_url_env: str | None = msgspec.field(default=None, name="baseURLEnv")
    """Name of the variable of the process that holds the endpoint where `baseURL` is unset."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """More headers for each request. Never a key."""
    strict_models: bool = False
    """Refuse models that are not in `models`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.display_name is not None and not self.display_name.strip():
            raise ValueError("displayName is blank")
        if self.base_url_env is not None and not is_key_name(self.base_url_env):
            raise ValueError("baseURLEnv is not the name of a variable; name the one that holds the URL")
        if self.api_key_env is None and not self.keyless:
            raise ValueError("a route has an apiKeyEnv, or keyless: true")
        if self.strict_models and not self.models:
            raise ValueError("strictModels without models allows none; list them in models")

    def shown_name(self, route: str) -> str:
        return self.display_name or route

    def allows(self, model: str) -> bool:
        return not self.strict_models or self.listed(model) is not None

    @property
    def sends_key(self) -> bool:
        return not self.keyless

    @property
    def url_variable(self) -> str | None:
        return self.base_url_env

    @property
    def more_headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}


def check_api(api: str | None, row: str) -> None:
    """Judge the `api` of a route, which says no more than what its row speaks.

    Raises:
        ValueError: it is another format; names the row that speaks it.
    """
    if api is None or _ROWS.get(api) == row:
        return
    own = next(name for name, speaker in _ROWS.items() if speaker == row)
    if (speaker := _ROWS.get(api)) is not None:
        raise ValueError(f"api {api} is spoken by row {speaker}; put the route under its providers")
    others = " and ".join(f"{name} (row {speaker})" for name, speaker in _ROWS.items())
    raise ValueError(f"api must be {own} here or left out, and is {api!r}; there are {others}")


def check_headers(headers: Mapping[str, str], own: frozenset[str] = OWN_HEADERS) -> None:
    """Judge the headers that a route adds.

    Raises:
        ValueError: one is ours, or can be none. Holds no value, nor a name that may be one.
    """
    for name, value in headers.items():
        if name.lower() in own:
            raise ValueError(f"headers cannot hold {name.lower()}; a key is named by apiKeyEnv")
        if not _HEADER_NAME.match(name):
            raise ValueError("headers: one has a name that no header can have")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"headers: the value of {name} cannot stand in a header")
