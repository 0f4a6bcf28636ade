"""Row `permission`: named pairs of sandbox mode and approval policy, written into each new session's log.

A person changes the pair of a live session with `/permission NAME`, where commands are mounted.
"""

from dsh.agent.liveness import is_live
from dsh.capabilities.approval import APPROVAL
from dsh.capabilities.commands import COMMANDS
from dsh.capabilities.permission import PERMISSIONS
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.kernel import Context
from dsh.plugins.permission.choice import Choice
from dsh.plugins.permission.command import permission_command
from dsh.plugins.permission.config import NAMESPACE, Config, Section
from dsh.plugins.permission.presets import Presets
from dsh.session.store import SESSION_CREATED

__all__ = ["Config", "apply", "inject", "provide", "sections"]

inject = [SANDBOX_POLICY, APPROVAL]
provide = [PERMISSIONS]
sections = {NAMESPACE: Section}


def apply(ctx: Context, config: Config) -> None:
    choice = Choice(ctx, config)
    presets = Presets(
        config.presets,
        choice.now,
        ctx.use(SANDBOX_POLICY),
        ctx.use(APPROVAL),
        lambda agent: is_live(ctx, agent),
    )
    ctx.provide(PERMISSIONS, presets)
    ctx.on(SESSION_CREATED, presets.pin)

    def offer(inner: Context) -> None:
        inner.use(COMMANDS).register(permission_command(presets))

    ctx.inject([COMMANDS], offer)
