"""The provider `deepseek-official`: whether it can search, and where. It searches in `search.py`."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.web import WebFindings, WebQuery
from dsh.kernel import Context
from dsh.llm.transport.credential import ContextKeys

if TYPE_CHECKING:
    from dsh.llm.search_api import SearchApi
    from dsh.plugins.web_search_deepseek import Config

PROVIDER = "deepseek-official"
PUBLIC_URL = "https://api.deepseek.com/anthropic/v1"
URL_VARIABLE = "DEEPSEEK_SEARCH_BASE_URL"
MODEL_URL_VARIABLE = "DEEPSEEK_BASE_URL"


class DeepSeekSearch:
    """Implements `dsh.capabilities.web.SearchProvider`. Reads its options anew for each search."""

    id = PROVIDER

    def __init__(self, ctx: Context, config: "Callable[[], Config]") -> None:
        self._ctx, self._config = ctx, config

    def problem(self) -> str | None:
        config = self._config()
        if (url := self.base_url()) is None:
            return (
                f"{MODEL_URL_VARIABLE} names another server, whose key is not sent to DeepSeek; "
                f"set {URL_VARIABLE}, or baseURL of the row web-search-deepseek"
            )
        return self.api().problem(config.api_key_env, url)

    def base_url(self) -> str | None:
        """Where to ask; None where the key seems to be another server's."""
        named = self._config().base_url or self._variable(URL_VARIABLE)
        if named:
            return named
        models_url = self._variable(MODEL_URL_VARIABLE)
        return None if models_url and not _is_deepseek(models_url) else PUBLIC_URL

    def _variable(self, name: str) -> str:
        environment = self._ctx.get(LAUNCH_ENVIRONMENT)
        variable = None if environment is None else environment.get(name)
        return "" if variable is None else variable.value.strip()

    def api(self) -> "SearchApi":
        from dsh.llm.search_api import SearchApi

        return SearchApi(
            name="DeepSeek's web search",
            row="web-search-deepseek",
            http=self._ctx.use(HTTP),
            keys=ContextKeys(self._ctx),
        )

    async def search(self, query: WebQuery) -> WebFindings:
        from dsh.plugins.web_search_deepseek.search import search

        return await search(self._ctx, self, self._config(), query)


def _is_deepseek(url: str) -> bool:
    try:
        return urlsplit(url).hostname == urlsplit(PUBLIC_URL).hostname
    except ValueError:
        return False
