"""The tool `web_search`: its queries, how results are merged and shown, and when it is there at all."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.web import WebError, WebFindings, WebQuery, WebSource
from dsh.kernel import CancelToken
from dsh.plugins.tool_web import search as search_module
from dsh.plugins.tool_web.search import CITE, CUT, NOTHING
from dsh.session.value import encode
from dsh.tools.execution import ToolSuccess
from tests.aio import aio
from tests.plugins.web.kit import StandInFetch, StandInSearch, agent, query, ran, with_tools
from tests.tools.kit import call, code, text, value

ONE = {"queries": ["words"]}


@aio
async def test_the_tools_come_and_go_with_their_providers() -> None:
    ctx, service, registry = await with_tools()
    assert registry.schemas() == ()

    provider = StandInSearch()
    searching = service.register_search(provider)
    service.register_fetch(StandInFetch())
    assert [tool.name for tool in registry.schemas()] == ["web_fetch", "web_search"]

    provider.trouble = "no key"
    service.notify()
    assert [tool.name for tool in registry.schemas()] == ["web_fetch"]
    provider.trouble = None
    service.notify()
    service.notify()
    assert [tool.name for tool in registry.schemas()] == ["web_fetch", "web_search"]

    await searching()
    assert [tool.name for tool in registry.schemas()] == ["web_fetch"]
    await ctx.dispose()


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"search": False}, ["web_fetch"]),
        ({"fetch": False}, ["web_search"]),
        ({"search": False, "fetch": False}, []),
    ],
)
@aio
async def test_a_tool_that_is_switched_off_never_comes(config: dict[str, Any], names: list[str]) -> None:
    ctx, service, registry = await with_tools(**config)
    service.register_search(StandInSearch())
    service.register_fetch(StandInFetch())

    assert [tool.name for tool in registry.schemas()] == names
    await ctx.dispose()


@aio
async def test_one_query_goes_to_the_provider_as_it_is() -> None:
    ctx, service, registry = await with_tools(searchMaxResults=3)
    provider = StandInSearch()
    service.register_search(provider)
    who = agent(ctx)

    await ran(registry, "web_search", {"queries": ["  odd   blanks "]}, who)

    (asked,) = provider.queries
    assert (asked.text, asked.max_results, asked.session) == ("  odd   blanks ", 3, who.session)
    await ctx.dispose()


@aio
async def test_results_are_shown_as_links_and_logged_whole() -> None:
    ctx, service, registry = await with_tools()

    class Provider(StandInSearch):
        async def search(self, query: WebQuery) -> WebFindings:
            return WebFindings(
                content="It is so.",
                truncated=True,
                sources=(
                    WebSource(
                        url="https://a.example/x_(y)",
                        title="A [1]\nb",
                        snippet=" one\n two ",
                        published_at="2026",
                    ),
                    WebSource(url="https://b.example/p?q=1"),
                ),
            )

    service.register_search(Provider())
    result = await ran(registry, "web_search", ONE)

    assert text(result) == "\n\n".join(
        [
            "It is so.",
            "Sources:\n- [A (1) b](https://a.example/x_%28y%29) — one two (2026)\n"
            "- [b.example](https://b.example/p?q=1)",
            CUT,
            CITE,
        ]
    )
    assert isinstance(result, ToolSuccess)
    assert json.loads(encode(result.meta)) == {
        "answer": "It is so.",
        "truncated": True,
        "sources": [
            {
                "url": "https://a.example/x_(y)",
                "title": "A [1] b",
                "snippet": "one two",
                "publishedAt": "2026",
            },
            {"url": "https://b.example/p?q=1"},
        ],
    }
    await ctx.dispose()


@aio
async def test_nothing_found_is_no_failure() -> None:
    ctx, service, registry = await with_tools()
    provider = StandInSearch()
    provider.urls = ()
    service.register_search(provider)

    result = await ran(registry, "web_search", ONE)

    assert text(result) == NOTHING
    assert json.loads(encode(value(result))) == {"sources": [], "truncated": False}
    await ctx.dispose()


@pytest.mark.parametrize(
    ("queries", "problem"),
    [
        ([], "queries must hold 1 to 4 queries, got 0"),
        (["a"] * 5, "queries must hold 1 to 4 queries, got 5"),
        (["a", " "], "a query must not be blank"),
    ],
)
@aio
async def test_a_list_that_cannot_be_is_an_error_without_a_code(queries: list[str], problem: str) -> None:
    ctx, service, registry = await with_tools()
    service.register_search(StandInSearch())

    result = await ran(registry, "web_search", {"queries": queries})

    assert text(result) == f"Error: {problem}"
    assert code(result) is None
    await ctx.dispose()


@aio
async def test_what_is_no_list_of_texts_is_refused_by_the_schema() -> None:
    ctx, service, registry = await with_tools()
    service.register_search(StandInSearch())

    for wrong in ({}, {"queries": "a"}, {"queries": [1]}):
        assert code(await ran(registry, "web_search", wrong)) == "INVALID_ARGS"
    await ctx.dispose()


class ByQuery(StandInSearch):
    """Finds what each query names: pages by their letters."""

    async def search(self, query: WebQuery) -> WebFindings:
        self.queries.append(query)
        sources = tuple(WebSource(url=f"https://{letter}.example/") for letter in query.text.strip())
        return WebFindings(sources=sources, content=f"of {query.text}")


@aio
async def test_equal_queries_are_asked_once_and_blanks_make_a_difference() -> None:
    ctx, service, registry = await with_tools()
    provider = ByQuery()
    service.register_search(provider)

    await ran(registry, "web_search", {"queries": ["a", "a", "a "]})

    assert sorted(one.text for one in provider.queries) == ["a", "a "]
    await ctx.dispose()


@aio
async def test_several_queries_are_merged_by_rank_and_their_answers_stand_under_headings() -> None:
    ctx, service, registry = await with_tools(searchMaxResults=4)
    service.register_search(ByQuery())

    result = await ran(registry, "web_search", {"queries": ["abc", "dae"]})

    found = value(result)
    assert [source["url"][8] for source in found["sources"]] == ["a", "d", "b", "c"]
    assert found["truncated"] is True
    assert found["answer"] == "### abc\n\nof abc\n\n### dae\n\nof dae"
    await ctx.dispose()


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=4))
def test_each_page_is_kept_once_at_its_best_rank(ranks: list[list[str]]) -> None:
    found = [
        WebFindings(sources=tuple(WebSource(url=f"https://{letter}.example/") for letter in one))
        for one in ranks
    ]
    merged = [source.url[8] for source in search_module._merged(found)]

    best = {
        letter: min((one.index(letter), number) for number, one in enumerate(ranks) if letter in one)
        for one in ranks
        for letter in one
    }
    assert merged == sorted(best, key=lambda letter: best[letter])


@aio
async def test_queries_run_side_by_side_and_the_first_failure_ends_the_others() -> None:
    ctx, service, registry = await with_tools()
    both, ended = asyncio.Event(), asyncio.Event()
    running: list[str] = []

    class Provider(StandInSearch):
        async def search(self, query: WebQuery) -> WebFindings:
            running.append(query.text)
            if len(running) == 2:
                both.set()
            await both.wait()
            if query.text == "fails":
                raise WebError("WEB_PROVIDER_ERROR", "it broke")
            try:
                await query.signal.wait()
                await asyncio.sleep(60)
            finally:
                ended.set()
            return WebFindings(sources=())

    service.register_search(Provider())
    async with asyncio.timeout(30):
        result = await ran(registry, "web_search", {"queries": ["waits", "fails"]})

    assert (text(result), code(result)) == ("Error: it broke", "WEB_PROVIDER_ERROR")
    assert ended.is_set()
    await ctx.dispose()


@aio
async def test_a_cancelled_call_reaches_every_provider() -> None:
    ctx, service, registry = await with_tools()
    signal, seen = CancelToken(), asyncio.Event()

    class Provider(StandInSearch):
        async def search(self, query: WebQuery) -> WebFindings:
            seen.set()
            await query.signal.wait()
            raise WebError("WEB_ABORTED", "stopped")

    service.register_search(Provider())
    running = asyncio.ensure_future(registry.run(call("web_search", ONE, signal=signal)))
    await seen.wait()
    signal.cancel("user")
    async with asyncio.timeout(30):
        assert code(await running) in ("WEB_ABORTED", "ABORTED")
    await ctx.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "http://[::1",
        "no url",
        "https://x.example/" + "a" * 3000,
    ],
)
@aio
async def test_a_source_that_leads_nowhere_is_left_out(url: str) -> None:
    ctx, service, registry = await with_tools()
    service.register_search(StandInSearch("one", url, "https://good.example/"))

    assert [s["url"] for s in value(await ran(registry, "web_search", ONE))["sources"]] == [
        "https://good.example/"
    ]
    await ctx.dispose()


@aio
async def test_what_strangers_write_is_bounded_and_valid() -> None:
    ctx, service, registry = await with_tools()

    class Provider(StandInSearch):
        async def search(self, query: WebQuery) -> WebFindings:
            long = WebSource(url="https://a.example/\ud83d", title="t\ud800" * 900, snippet="s" * 90_000)
            return WebFindings(sources=(long,), content="c\udc00" * 90_000)

    service.register_search(Provider())
    result = await ran(registry, "web_search", ONE)

    assert len(text(result)) < 25_000
    text(result).encode()
    await ctx.dispose()


@aio
async def test_the_provider_is_never_asked_for_nothing() -> None:
    ctx, service, _ = await with_tools()
    provider = StandInSearch("one", problem="no key")
    service.register_search(provider)
    with pytest.raises(WebError):
        await service.search(query())
    assert provider.queries == []
    await ctx.dispose()


@aio
async def test_a_display_shows_queries_and_results() -> None:
    ctx, service, registry = await with_tools()
    service.register_search(StandInSearch())
    made = call("web_search", {"queries": ["a", "b"]})

    card = registry.present_call(made)

    assert card is not None
    assert (getattr(card, "title", None), getattr(card, "kind", None)) == (
        "Search the web for a; b",
        "search",
    )
    await ctx.dispose()
