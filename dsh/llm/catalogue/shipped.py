"""The catalogue of models that ships with the program: `models.json` beside this module, read when asked.

Each entry names the public page it was taken from and the day. What no page says, or what depends on more
than the tokens of a request (the hour, its length), is null: no figure is better than a wrong one.
"""

import re
from functools import cache
from pathlib import Path

import msgspec

from dsh.capabilities.model_facts import Modalities, ModelFacts, TokenLimit
from dsh.session.projection.price import Price

FILE = Path(__file__).with_name("models.json")


class ShippedModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One model of one vendor, under the id that requests call it by."""

    name: str
    context_window: TokenLimit | None
    """In tokens."""
    max_output_tokens: TokenLimit | None
    input_modalities: Modalities
    price: Price | None
    """At the vendor's own endpoint, in US dollars; null where one set of figures does not say it."""
    price_note: str = ""
    """Why there is no price, or what the price leaves out."""
    price_source: str = ""
    """Address of the page that the price is from, where it is not `source`."""
    price_date: str = ""
    """Likewise for `date`."""
    source: str
    """Address of the public page that the figures are from."""
    date: str
    """A day, as `YYYY-MM-DD`, on which they were taken from it, or on which it says that they held."""

    def facts(self) -> ModelFacts:
        """The entry in the form that all sources share."""
        return ModelFacts(
            name=self.name,
            context_window=self.context_window,
            max_output_tokens=self.max_output_tokens,
            input_modalities=self.input_modalities,
            price=self.price,
        )


@cache
def shipped_models() -> dict[str, dict[str, ShippedModel]]:
    """By vendor, then by id."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, dict[str, ShippedModel]])


_DAY = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})\Z")
"""What vendors put behind the id of a model to name one of its snapshots."""


def shipped_facts(vendor: str, model: str) -> ModelFacts | None:
    """What the catalogue says of a vendor's model, or of the one a dated snapshot is of; None for others."""
    models = shipped_models().get(vendor, {})
    entry = models.get(model) or models.get(_DAY.sub("", model))
    return None if entry is None else entry.facts()
