"""The tool `web_search`: one to four queries at once, their results as one list."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from dsh.capabilities.web import Web, WebFindings, WebQuery, WebSource
from dsh.kernel import CancelToken
from dsh.plugins.tool_web import Config
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.typed import typed_tool
from dsh.unicode import valid

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

MAX_TITLE_CHARS = 200
MAX_SNIPPET_CHARS = 600
MAX_URL_CHARS = 2048
MAX_ANSWER_CHARS = 20_000
"""What is shown of a provider's own answer."""
NOTHING = "Nothing was found."
CUT = "There were more results; ask a narrower question to see others."
CITE = "Cite the sources that you use as Markdown links."

_SOURCE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "url": {"type": "string", "required": True},
        "title": {"type": "string"},
        "snippet": {"type": "string"},
        "publishedAt": {"type": "string"},
    },
}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "answer": {"type": "string"},
        "sources": {"type": "array", "items": _SOURCE, "required": True},
        "truncated": {"type": "boolean", "required": True},
    },
}


def search_tool(web: Web, config: Config) -> ToolDefinition:
    """The definition of `web_search`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        queries = _queries(args["queries"], config.search_max_queries)
        found = await _search_all(web, queries, config.search_max_results, execution)
        return _value(queries, found, config.search_max_results)

    most = config.search_max_queries
    return typed_tool(
        name="web_search",
        description=(
            "Search the web. Returns titles, URLs and excerpts of up to "
            f"{config.search_max_results} pages. Several queries in one call are searched at the same time "
            "and their results merged."
        ),
        parameters={
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "required": True,
                "description": f"1 to {most} queries, each in the words that a good page would use.",
            }
        },
        output=ToolOutput(_VALUE, lambda _, value: _render(value), lambda _, value: dict(value)),
        execute=execute,
        concurrency_safe=True,
        timeout_ms=config.search_timeout_ms,
        present_call=_call_card,
        present_result=_result_card,
    )


def _queries(given: Sequence[str], most: int) -> list[str]:
    """The queries without repetitions.

    Raises:
        ToolError: there are too few or too many, or one is blank.
    """
    if not 1 <= len(given) <= most:
        raise ToolError(f"queries must hold 1 to {most} queries, got {len(given)}")
    if not all(query.strip() for query in given):
        raise ToolError("a query must not be blank")
    return list(dict.fromkeys(given))


async def _search_all(
    web: Web, queries: Sequence[str], max_results: int, execution: ToolExecution
) -> list[WebFindings]:
    """Ask all at once. The first failure ends the others and is raised."""
    signal = CancelToken.any_of(execution.signal)
    tasks = [
        asyncio.ensure_future(
            web.search(
                WebQuery(text=query, max_results=max_results, signal=signal, session=execution.session)
            )
        )
        for query in queries
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        return [task.result() for task in tasks]
    finally:
        signal.cancel("another query of the call has failed")
        signal.detach()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            task.cancelled() or task.exception()


def _value(queries: Sequence[str], found: Sequence[WebFindings], max_results: int) -> dict[str, Any]:
    sources = list(_merged(found))
    value: dict[str, Any] = {
        "sources": [msgspec.to_builtins(source) for source in sources[:max_results]],
        "truncated": len(sources) > max_results or any(one.truncated for one in found),
    }
    answers = [
        (query, valid(one.content.strip()))
        for query, one in zip(queries, found, strict=True)
        if one.content and one.content.strip()
    ]
    if answers:
        parts = [text if len(queries) == 1 else f"### {_line(query)}\n\n{text}" for query, text in answers]
        answer = "\n\n".join(parts)
        value["answer"] = answer if len(answer) <= MAX_ANSWER_CHARS else answer[:MAX_ANSWER_CHARS] + "…"
    return value


def _merged(found: Sequence[WebFindings]) -> "list[WebSource]":
    """The best of each query, then the second best, each page once."""
    kept: dict[str, WebSource] = {}
    for rank in itertools.zip_longest(*(one.sources for one in found)):
        for source in rank:
            if source is not None and (clean := _clean(source)) is not None:
                kept.setdefault(clean.url, clean)
    return list(kept.values())


def _clean(source: WebSource) -> WebSource | None:
    """The source as it may stand in one line; None where its URL leads nowhere."""
    url = "".join(valid(source.url).split())
    try:
        is_page = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
    except ValueError:
        is_page = False
    if not is_page or len(url) > MAX_URL_CHARS:
        return None
    return WebSource(
        url=url,
        title=_line(source.title, MAX_TITLE_CHARS),
        snippet=_line(source.snippet, MAX_SNIPPET_CHARS),
        published_at=_line(source.published_at, MAX_TITLE_CHARS),
    )


def _line(text: str | None, most: int = MAX_TITLE_CHARS) -> str | None:
    """One line of at most so many characters; None for nothing."""
    line = " ".join(valid(text or "").split())
    return (line if len(line) <= most else line[: most - 1] + "…") or None


def _render(value: Mapping[str, Any]) -> str:
    sources = value["sources"]
    parts = [value["answer"]] if "answer" in value else []
    if sources:
        parts.append("\n".join(["Sources:", *map(_shown, sources)]))
    elif not parts:
        return NOTHING
    if value["truncated"]:
        parts.append(CUT)
    return "\n\n".join([*parts, CITE])


def _shown(source: Mapping[str, Any]) -> str:
    url = source["url"]
    title = (source.get("title") or urlsplit(url).hostname or url).replace("[", "(").replace("]", ")")
    link = url.replace("(", "%28").replace(")", "%29")
    snippet = f" — {source['snippet']}" if "snippet" in source else ""
    date = f" ({source['publishedAt']})" if "publishedAt" in source else ""
    return f"- [{title}]({link}){snippet}{date}"


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_web import card  # only displays need it

    return card.search_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_web import card

    return card.search_result(args, outcome)
