"""Row `session-stats`: what a session did and took, as the projection `sessionStats`.

Its costs come from the section `models` of the settings, where a person says what a route costs.
"""

from typing import Any, cast

import msgspec

from dsh.capabilities.prices import NAMESPACE, ModelSettings, prices_of
from dsh.capabilities.projections import PROJECTIONS
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.session.projection.price import Price
from dsh.session.projection.stats import STATS, priced_view

inject = [PROJECTIONS]
provide = ()

Section = cast("type[msgspec.Struct]", dict[str, ModelSettings])
"""The section maps routes; a schema may be any type that msgspec converts a mapping into."""

sections = {NAMESPACE: Section}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    nothing: Any = {}
    section: Any = install_settings_section(ctx, NAMESPACE, Section, nothing)

    def prices() -> dict[str, Price]:
        return prices_of(section.get())

    unit = msgspec.structs.replace(STATS, view=priced_view(prices))
    ctx.use(PROJECTIONS).register(unit)
