"""Whether an agent still takes part. What is done to one that has ended is logged where nobody looks."""

from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.kernel import Context


def is_live(ctx: Context, agent: AgentRef) -> bool:
    """Whether the agent is published and has not left; True where no registry is there to know."""
    agents = ctx.get(AGENTS)
    return agents is None or agents.get(agent.id) is agent
