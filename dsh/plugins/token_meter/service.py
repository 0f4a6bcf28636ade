"""The service `tokenMeter`: a fold of each session that somebody measures, brought up to date when asked."""

from weakref import WeakKeyDictionary

from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.kernel import Context, Service
from dsh.plugins.token_meter.fold import MeterFold
from dsh.session.log import Session


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
