"""Row `web`: the providers of web search and of web pages, and the choice of one of them.

A configured provider is asked or nobody is; where none is configured, exactly one must be available. Rows
such as `web-search-deepseek` register the providers, `tool-web` brings them to the model.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from dsh.capabilities.bounds import NonEmpty
from dsh.capabilities.launch import BOOT, LAUNCH_ENVIRONMENT
from dsh.capabilities.web import (
    WEB,
    WEB_CHANGE,
    FetchProvider,
    SearchProvider,
    WebChanged,
    WebError,
    WebFindings,
    WebPage,
    WebQuery,
)
from dsh.kernel import CancelToken, Context, Effect, Service

provide = [WEB]

P = TypeVar("P", SearchProvider, FetchProvider)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    search_provider: NonEmpty | None = None
    """Who searches; unset: `DSH_WEB_SEARCH_PROVIDER`, else the only provider that is available."""
    fetch_provider: NonEmpty | None = None
    """Who fetches pages; unset: `DSH_WEB_FETCH_PROVIDER`, else the only provider that is available."""


class WebService(Service):
    """Implements `dsh.capabilities.web.Web`. State: the providers by id."""

    provide = WEB

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._search: dict[str, SearchProvider] = {}
        self._fetch: dict[str, FetchProvider] = {}
        super().__init__(ctx)

    def register_search(self, provider: SearchProvider) -> Effect:
        return self._register(self._search, provider, "search")

    def register_fetch(self, provider: FetchProvider) -> Effect:
        return self._register(self._fetch, provider, "fetch")

    def _register(self, providers: dict[str, P], provider: P, use: str) -> Effect:
        def setup() -> object:
            if provider.id in providers:
                raise WebError(
                    "WEB_DUPLICATE_PROVIDER",
                    f"two rows want to be the {use} provider {provider.id!r}",
                    hint="remove one of them",
                )
            providers[provider.id] = provider
            self.notify()

            def undo() -> None:
                del providers[provider.id]
                self.notify()

            return undo

        return self.ctx.effect(setup, f"web {use} provider {provider.id}")

    def notify(self) -> None:
        self.owner_ctx.emit(WEB_CHANGE, WebChanged())

    def can_search(self) -> bool:
        return _is_chosen(self._search, self.configured("search"))

    def can_fetch(self) -> bool:
        return _is_chosen(self._fetch, self.configured("fetch"))

    async def search(self, query: WebQuery) -> WebFindings:
        found = await _chosen(self._search, self.configured("search"), "search").search(query)
        if len(found.sources) <= query.max_results:
            return found
        return msgspec.structs.replace(found, sources=found.sources[: query.max_results], truncated=True)

    async def fetch(self, url: str, signal: CancelToken) -> WebPage:
        return await _chosen(self._fetch, self.configured("fetch"), "fetch").fetch(url, signal)

    def configured(self, use: str) -> str | None:
        """The id that the row or the environment names."""
        named = self._config.search_provider if use == "search" else self._config.fetch_provider
        environment = self.owner_ctx.get(LAUNCH_ENVIRONMENT)
        if named is not None or environment is None:
            return named
        variable = environment.get(f"DSH_WEB_{use.upper()}_PROVIDER")
        return variable.value.strip() or None if variable is not None else None

    def strangers(self) -> list[str]:
        """What is to be told of a configured provider that no row brings, although others are there."""
        told = []
        both: tuple[tuple[str, Iterable[str]], ...] = (("search", self._search), ("fetch", self._fetch))
        for use, providers in both:
            named, known = self.configured(use), sorted(providers)
            if named is not None and known and named not in known:
                told.append(_missing(named, use, known).message)
        return told


def _is_chosen(providers: Mapping[str, P], configured: str | None) -> bool:
    try:
        _chosen(providers, configured, "")
    except WebError:
        return False
    return True


def _chosen(providers: Mapping[str, P], configured: str | None, use: str) -> P:
    """The provider to ask.

    Raises:
        WebError: the configured one is missing or unavailable, or there is not exactly one available.
    """
    if configured is not None:
        found = providers.get(configured)
        if found is None:
            raise _missing(configured, use, sorted(providers))
        if (problem := found.problem()) is not None:
            raise WebError(
                "WEB_PROVIDER_CONFIGURED_UNAVAILABLE",
                f"the configured web {use} provider {configured!r} cannot be used: {problem}",
            )
        return found
    problems = {name: provider.problem() for name, provider in providers.items()}
    available = [name for name, problem in problems.items() if problem is None]
    if not available:
        why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise WebError(
            "WEB_PROVIDER_UNAVAILABLE",
            f"no web {use} provider is available" + (f" ({why})" if why else ""),
        )
    if len(available) > 1:
        raise WebError(
            "WEB_PROVIDER_AMBIGUOUS",
            f"several web {use} providers are available: {', '.join(sorted(available))}",
            hint=f"name one as {use}Provider of the row web",
        )
    return providers[available[0]]


def _missing(configured: str, use: str, known: list[str]) -> WebError:
    return WebError(
        "WEB_PROVIDER_CONFIGURED_MISSING",
        f"no row registers the configured web {use} provider {configured!r} "
        f"(registered: {', '.join(known) or 'none'})",
    )


def apply(ctx: Context, config: Config) -> None:
    service = WebService(ctx, config)

    async def tell_strangers(inner: Context) -> None:
        await inner.use(BOOT).ready()
        for problem in service.strangers():
            inner.logger.warning("%s", problem)

    ctx.inject([BOOT], lambda inner: inner.spawn(tell_strangers(inner), "web providers that nobody brings"))
