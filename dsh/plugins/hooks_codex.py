"""Row `hooks-codex`: runs the hooks of a Codex hook file.

A hook is a command that reads JSON and answers by its exit code or by JSON; `docs/hooks.md` has the events.
"""

from dsh.agent.hooks.config import HookConfig
from dsh.agent.hooks.dialect import CODEX
from dsh.agent.hooks.row import mount
from dsh.capabilities.shell import SHELL
from dsh.kernel import Context

inject = [SHELL]
provide = ()


class Config(HookConfig, frozen=True, kw_only=True):
    """Options of the row `hooks-codex`."""

    model: str = ""
    """The `model` of each payload; empty: the one that the agent began with."""


def apply(ctx: Context, config: Config) -> None:
    mount(ctx, CODEX, config, model=config.model)
