"""Row `web-search-perplexity`: search provider `perplexity`, over the search API of perplexity.ai."""

from typing import Annotated, Any

import msgspec

from dsh.capabilities.bounds import NonEmpty
from dsh.capabilities.credentials import CREDENTIAL_REFERENCE_UPDATED, CREDENTIALS
from dsh.capabilities.http import HTTP
from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.capabilities.web import WEB, WebFindings, WebQuery, WebSource
from dsh.kernel import Context
from dsh.llm.search_api import SearchApi, text_in
from dsh.llm.transport.credential import ContextKeys, hide_key
from dsh.llm.transport.endpoint import joined
from dsh.unicode import valid

inject = [HTTP, WEB]
provide = ()

MOST_RESULTS = 20
"""What the API gives at most."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row. To use it, name `perplexity` as `searchProvider` of the row `web`."""

    api_key_env: Annotated[str, CREDENTIAL_REF] = "PERPLEXITY_API_KEY"
    """Name of the key, as an environment variable or in the credentials file; never the key itself."""
    base_url: NonEmpty = msgspec.field(default="https://api.perplexity.ai", name="baseURL")
    """Where the API is."""


class PerplexitySearch:
    """Implements `dsh.capabilities.web.SearchProvider`."""

    id = "perplexity"

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._api = SearchApi(
            name="Perplexity", row="web-search-perplexity", http=ctx.use(HTTP), keys=ContextKeys(ctx)
        )

    def problem(self) -> str | None:
        return self._api.problem(self._config.api_key_env, self._config.base_url)

    async def search(self, query: WebQuery) -> WebFindings:
        key = self._api.key(self._config.api_key_env)
        answer = await self._api.post(
            joined(self._config.base_url, "search"),
            headers={"authorization": f"Bearer {key}"},
            body={"query": valid(query.text), "max_results": min(query.max_results, MOST_RESULTS)},
            secret=key,
            signal=query.signal,
        )
        results = answer.get("results")
        if not isinstance(results, list):
            raise self._api.nothing("the answer holds no list of results")
        return WebFindings(sources=tuple(filter(None, map(_source, results))))


def _source(result: Any) -> WebSource | None:
    url = text_in(result.get("url")) if isinstance(result, dict) else None
    if url is None:
        return None
    return WebSource(
        url=url,
        title=text_in(result.get("title")),
        snippet=text_in(result.get("snippet")),
        published_at=text_in(result.get("date")),
    )


def apply(ctx: Context, config: Config) -> None:
    web = ctx.use(WEB)
    hide_key(ctx, config.api_key_env)
    web.register_search(PerplexitySearch(ctx, config))
    ctx.on(CREDENTIAL_REFERENCE_UPDATED, lambda _: web.notify())
    ctx.inject([CREDENTIALS], lambda _: web.notify())
