"""Row `token-meter`: how large the next request of a session is, and the figures of its use of the model.

The meter is the service `tokenMeter`. Where the row `session-projection` is there, the projections
`tokenUsage`, `contextPressure` and `contextBreakdown` are folded too.
"""

from weakref import WeakKeyDictionary

import msgspec

from dsh.capabilities.projections import PROJECTIONS
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.kernel import Context, Service
from dsh.plugins.token_meter.fold import MeterFold
from dsh.session.log import Session
from dsh.session.projection.context_size import CONTEXT_BREAKDOWN, CONTEXT_PRESSURE
from dsh.session.projection.token_usage import TOKEN_USAGE

__all__ = ["Config", "apply", "inject", "provide"]

inject: list[str] = []
provide = [TOKEN_METER]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


class MeterService(Service):
    """Implements `dsh.capabilities.token_meter.TokenMeter`. State: a fold of each session."""

    provide = TOKEN_METER

    def __init__(self, ctx: Context) -> None:
        self._folds: WeakKeyDictionary[Session, MeterFold] = WeakKeyDictionary()
        super().__init__(ctx)

    def measure(self, session: Session) -> Measurement:
        fold = self._folds.get(session)
        if fold is None:
            fold = self._folds[session] = MeterFold()
        fold.catch_up(session)
        return fold.measurement()


def apply(ctx: Context, config: Config) -> None:
    MeterService(ctx)
    ctx.inject([PROJECTIONS], _project)


def _project(ctx: Context) -> None:
    projections = ctx.use(PROJECTIONS)
    projections.register(TOKEN_USAGE)
    projections.register(CONTEXT_PRESSURE)
    projections.register(CONTEXT_BREAKDOWN)
