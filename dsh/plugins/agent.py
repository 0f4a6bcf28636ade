"""Row `agent`: the registry of live agents, as the service `agents`."""

import msgspec

from dsh.agent.registry import AGENTS, AgentRegistry
from dsh.kernel import Context

provide = [AGENTS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    AgentRegistry(ctx)
