"""Row `session`: provides the store of live sessions."""

import msgspec

from dsh.kernel import Context
from dsh.session.store import SESSIONS, SessionStore

provide = [SESSIONS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    SessionStore(ctx)
