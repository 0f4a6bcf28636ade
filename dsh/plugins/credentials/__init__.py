"""Row `credentials`: looks keys up by name.

The inherited environment comes first, then `.credentials.yaml`, the project's `.env`, the home's `.env`.
Nothing is cached but the parsed document, which is read again when the file has changed. No message holds
a value, nor a name that nobody checked: it may be a key in the wrong place.
"""

from typing import Annotated

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.credentials import CREDENTIALS
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.errors import CredentialError
from dsh.kernel import Context
from dsh.plugins.credentials.store import FILE, Store

__all__ = ["Config", "apply", "inject", "provide"]

inject = [LAUNCH_ENVIRONMENT, HOME_PATH]
provide = [CREDENTIALS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `credentials` row."""

    watch: bool = True
    """Read the document again when it has changed; otherwise it counts as it was at start."""
    debounce_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMER_MS)] = 100
    """How long the original lets a changed document rest. Known, so that rows written for it load; here a
    change is seen by the next look-up and nothing waits.
    """


async def apply(ctx: Context, config: Config) -> None:
    """Read the document, which must be in order, and provide the look-up."""
    store = Store(ctx, ctx.use(HOME_PATH)(FILE), ctx.use(LAUNCH_ENVIRONMENT), watch=config.watch)
    try:
        await store.migrate()
    except CredentialError as error:
        ctx.logger.warning("%s; the keys in it count all the same", error.message)
    ctx.provide(CREDENTIALS, store)
