"""Row `session-stats`: what a session did and took, as the projection `sessionStats`.

What the log says a request has cost counts. For the rest the price is the one that holds now: what the
adapter of the route says, else what is said of the route in the settings.
"""

import msgspec

from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.projections import PROJECTIONS
from dsh.kernel import Context
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM
from dsh.session.projection.price import Price
from dsh.session.projection.stats import STATS, priced_view

inject = [PROJECTIONS]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    told: set[str] = set()

    def price_of(route: str) -> Price | None:
        provider, _, model = route.partition("/")
        llm, catalogue = ctx.get(LLM), ctx.get(MODEL_CATALOGUE)
        if llm is not None:
            try:
                if (price := llm.resolve_model_info(provider, model).price) is not None:
                    return price
            except Exception as error:  # figures are shown without a cost, whatever an adapter does
                # an LlmError says that no adapter serves the route any more
                if not isinstance(error, LlmError) and provider not in told:
                    told.add(provider)
                    ctx.logger.warning("the adapter of route %s tells no price: %s", provider, error)
        facts = catalogue.configured(provider, model) if catalogue is not None else None
        return None if facts is None else facts.price

    unit = msgspec.structs.replace(STATS, view=priced_view(price_of))
    ctx.use(PROJECTIONS).register(unit)
