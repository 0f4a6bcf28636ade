"""What models cost, as the section `models` of the settings says it, for commands: they run without rows.

A route is `<provider>/<model>`. Rows ask the service `modelCatalogue` instead.
"""

from pathlib import Path
from typing import Any

import msgspec

from dsh.composition.text.source import read_bytes
from dsh.composition.text.yaml import YamlError, parse_yaml
from dsh.composition.value import Map
from dsh.errors import CompositionError
from dsh.session.projection.price import Price

NAMESPACE = "models"
SETTINGS_FILE = "settings.yaml"
"""The document's name in the home, where the row `settings` is not told otherwise."""


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a model's facts that is looked for here."""

    price: Price | None = None


class PricesError(CompositionError):
    """The settings say no prices: they cannot be read, or a price is none. The message names the place."""


def read_prices(home: Path) -> dict[str, Price]:
    """The prices that the settings of this home name; none where there are no settings.

    Raises:
        PricesError: see there. It quotes nothing of the document, which may hold secrets.
    """
    path = home / SETTINGS_FILE
    try:
        document = parse_yaml(read_bytes(path), str(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PricesError(f"{path}: {error.strerror or error}") from None
    except YamlError as error:
        raise PricesError(
            f"{error.mark}: the settings cannot be read", hint="dsh explain settings says what is wrong"
        ) from None
    section = document.get(NAMESPACE) if isinstance(document, dict) else None
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise _refused(path, document, NAMESPACE, f"{NAMESPACE} is a mapping from routes")
    return {
        route: price for route, model in section.items() if (price := _price(path, section, route, model))
    }


def _price(path: Path, section: Any, route: str, model: Any) -> Price | None:
    try:
        return msgspec.convert(model, _Model).price
    except msgspec.ValidationError as error:
        problem = str(error).replace("$.", f"{NAMESPACE}.{route}.").replace("`", "")
        raise _refused(path, section, route, problem) from None


def _refused(path: Path, where: Any, key: str, problem: str) -> PricesError:
    place = str(where.key_at(key)) if isinstance(where, Map) else str(path)
    return PricesError(
        f"{place}: {problem}",
        hint='write models: {"<provider>/<model>": {price: {input: 0.3, output: 1.2}}}, in USD per million',
    )
