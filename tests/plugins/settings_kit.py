"""A composition with the service `settings` over memory or a file of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.capabilities.settings import SECRET, SETTINGS
from dsh.composition.environment import Environment
from dsh.composition.home import HomePaths
from dsh.kernel import Context
from dsh.plugins import settings
from dsh.plugins.settings.document import MemoryStore, Store
from dsh.plugins.settings.service import SettingsService


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a section."""

    low_ms: int = 1
    high_ms: int = 10


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A section with a bit of everything."""

    name: str = "default"
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    mode: Literal["a", "b"] = "a"
    limits: Limits = Limits()
    tags: tuple[str, ...] = ()
    key: Annotated[str, SECRET] = ""


class Settled:
    """The service under test and its store."""

    def __init__(self, ctx: Context, store: Store) -> None:
        self.ctx, self.store = ctx, store

    @property
    def service(self) -> SettingsService:
        found = self.ctx.get(SETTINGS)
        assert isinstance(found, SettingsService)
        return found


@asynccontextmanager
async def stored(store: Store) -> AsyncIterator[Settled]:
    """The service over a store."""
    ctx = Context()

    def apply(inner: Context) -> None:
        SettingsService(inner, store)

    try:
        await ctx.plugin(apply)
        yield Settled(ctx, store)
    finally:
        await ctx.dispose()


def in_memory(**sections: Any) -> Any:
    return stored(MemoryStore({name.replace("_", "-"): value for name, value in sections.items()}))


@asynccontextmanager
async def at_home(home: Path, text: str | None = None, **config: Any) -> AsyncIterator[Context]:
    """The row `settings` over a home; `text` becomes its document."""
    ctx = Context()
    if text is not None:
        (home / "settings.yaml").write_text(text, "utf-8")
    try:
        ctx.provide(HOME_PATH, HomePaths(home))
        ctx.provide(LAUNCH_ENVIRONMENT, Environment({}, []))
        await ctx.plugin(settings, config)
        yield ctx
    finally:
        await ctx.dispose()
