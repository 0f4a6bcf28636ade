"""Row `system-prompt`: who the agent is, what its deployment says of it, and which tools it is shown."""

import msgspec

from dsh.agent.assembly import PromptRegistry
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.kernel import Context
from dsh.tools.registry import TOOLS

inject = [TOOLS]
provide = [SYSTEM_PROMPT]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row (`spec/agent-loop.md` §14)."""

    persona: str = ""
    """The deployment's own sentences; may hold `{{provider}}`, `{{model}}` and `{{cwd}}`."""
    include_harness_identity: bool = True
    """Begin the prompt by saying what dsh is and how it works."""
    include_runtime_context: bool = True
    """Tell changing facts, such as the sandbox mode, in messages at the tail of the history."""
    tool_order: list[str] | None = None
    """Names of tools with `<unlisted-tools>` once among them; by name when absent."""


def apply(ctx: Context, config: Config) -> None:
    PromptRegistry(
        ctx,
        ctx.use(TOOLS),
        persona=config.persona,
        include_identity=config.include_harness_identity,
        include_runtime_context=config.include_runtime_context,
        tool_order=config.tool_order,
    )
