"""Row `model-catalogue`: what is known of models, for the rows that serve them.

It owns the section `models` of the settings, where people say windows, limits and prices of the routes they
use, and gives out the catalogue that ships with the program. That data is read with the first question.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.model_facts import NAMESPACE, ModelFacts, check_routes
from dsh.capabilities.settings_section import SettingsSection, install_settings_section
from dsh.kernel import Context

inject = ()
provide = [MODEL_CATALOGUE]

Section = cast("type[msgspec.Struct]", dict[str, ModelFacts])
"""The section maps routes; a schema may be any type that msgspec converts a mapping into."""

sections = {NAMESPACE: Section}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    models: dict[str, ModelFacts] = {}
    """What holds of models, by route `<provider>/<model>`; the settings' section `models` is laid over it."""

    def __post_init__(self) -> None:
        check_routes(self.models)


class Catalogue:
    """Implements `dsh.capabilities.model_catalogue.ModelCatalogue`."""

    def __init__(self, section: SettingsSection[Any]) -> None:
        self._section = section

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        models: Mapping[str, ModelFacts] = self._section.get()
        return models.get(f"{provider}/{model}")

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        from dsh.llm.catalogue.shipped import shipped_facts  # with its data: not before it is asked for

        return shipped_facts(vendor, model)


def apply(ctx: Context, config: Config) -> None:
    entry: Any = config.models
    section: SettingsSection[Any] = install_settings_section(
        ctx, NAMESPACE, Section, entry, validate=check_routes
    )
    ctx.provide(MODEL_CATALOGUE, Catalogue(section))
