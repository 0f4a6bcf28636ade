"""What models cost, as the section `models` of the settings says it, for commands: they run without rows.

A route is `<provider>/<model>`. Rows ask the service `modelCatalogue` instead.
"""

from pathlib import Path
from typing import Any

import msgspec

from dsh.capabilities.model_facts import NAMESPACE, SETTINGS_FILE, ModelFacts, check_routes, price_example
from dsh.composition.text.source import read_bytes
from dsh.composition.text.yaml import YamlError, parse_yaml
from dsh.composition.value import Map
from dsh.errors import CompositionError
from dsh.session.projection.price import Price


class PricesError(CompositionError):
    """The settings say no prices: they cannot be read, or a model is none. The message names the place."""


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
    facts = {route: _facts(path, section, route, model) for route, model in section.items()}
    return {route: said.price for route, said in facts.items() if said.price is not None}


def _facts(path: Path, section: dict[str, Any], route: str, model: Any) -> ModelFacts:
    try:
        check_routes([route])
        return msgspec.convert(model, ModelFacts)
    except msgspec.ValidationError as error:
        said, _, inside = str(error).replace("`", "").partition(" - at $")
        problem = f"{NAMESPACE}.{route}{inside}: {said}"
    except ValueError as error:
        problem = f"{NAMESPACE}.{error}"
    raise _refused(path, section, route, problem)


def _refused(path: Path, where: Any, key: str, problem: str) -> PricesError:
    place = str(where.key_at(key)) if isinstance(where, Map) else str(path)
    hint = f"write {price_example('<provider>/<model>')}, in US dollars per million tokens"
    return PricesError(f"{place}: {problem}", hint=hint)
