"""Row `agent-default-model`: the model of agents that are not told which, as `agentDefaultModel`."""

import msgspec

from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.capabilities.bounds import NonEmpty
from dsh.kernel import Context

provide = [DEFAULT_MODEL]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; provider and model are required."""

    provider: NonEmpty
    """The route, for instance `deepseek-official`."""
    model: NonEmpty
    """The model's name on that route."""
    reasoning_effort: NonEmpty | None = None
    """One of the model's effort ids; absent leaves it to the adapter."""


class Configured:
    """The selection of the row's config. Implements `dsh.agent.default_model.DefaultModel`."""

    def __init__(self, config: Config) -> None:
        self._selection = ModelSelection(config.provider, config.model, config.reasoning_effort)

    def current_selection(self) -> ModelSelection:
        return self._selection


def apply(ctx: Context, config: Config) -> None:
    ctx.provide(DEFAULT_MODEL, Configured(config))
