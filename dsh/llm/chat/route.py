"""A route of the chat-completions wire as people configure it, and what follows for its models."""

from typing import Literal

import msgspec

from dsh.llm.adapter import EffortInfo, ReasoningInfo
from dsh.llm.chat.dialect import OFF, Compat, Dialect, dialect_of
from dsh.llm.route.config import ModelConfig, NamedRoute, check_api, check_headers

OPENAI_HOST = "api.openai.com"
OPENAI = Compat(max_tokens_field="max_completion_tokens")
"""OpenAI's own endpoint: its reasoning models refuse the old name, and all its models take the new one."""

_DESCRIPTIONS = {OFF: "Answer without thinking"}


class ChatModel(ModelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of a route. Models outside the list work as well, unless the route is strict."""

    reasoning_effort: str | None = None
    """Effort of requests that ask for none; unset: the route's."""
    compat: Compat | None = None
    """What this model does differently from the route's `compat`."""


class ChatRoute(NamedRoute, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One route of the row `llm-openai`: an endpoint that speaks OpenAI's chat completions."""

    api: str | None = None
    """The wire format by its usual name; `openai-completions` is the one that this row speaks."""
    base_url: str | None = msgspec.field(default=None, name="baseURL")
    """Endpoint, without `/chat/completions`; unset: the variable that `baseURLEnv` names."""
    compat: Compat = Compat()
    """What this server does differently from others."""
    models: list[ChatModel] = msgspec.field(default_factory=list)
    """What is known of each model."""
    vendor: str | None = None
    """Whose models these are in the shipped catalogue of windows and prices; unset: `openai` where the
    endpoint is OpenAI's own, else nobody's."""
    default_max_tokens: int | None = None
    """Longest reply, in tokens, where neither the request nor the model says otherwise; unset: as the server
    likes."""
    reasoning_effort: str | None = None
    """Effort of requests that ask for none, one of `compat.effortMap`; unset: as the server likes."""
    detect_leaked_calls: bool = True
    """A reply whose text is a tool call in the model's own markup is repeated, not taken as an answer."""

    # of the image path, which is not built: known, so that rows written for it load
    default_input: list[Literal["text", "image"]] = msgspec.field(default_factory=lambda: ["text"])
    """Of the image path, which is not built: no effect."""
    max_request_image_bytes: int = 20 * 1024 * 1024
    """The same: no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_api(self.api, "llm-openai")
        if self.base_url is None and self.base_url_env is None:
            raise ValueError("a route has a baseURL, or a baseURLEnv")
        check_headers(self.headers)
        if any(
            limit is not None and limit <= 0
            for limit in (self.default_context_window, self.default_max_tokens)
        ):
            raise ValueError("defaultContextWindow and defaultMaxTokens must be above 0")
        self._check_effort(None, self.reasoning_effort, dialect_of(self.compat))
        for model in self.models:
            dialect = dialect_of(self.compat, model.compat)
            self._check_effort(model.id, model.reasoning_effort or self.reasoning_effort, dialect)

    def _check_effort(self, model: str | None, effort: str | None, dialect: Dialect) -> None:
        if effort is not None and effort not in dialect.effort_map:
            where = "" if model is None else f" of model {model}"
            known = ", ".join(dialect.effort_map) or "none"
            raise ValueError(f"reasoningEffort {effort}{where} is not in compat.effortMap; it has: {known}")

    def ways(self, model: str, *, is_openai: bool) -> "ModelWays":
        """How a model of this route is asked, listed or not.

        Args:
            is_openai: the endpoint is OpenAI's own, whose ways count where the route says nothing.
        """
        entry = next((entry for entry in self.models if entry.id == model), ChatModel(id=model))
        return ModelWays(
            dialect=dialect_of(OPENAI if is_openai else None, self.compat, entry.compat),
            max_tokens=entry.max_tokens or self.default_max_tokens,
            reasoning_effort=entry.reasoning_effort or self.reasoning_effort,
        )


class ModelWays(msgspec.Struct, frozen=True, eq=False, weakref=True, kw_only=True):
    """What a route says of one model, with the route's own word where it is silent. One object a model."""

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
