"""The service `modelCatalogue`: what is known of models beyond what a provider's row says.

Two sources: the section `models` of the settings, by route, where people say what holds for them; and the
catalogue that ships with the program, by vendor, whose entries name source and date. Adapters lay them over
one another: settings, then the row's own list of models, then the shipped catalogue, then the row's defaults.
"""

from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey
from dsh.session.projection.price import Price


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one source says of a model; None where it says nothing."""

    name: str | None = None
    context_window: int | None = None
    """In tokens."""
    max_output_tokens: int | None = None
    """The longest reply the model can give. It becomes no request's `maxTokens` by itself."""
    input_modalities: tuple[str, ...] | None = None
    price: Price | None = None


class ModelCatalogue(Protocol):
    """Read anew for each call: settings may change."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        """What the settings say of `<provider>/<model>`."""

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        """What the shipped catalogue says of a vendor's model: `deepseek`, `openai`, `anthropic`, …"""


MODEL_CATALOGUE: ServiceKey[ModelCatalogue] = ServiceKey("modelCatalogue")
