"""Row `agent-default-model`: the model of agents that are not told which, as `agentDefaultModel`."""

import msgspec

from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.capabilities.bounds import NonEmpty
from dsh.capabilities.settings_section import SettingsSection, install_settings_section
from dsh.kernel import Context

provide = [DEFAULT_MODEL]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row and of the settings section of its name; provider and model are required."""

    provider: NonEmpty
    """The route, for instance `deepseek-official`."""
    model: NonEmpty
    """The model's name on that route."""
    reasoning_effort: NonEmpty | None = None
    """One of the model's effort ids; absent leaves it to the adapter."""


sections = {"agent-default-model": Config}


class Configured:
    """The user's selection over that of the row. Implements `dsh.agent.default_model.DefaultModel`."""

    def __init__(self, section: SettingsSection[Config]) -> None:
        self._section = section

    def current_selection(self) -> ModelSelection:
        now = self._section.get()
        return ModelSelection(now.provider, now.model, now.reasoning_effort)

    async def save_selection(self, selection: ModelSelection) -> None:
        if (scope := self._section.scope) is None:
            return
        chosen = {"provider": selection.provider, "model": selection.model}
        if selection.reasoning_effort is not None:
            chosen["reasoningEffort"] = selection.reasoning_effort
        await scope.replace(chosen)


def apply(ctx: Context, config: Config) -> None:
    section = install_settings_section(ctx, "agent-default-model", Config, config)
    ctx.provide(DEFAULT_MODEL, Configured(section))
