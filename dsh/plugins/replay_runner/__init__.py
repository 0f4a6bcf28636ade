"""Row `replay-runner`: runs a recorded session again through the loop, and tells the first difference.

The app of `dsh replay`. The model answers what was recorded, and so do the tools unless live ones are asked
for; prompts, cancellations, commands and settings come where they came. What the loop and the other rows
make of it is compared event by event (`design.md` §10.16).
"""

import msgspec

from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.capabilities.launch import APP_EXIT, APP_INTERRUPT, APP_OUTPUT, BOOT
from dsh.capabilities.replay import REPLAY
from dsh.kernel import Context
from dsh.llm.registry import LLM
from dsh.plugins.replay_runner.run import ReplayRun
from dsh.session.store import SESSIONS
from dsh.tools.registry import TOOLS

inject = [BOOT, APP_EXIT, APP_OUTPUT, AGENTS, AGENT_FACTORY, SESSIONS, LLM, TOOLS, REPLAY]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    """Start the replay once the boot audit has passed."""
    run = ReplayRun(ctx)
    ctx.on(APP_INTERRUPT, run.interrupt)
    ctx.spawn(run.main(), "replay")
