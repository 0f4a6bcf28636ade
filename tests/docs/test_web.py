"""The page about the web: its codes, its provider and its numbers are those of the code."""

from typing import get_args

import msgspec

from docs.generate.source import REPOSITORY
from dsh.capabilities.web import WEB, WebErrorCode
from dsh.kernel import CancelToken, Context
from dsh.plugins import web
from dsh.plugins.web_fetch_http import Config
from tests.aio import aio
from tests.docs.page import blocks
from tests.plugins.web.kit import query

PATH = REPOSITORY / "docs" / "web.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_every_code_is_explained() -> None:
    assert [code for code in get_args(WebErrorCode) if f"`{code}`" not in PAGE] == []


def test_the_bounds_are_those_of_the_row() -> None:
    defaults = Config()

    assert f"| {defaults.timeout_ms // 1000} s | `timeoutMs` |" in PAGE
    assert f"| {defaults.max_redirects} | `maxRedirects` |" in PAGE
    assert f"{defaults.max_response_bytes:,} unpacked" in PAGE
    assert f"| {defaults.max_body_chars:,}; scripts" in PAGE
    named = {field.encode_name for field in msgspec.structs.fields(Config)}
    assert {name for name in named if f"`{name}`" not in PAGE} == {"maxUrlLength", "userAgent"}


@aio
async def test_the_provider_of_the_page_finds_something() -> None:
    (made,) = [block for block in blocks(PATH) if block.language == "python"]
    module: dict[str, object] = {}
    exec(compile(made.text, "web.md", "exec"), module)
    ctx = Context()
    await ctx.plugin(web, {})
    apply = module["apply"]
    assert callable(apply)
    apply(ctx)

    found = await ctx.use(WEB).search(query("what", signal=CancelToken()))

    assert [source.title for source in found.sources] == ["what"]
    await ctx.dispose()
