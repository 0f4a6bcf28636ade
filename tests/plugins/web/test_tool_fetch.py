"""The tool `web_fetch`: what a page looks like to the model, within its bound."""

import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.web import WebPage
from dsh.errors import CompositionError
from dsh.plugins import tool_web
from dsh.plugins.tool_web.fetch import CUT, EMPTY, _render
from dsh.plugins.tool_web.markdown import to_markdown
from dsh.tools.registry import ToolRegistry
from tests.aio import aio
from tests.plugins.web.kit import StandInFetch, mounted, ran, with_tools
from tests.tools.kit import code, text

URL = "https://a.example/docs/page"


def page(content: str, **changes: Any) -> WebPage:
    return WebPage(**{"url": URL, "status_code": 200, "kind": "html", "content": content, **changes})


async def fetched(content: WebPage, **config: Any) -> str:
    ctx, service, registry = await with_tools(**config)
    service.register_fetch(StandInFetch(content))
    result = await ran(registry, "web_fetch", {"url": URL})
    await ctx.dispose()
    return text(result)


@aio
async def test_a_text_comes_as_it_is_below_a_line_that_says_what_it_is() -> None:
    shown = await fetched(page('{"a": [1]}', kind="text", status_code=404))
    assert shown == f'{URL} — HTTP 404\n\n{{"a": [1]}}'
    assert await fetched(page("  ", kind="text")) == f"{URL} — HTTP 200\n\n{EMPTY}"


@aio
async def test_a_page_comes_as_markdown() -> None:
    shown = await fetched(
        page(
            "<html><head><title>The  title</title><style>p{}</style></head><body><script>bad()</script>"
            "<h2>Head</h2><p>Text with <b>bold</b> and <a href='../x?a=1'>a link</a> and "
            "<a href='#top'>none</a>."
            "</p><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>"
            "<ul><li>one</li><li>two</li></ul><pre>code  here</pre><!-- hidden -->"
            "<img src='data:image/png;base64,AAAA' alt='dot'><img src='/i.png' alt='pic'></body></html>"
        )
    )
    assert shown.startswith(f"{URL} — HTTP 200\n\n# The title\n\n## Head\n\n")
    assert "Text with **bold** and [a link](https://a.example/x?a=1) and none." in shown
    assert "| k | v |\n| --- | --- |\n| 1 | 2 |" in shown
    assert "- one\n- two" in shown
    assert "```\ncode  here\n```" in shown
    assert "![pic](https://a.example/i.png)" in shown
    for gone in ("bad()", "p{}", "hidden", "AAAA"):
        assert gone not in shown


@aio
async def test_a_cut_page_says_so() -> None:
    assert (await fetched(page("words", kind="text", truncated=True))).endswith(f"words\n\n{CUT}")


@given(
    st.text(max_size=3000),
    st.booleans(),
    st.integers(1_000, 4_000),
    st.text(alphabet="abc/é", max_size=3000),
)
def test_a_result_is_never_longer_than_its_bound(body: str, is_cut: bool, most: int, path: str) -> None:
    value = {"url": f"https://a.example/{path}", "statusCode": 200, "text": body, "truncated": is_cut}
    shown = _render(value, most)

    assert len(shown) <= most
    assert shown.endswith(CUT) or (body in shown and not is_cut)


@aio
async def test_a_blank_url_is_refused_before_anybody_is_asked() -> None:
    ctx, service, registry = await with_tools()
    provider = StandInFetch()
    service.register_fetch(provider)

    result = await ran(registry, "web_fetch", {"url": " "})

    assert (text(result), code(result), provider.asked) == ("Error: url must not be blank", None, [])
    await ctx.dispose()


def nested(depth: int) -> str:
    return "<div>" * depth + "deep" + "</div>" * depth


def test_a_page_that_is_too_deep_is_shown_as_it_came() -> None:
    assert to_markdown(nested(20), URL) == "deep"
    assert to_markdown(nested(600), URL) == nested(600)


@pytest.mark.parametrize(
    "hostile",
    [
        "<div>" * 20_000,
        "<" * 100_000,
        "<a href='" * 2_000,
        "<!--" * 5_000,
        "<b><i>" * 16_000,
        "<table>" * 14_000,
        "<p>x</b>" * 12_500,
        "&#x41;" * 16_000,
        "<a href='http://[::1'>x</a><a href='http://\ud800'>y</a>",
        "<![CDATA[" * 11_000,
        "<?" * 20_000,
        "x\n" * 50_000,
        "\0<p>\0</p>",
        "",
    ],
    ids=lambda page: repr(page[:9]),
)
def test_a_hostile_page_ends_as_some_text_in_bounded_time(hostile: str) -> None:
    begin = time.monotonic()
    assert isinstance(to_markdown(hostile, URL), str)
    assert time.monotonic() - begin < 30


@given(st.text(alphabet="<>/abtrd='\"& \n-!", max_size=400))
def test_any_markup_gives_a_text(markup: str) -> None:
    assert isinstance(to_markdown(markup, URL), str)


@aio
async def test_without_the_library_the_row_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdownify", None)
    ctx, _ = await mounted()
    ToolRegistry(ctx)
    with pytest.raises(Exception) as caught:
        await ctx.plugin(tool_web, {"search": False})
    error = caught.value
    assert isinstance(error, CompositionError)
    assert "markdownify" in error.message
    assert "pip install 'dsh[fetch]'" in error.hint
    await ctx.plugin(tool_web, {"fetch": False})
    await ctx.dispose()
