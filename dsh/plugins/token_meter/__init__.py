"""Row `token-meter`: how large the next request of a session is, and the figures of its use of the model.

The meter is the service `tokenMeter`. Where the row `session-projection` is there, the projections
`tokenUsage`, `contextPressure` and `contextBreakdown` are folded too.
"""

import msgspec

from dsh.capabilities.projections import PROJECTIONS
from dsh.capabilities.token_meter import TOKEN_METER
from dsh.kernel import Context
from dsh.plugins.token_meter.service import MeterService
from dsh.session.projection.context_breakdown import CONTEXT_BREAKDOWN
from dsh.session.projection.context_pressure import CONTEXT_PRESSURE
from dsh.session.projection.token_usage import TOKEN_USAGE

__all__ = ["Config", "apply", "inject", "provide"]

inject: list[str] = []
provide = [TOKEN_METER]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    MeterService(ctx)
    ctx.inject([PROJECTIONS], _project)


def _project(ctx: Context) -> None:
    projections = ctx.use(PROJECTIONS)
    projections.register(TOKEN_USAGE)
    projections.register(CONTEXT_PRESSURE)
    projections.register(CONTEXT_BREAKDOWN)
