"""The service `modelCatalogue`: what is known of models beyond what a provider's row says.

Two sources: the section `models` of the settings, by route, where people say what holds for them; and the
catalogue that ships with the program, by vendor, whose entries name source and date. Adapters lay them over
one another: settings, then the row's own list of models, then the shipped catalogue, then the row's defaults.
"""

from typing import Protocol

import msgspec

from dsh.capabilities.model_facts import NO_FACTS, ModelFacts, layered
from dsh.kernel import ServiceKey


class ModelCatalogue(Protocol):
    """Read anew for each call: settings may change."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        """What the settings say of `<provider>/<model>`."""

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        """What the shipped catalogue says of a vendor's model: `deepseek`, `openai`, `anthropic`, …"""


MODEL_CATALOGUE: ServiceKey[ModelCatalogue] = ServiceKey("modelCatalogue")


def known_of(
    catalogue: ModelCatalogue | None,
    provider: str,
    model: str,
    *,
    row: ModelFacts | None = None,
    vendor: str | None = None,
    is_vendor_endpoint: bool = True,
) -> ModelFacts:
    """What is known of a model on a route: settings, then the row, then the shipped catalogue.

    Args:
        catalogue: the service, or None where none is mounted.
        row: what the provider's row says of this model.
        vendor: whose models the route serves; None where that is not known, as on a server of anybody's.
        is_vendor_endpoint: the route goes to the vendor itself. Elsewhere its windows and limits hold, its
            prices do not.
    """
    if catalogue is None:
        return row or NO_FACTS
    shipped = catalogue.shipped(vendor, model) if vendor is not None else None
    if shipped is not None and shipped.price is not None and not is_vendor_endpoint:
        shipped = msgspec.structs.replace(shipped, price=None)
    return layered(catalogue.configured(provider, model), row, shipped)
