"""How full the window of the model is: the last request as reported, the next one as projected."""

from dsh.session.projection.context_size import TYPES, ContextSize, apply, init, pressure_of
from dsh.session.projection.unit import Unit

CONTEXT_PRESSURE: Unit[ContextSize] = Unit(
    key="contextPressure",
    version=1,
    state_type=ContextSize,
    init=init,
    apply=apply,
    types=TYPES,
    view=pressure_of,
)
"""View: `{pressureTokens?, projectedTokens?, contextWindow?}`, each absent as long as it is not known."""
