"""What is said of a model beyond what a provider's row knows, and how sources are laid over one another.

Needs no kernel: commands read the same section of the settings that rows do.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from dsh.session.projection.price import Price
from dsh.session.value import MAX_SAFE_INT

NAMESPACE = "models"
"""The section of the settings that maps routes, `<provider>/<model>`, to facts."""

Modalities = tuple[Literal["text", "image"], ...]
SETTINGS_FILE = "settings.yaml"
"""The document's name in the home, where the row `settings` is not told otherwise."""

TokenLimit = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INT)]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one source says of a model; None where it says nothing."""

    name: Annotated[str, msgspec.Meta(pattern=r"\S")] | None = None
    """What people call it."""
    context_window: TokenLimit | None = None
    """In tokens."""
    max_output_tokens: TokenLimit | None = None
    """The longest reply the model can give. It becomes no request's `maxTokens` by itself."""
    input_modalities: Modalities | None = None
    """What the model takes: `text`, `image`."""
    price: Price | None = None
    """What its tokens cost; without it no cost is shown."""


NO_FACTS = ModelFacts()


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


def is_route(text: str) -> bool:
    """Whether a text names a provider and a model; the model's id may hold slashes."""
    provider, _, model = text.partition("/")
    return bool(provider and model)


def check_routes(routes: Iterable[str]) -> None:
    """Refuse a key that can be no route.

    Raises:
        ValueError: one lacks its provider or its model. The message begins with the key.
    """
    for route in routes:
        if not is_route(route):
            raise ValueError(f"{route}: no route is named so; write <provider>/<model>")


def price_example(route: str) -> str:
    """The line of the settings that says a price of this route."""
    return f"{NAMESPACE}: {{{json.dumps(route, ensure_ascii=False)}: {{price: {{input: 0.3, output: 1.2}}}}}}"
