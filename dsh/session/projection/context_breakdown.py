"""What the next request consists of: system text, tools, messages."""

from dsh.session.projection.context_size import TYPES, ContextSize, apply, breakdown_of, init
from dsh.session.projection.unit import Unit

CONTEXT_BREAKDOWN: Unit[ContextSize] = Unit(
    key="contextBreakdown",
    version=1,
    state_type=ContextSize,
    init=init,
    apply=apply,
    types=TYPES,
    view=breakdown_of,
)
"""View: `{systemTokens, toolsTokens, messagesTokens}`, estimates of the next request."""
