"""One search: a request to a model with the server's own search tool, and what its reply found."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.web import WebError, WebFindings, WebQuery, WebSource
from dsh.kernel import Context
from dsh.llm.anthropic.event import merge_usage, usage_of
from dsh.llm.search_api import SearchApi, text_in
from dsh.llm.transport.endpoint import joined
from dsh.session.log import Session
from dsh.session.projection.request_usage import REQUEST_USAGE, usage_payload
from dsh.unicode import valid

if TYPE_CHECKING:
    from dsh.plugins.web_search_deepseek import Config
    from dsh.plugins.web_search_deepseek.provider import DeepSeekSearch

REQUEST = "web/deepseek-search-llm-request"
PURPOSE = "web-search"
TOOL = "web_search_20250305"
ASK = "Search the web for the following, and nothing else. Then stop; do not answer it.\n\n"


async def search(ctx: Context, provider: "DeepSeekSearch", config: "Config", query: WebQuery) -> WebFindings:
    """Ask once, with the options as they are now.

    Raises:
        WebError: `WEB_PROVIDER_CREDENTIAL_MISSING`, `WEB_PROVIDER_ERROR`, `WEB_ABORTED`.
    """
    api, base_url = provider.api(), provider.base_url()
    if base_url is None:
        raise WebError("WEB_PROVIDER_CREDENTIAL_MISSING", f"{api.name}: {provider.problem()}")
    key = api.key(config.api_key_env)
    url, body = joined(base_url, "messages"), request_body(config, query.text)
    if query.session is not None:
        logged = {"endpoint": endpoint_shown(url), "apiVersion": config.api_version, "body": body}
        query.session.append(REQUEST, logged)
    headers = {"x-api-key": key, "authorization": f"Bearer {key}", "anthropic-version": config.api_version}
    answer = await api.post(url, headers=headers, body=body, secret=key, signal=query.signal)
    if query.session is not None:
        log_usage(ctx, query.session, provider.id, config.model, answer.get("usage"))
    return findings(api, answer)


def request_body(config: "Config", text: str) -> dict[str, Any]:
    """What is sent, as it is logged."""
    return {
        "model": config.model,
        "max_tokens": config.max_tokens,
        "messages": [{"role": "user", "content": [{"type": "text", "text": ASK + valid(text)}]}],
        "tools": [{"type": TOOL, "name": "web_search", "max_uses": config.max_uses}],
    }


def endpoint_shown(url: str) -> str:
    """The URL as it is logged: a query may hold a key."""
    return url.partition("?")[0]


def log_usage(ctx: Context, session: Session, provider: str, model: str, reported: Any) -> None:
    """Count what the search used, as a request of the session's beside its turns."""
    known: dict[str, int] = {}
    merge_usage(known, reported)
    usage = usage_of(known)
    if usage is None:
        return
    catalogue = ctx.get(MODEL_CATALOGUE)
    facts = None if catalogue is None else catalogue.configured(provider, model)
    price = None if facts is None else facts.price
    payload = usage_payload(usage, provider=provider, model=model, price=price, purpose=PURPOSE)
    session.append(REQUEST_USAGE, payload, ignorable=True)


def findings(api: SearchApi, answer: Mapping[str, Any]) -> WebFindings:
    """What the reply found, each page once, with the words that the model cited of it.

    Raises:
        WebError: `WEB_PROVIDER_ERROR`: the model did not search, or every search of its failed.
    """
    blocks = [block for block in _list(answer.get("content")) if isinstance(block, dict)]
    results = [block.get("content") for block in blocks if block.get("type") == "web_search_tool_result"]
    lists = [result for result in results if isinstance(result, list)]
    if not lists:
        codes = {str(result.get("error_code")) for result in results if isinstance(result, dict)}
        why = f"the search failed ({', '.join(sorted(codes))[:200]})" if codes else "the model did not search"
        raise api.nothing(why)
    cited = dict(reversed(list(_cited(blocks))))
    sources: dict[str, WebSource] = {}
    for found in (item for result in lists for item in result if isinstance(item, dict)):
        if (url := text_in(found.get("url"))) is not None and url not in sources:
            sources[url] = WebSource(
                url=url,
                title=text_in(found.get("title")),
                snippet=cited.get(url),
                published_at=text_in(found.get("page_age")),
            )
    return WebFindings(sources=tuple(sources.values()))


def _cited(blocks: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """URLs with what was cited of them, in the order of the reply."""
    for block in blocks:
        for citation in _list(block.get("citations")):
            if not isinstance(citation, dict):
                continue
            url, text = text_in(citation.get("url")), text_in(citation.get("cited_text"))
            if url is not None and text is not None:
                yield url, text


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
