"""A route of the Messages wire as people configure it, and what follows for its models."""

from typing import Literal

import msgspec

from dsh.llm.adapter import EffortInfo
from dsh.llm.anthropic.thinking import Ways, known_ways
from dsh.llm.route.config import OWN_HEADERS, ModelConfig, NamedRoute, check_api, check_headers

DEFAULT_BASE_URL = "https://api.anthropic.com"
PUBLIC_KEY = "ANTHROPIC_API_KEY"
MIN_BUDGET = 1024
"""The smallest thinking budget that the API takes, in tokens."""
OWN = OWN_HEADERS | {"anthropic-version", "x-api-key"}
"""Headers that a route cannot set."""

Effort = Literal["off", "low", "medium", "high"]
ThinkingStyle = Literal["auto", "budget", "adaptive", "none"]
ThinkingOff = Literal["auto", "unsaid", "disabled", "between_tools", "never"]
KeyHeader = Literal["x-api-key", "authorization"]
CacheRetention = Literal["none", "short", "long"]

EFFORTS = {
    "off": EffortInfo("off", "Off", "Answer without thinking"),
    "low": EffortInfo("low", "Low", "Think briefly"),
    "medium": EffortInfo("medium", "Medium", "Think for a while"),
    "high": EffortInfo("high", "High", "Think thoroughly"),
}


class ThinkingBudgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How many tokens a model may think, for models that are given a budget."""

    low: int = 2048
    """Of effort `low`."""
    medium: int = 4096
    """Of effort `medium`."""
    high: int = 6144
    """Of effort `high`."""

    def __post_init__(self) -> None:
        if min(self.low, self.medium, self.high) < MIN_BUDGET:
            raise ValueError(f"thinkingBudgets must be {MIN_BUDGET} or more")

    def of(self, effort: str) -> int:
        """The budget of an effort other than `off`, in tokens."""
        return {"low": self.low, "medium": self.medium, "high": self.high}[effort]


class AnthropicModel(ModelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of a route. Models outside the list work as well, unless the route is strict."""

    thinking_style: ThinkingStyle | None = None
    """How this model is made to think; unset: as the route says."""
    thinking_off: ThinkingOff | None = None
    """How this model is kept from thinking; unset: as the route says."""


_UNLISTED = AnthropicModel(id="any other")


class AnthropicRoute(NamedRoute, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One route of the row `llm-anthropic`: an endpoint that speaks Anthropic's Messages format."""

    display_name: str | None = None
    """What people call the route; unset: `Anthropic` for the route `anthropic`, else the route's name."""
    api: str | None = None
    """The wire format by its usual name; `anthropic-messages` is the one that this row speaks."""
    key_header: KeyHeader = "x-api-key"
    """Where the key stands in a request; in `authorization` as a bearer token, as some gateways want it."""
    base_url: str | None = msgspec.field(default=None, name="baseURL")
    """Endpoint, without `/v1/messages`; unset: `baseURLEnv`, else the public one of Anthropic."""
    base_url_env: str | None = msgspec.field(default=None, name="baseURLEnv")
    """Name of the variable of the process that holds the endpoint where `baseURL` is unset. Where it is not
    set, a route whose key is `ANTHROPIC_API_KEY` goes to the public endpoint, another to none."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """More headers for each request, such as `anthropic-beta`. Never a key."""
    models: list[AnthropicModel] = msgspec.field(default_factory=list)
    """What is known of each model."""
    default_context_window: int = 200_000
    """Window of models of which nothing else is known, in tokens."""
    default_max_tokens: int = 8192
    """Longest reply with its thinking, in tokens, where neither the request nor the model says otherwise."""
    reasoning_effort: Effort = "off"
    """Effort of requests that ask for none."""
    thinking_style: ThinkingStyle = "auto"
    """`budget` gives a number of tokens, `adaptive` the effort by its name, `none` is for models that cannot
    think. `auto`: `adaptive` for Claude models from version 4.6 on, else `budget`."""
    thinking_off: ThinkingOff = "auto"
    """How effort `off` is told: not at all (`unsaid`), as `disabled` or as `between_tools`; `never` is for
    models that always think, which do not offer it. `auto`: by the name of the model."""
    thinking_budgets: ThinkingBudgets = ThinkingBudgets()
    """Tokens by effort, for `budget`."""
    cache_retention: CacheRetention = "short"
    """How long the stable beginning of a request is cached: five minutes, an hour (`long`), or not at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_api(self.api, "llm-anthropic")
        check_headers(self.headers, OWN)
        if self.default_max_tokens <= 0 or self.default_context_window <= 0:
            raise ValueError("defaultMaxTokens and defaultContextWindow must be above 0")
        if self.thinking_style == "none" and self.reasoning_effort != "off":
            raise ValueError(f"thinkingStyle is none, so reasoningEffort cannot be {self.reasoning_effort}")

    def shown_name(self, route: str) -> str:
        return self.display_name or ("Anthropic" if route == "anthropic" else route)

    @property
    def public_url(self) -> str | None:
        """Where a variable is named for the endpoint, only Anthropic's own key goes to the public one."""
        return DEFAULT_BASE_URL if self.base_url_env is None or self.api_key_env == PUBLIC_KEY else None

    def model(self, model: str) -> AnthropicModel:
        """What the route says of a model; nothing where it is not listed."""
        return next((entry for entry in self.models if entry.id == model), _UNLISTED)

    def ways(self, model: str) -> Ways:
        """How this model is made to think and kept from it."""
        entry, known = self.model(model), known_ways(model)
        style, off = entry.thinking_style or self.thinking_style, entry.thinking_off or self.thinking_off
        return Ways(
            known.style if style == "auto" else style,
            known.off if off == "auto" else off,
            known.is_bound,
        )

    def effort(self, model: str) -> str | None:
        """The effort of a request that asks for none; None for one that leaves it to the model."""
        offered = self.ways(model).efforts
        if self.reasoning_effort in offered:
            return self.reasoning_effort
        return "off" if "off" in offered else None

    def max_tokens(self, model: str) -> int:
        """The longest reply where the request does not say otherwise, in tokens."""
        return self.model(model).max_tokens or self.default_max_tokens
