"""The service `modelCatalogue`: what is known of models beyond what a provider's row says.

Two sources: the section `models` of the settings, by route, where people say what holds for them; and the
catalogue that ships with the program, by vendor, whose entries name source and date. Adapters lay them over
one another: settings, then the row's own list of models, then the shipped catalogue, then the row's defaults.
"""

from typing import Annotated, Protocol

import msgspec

from dsh.kernel import ServiceKey
from dsh.session.projection.price import Price

TokenLimit = Annotated[int, msgspec.Meta(ge=1)]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one source says of a model; None where it says nothing."""

    name: str | None = None
    """What people call it."""
    context_window: TokenLimit | None = None
    """In tokens."""
    max_output_tokens: TokenLimit | None = None
    """The longest reply the model can give. It becomes no request's `maxTokens` by itself."""
    input_modalities: tuple[str, ...] | None = None
    """What the model takes: `text`, `image`."""
    price: Price | None = None
    """What its tokens cost; without it no cost is shown."""


NO_FACTS = ModelFacts()


class ModelCatalogue(Protocol):
    """Read anew for each call: settings may change."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        """What the settings say of `<provider>/<model>`."""

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        """What the shipped catalogue says of a vendor's model: `deepseek`, `openai`, `anthropic`, …"""


MODEL_CATALOGUE: ServiceKey[ModelCatalogue] = ServiceKey("modelCatalogue")


def layered(*sources: ModelFacts | None) -> ModelFacts:
    """One answer of several sources: of each fact, what the first source says that says anything."""
    said = [source for source in sources if source is not None]
    if len(said) == 1:
        return said[0]
    first = {
        name: next((value for source in said if (value := getattr(source, name)) is not None), None)
        for name in ModelFacts.__struct_fields__
    }
    return ModelFacts(**first)


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
