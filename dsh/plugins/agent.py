"""Row `agent`: the registry of live agents, as the service `agents`."""

from dsh.agent.registry import AgentRegistry
from dsh.kernel import Context

name = "agent"


def apply(ctx: Context) -> None:
    AgentRegistry(ctx)
