"""Row `session`: provides the store of live sessions, and knows the event types of installed plugins."""

import msgspec

from dsh.capabilities.launch import HOME_PATH
from dsh.composition.event_type import InstalledEventTypes
from dsh.kernel import Context
from dsh.session.store import SESSIONS, SessionStore
from dsh.session.vocabulary import install_finder

provide = [SESSIONS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    home = ctx.get(HOME_PATH)
    types = InstalledEventTypes(None if home is None else home())
    ctx.effect(lambda: install_finder(types), "event types of plugins")
    SessionStore(ctx)
