"""Row `web`: who is asked, and what is said where nobody can be."""

import asyncio
import logging
from typing import Any

import pytest

from dsh.capabilities.launch import BOOT, LAUNCH_ENVIRONMENT
from dsh.capabilities.web import WEB, WEB_CHANGE, Web, WebError
from dsh.kernel import CancelToken, Context
from dsh.plugins import web
from tests.aio import aio
from tests.plugins.web.kit import (
    StandInFetch,
    StandInSearch,
    environment,
    mounted,
    query,
)


async def code_of(service: Web) -> str:
    with pytest.raises(WebError) as caught:
        await service.search(query())
    assert not service.can_search()
    return caught.value.code


@aio
async def test_the_only_available_provider_is_asked() -> None:
    ctx, service = await mounted()
    able = StandInSearch("able")
    service.register_search(StandInSearch("unable", problem="no key"))
    service.register_search(able)

    found = await service.search(query("words"))

    assert service.can_search()
    assert [source.url for source in found.sources] == ["https://a.example/"]
    assert [one.text for one in able.queries] == ["words"]
    await ctx.dispose()


@aio
async def test_without_a_configured_one_exactly_one_must_be_available() -> None:
    ctx, service = await mounted()
    assert await code_of(service) == "WEB_PROVIDER_UNAVAILABLE"

    service.register_search(StandInSearch("a", problem="KEY_A is not set"))
    with pytest.raises(WebError, match="a: KEY_A is not set") as caught:
        await service.search(query())
    assert caught.value.code == "WEB_PROVIDER_UNAVAILABLE"

    service.register_search(StandInSearch("b"))
    service.register_search(StandInSearch("c"))
    assert await code_of(service) == "WEB_PROVIDER_AMBIGUOUS"
    await ctx.dispose()


@aio
async def test_the_configured_provider_is_asked_or_nobody() -> None:
    ctx, service = await mounted({"searchProvider": "b"})
    service.register_search(StandInSearch("a"))
    assert await code_of(service) == "WEB_PROVIDER_CONFIGURED_MISSING"

    chosen = StandInSearch("b", problem="B_KEY is not set")
    service.register_search(chosen)
    with pytest.raises(WebError, match="'b' cannot be used: B_KEY is not set") as caught:
        await service.search(query())
    assert caught.value.code == "WEB_PROVIDER_CONFIGURED_UNAVAILABLE"

    chosen.trouble = None
    await service.search(query())
    assert len(chosen.queries) == 1
    await ctx.dispose()


@pytest.mark.parametrize(
    ("config", "variable", "expected"),
    [({}, "b", "b"), ({"searchProvider": "a"}, "b", "a"), ({}, "", None), ({}, "  ", None)],
)
@aio
async def test_the_environment_names_a_provider_where_the_row_does_not(
    config: dict[str, Any], variable: str, expected: str | None
) -> None:
    ctx = Context()
    ctx.provide(LAUNCH_ENVIRONMENT, environment({"DSH_WEB_SEARCH_PROVIDER": variable}))
    await ctx.plugin(web, config)
    providers = [StandInSearch("a"), StandInSearch("b")]
    service = ctx.use(WEB)
    for provider in providers:
        service.register_search(provider)

    if expected is None:
        assert await code_of(service) == "WEB_PROVIDER_AMBIGUOUS"
    else:
        await service.search(query())
        assert [p.id for p in providers if p.queries] == [expected]
    await ctx.dispose()


@aio
async def test_pages_have_providers_of_their_own() -> None:
    ctx, service = await mounted({"fetchProvider": "pages"})
    assert not service.can_fetch()
    service.register_search(StandInSearch("pages"))
    service.register_fetch(StandInFetch())

    assert service.can_fetch()
    assert (await service.fetch("https://a.example/", CancelToken())).content == "words"
    await ctx.dispose()


@aio
async def test_no_more_sources_come_back_than_were_asked_for() -> None:
    ctx, service = await mounted()
    service.register_search(StandInSearch("one", *(f"https://{n}.example/" for n in range(5))))

    some, all_of_them = await service.search(query(max_results=3)), await service.search(query(max_results=5))

    assert (len(some.sources), some.truncated) == (3, True)
    assert (len(all_of_them.sources), all_of_them.truncated) == (5, False)
    await ctx.dispose()


@aio
async def test_a_name_that_is_taken_is_refused_and_free_again_when_its_row_goes() -> None:
    ctx, service = await mounted()

    def apply(inner: Context) -> None:
        inner.use(WEB).register_search(StandInSearch("one"))

    row = ctx.plugin(apply, name="row", inject=[WEB])
    await row
    with pytest.raises(WebError) as caught:
        service.register_search(StandInSearch("one"))
    assert caught.value.code == "WEB_DUPLICATE_PROVIDER"

    await row.dispose()
    assert not service.can_search()
    service.register_search(StandInSearch("one"))
    await ctx.dispose()


@aio
async def test_every_change_of_the_providers_is_told() -> None:
    ctx, service = await mounted()
    told: list[bool] = []
    ctx.on(WEB_CHANGE, lambda _: told.append(service.can_search()))
    provider = StandInSearch("one")

    registered = service.register_search(provider)
    provider.trouble = "no key"
    service.notify()
    await registered()

    assert told == [True, False, False]
    await ctx.dispose()


class Ready:
    """A start that is over."""

    async def ready(self) -> None:
        return None


@pytest.mark.parametrize(("known", "told"), [(["exa"], True), ([], False), (["one"], False)])
@aio
async def test_a_configured_provider_that_no_row_brings_is_told_once_the_rows_are_there(
    caplog: pytest.LogCaptureFixture, known: list[str], told: bool
) -> None:
    caplog.set_level(logging.WARNING)
    ctx, service = await mounted({"searchProvider": "one"})
    for name in known:
        service.register_search(StandInSearch(name))
    ctx.provide(BOOT, Ready())
    for _ in range(10):
        await asyncio.sleep(0)

    assert [record for record in caplog.messages if "'one'" in record] == (
        ["no row registers the configured web search provider 'one' (registered: exa)"] if told else []
    )
    await ctx.dispose()


@pytest.mark.parametrize("config", [{"searchProvider": ""}, {"searchprovider": "x"}, {"fetchProvider": 1}])
@aio
async def test_wrong_options_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"(?i)provider"):
        await mounted(config)
