"""Row `settings`: what the user set for all sessions, in `settings.yaml` of the home.

A document that cannot be read stops the start. Later a mistake in it is told, and what was valid before
still counts. Edits are seen within a second (`spec/composition.md` §11).
"""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS, NonEmpty
from dsh.capabilities.launch import BOOT, HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.capabilities.settings import SETTINGS
from dsh.capabilities.user_document import EXTENSIONS
from dsh.composition.home import home_path
from dsh.kernel import Context
from dsh.plugins.settings.document import FileStore
from dsh.plugins.settings.service import SettingsService

__all__ = ["Config", "apply", "inject", "provide"]

FILE = "settings.yaml"
POLL_S = 0.5
"""How often the document's status is asked for; no event of the system can be missed that way."""

inject = [HOME_PATH, LAUNCH_ENVIRONMENT]
provide = [SETTINGS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `settings` row."""

    path: NonEmpty | None = None
    """The document, `.yaml`, `.yml` or `.json`, relative to the home; unset: `settings.yaml`."""
    dsh_home: NonEmpty | None = None
    """The folder that counts as the home for this row; unset: `$DSH_HOME`, else `~/.dsh`."""
    watch: bool = True
    """See edits from outside while dsh runs."""
    debounce_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMER_MS)] = 100
    """How long a changed document must rest before it is read."""

    def __post_init__(self) -> None:
        if self.path is not None and Path(self.path).suffix not in EXTENSIONS:
            raise ValueError(f"path must end in one of {', '.join(EXTENSIONS)}")


def document_path(home: Path, config: Config) -> Path:
    """Where the document is, for the home that the launcher found."""
    home = home if config.dsh_home is None else home_path(configured=config.dsh_home)
    return home / (config.path or FILE)


async def follow(service: SettingsService, debounce_s: float, poll_s: float = POLL_S) -> None:
    """Read the document again whenever it has changed and then rested; never ends."""
    while True:
        await asyncio.sleep(poll_s)
        if service.is_changed:
            await asyncio.sleep(debounce_s)
            await service.reload()


def apply(ctx: Context, config: Config) -> None:
    """Read the document, which must be in order, and provide the service."""
    service = SettingsService(ctx, FileStore(document_path(ctx.use(HOME_PATH)(), config)))
    if config.watch:
        ctx.spawn(follow(service, config.debounce_ms / 1000), "settings document")
    ctx.inject([BOOT], lambda inner: inner.spawn(_tell_strangers(inner, service), "settings nobody reads"))


async def _tell_strangers(ctx: Context, service: SettingsService) -> None:
    await ctx.use(BOOT).ready()
    service.tell_strangers()
