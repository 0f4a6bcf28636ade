"""Row `web-fetch-http` against real servers on loopback, which its options allow here."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dsh.capabilities.web import WebError, WebPage
from dsh.kernel import CancelToken
from dsh.plugins import web_fetch_http
from dsh.plugins.web_fetch_http import Config
from dsh.plugins.web_fetch_http.body import Unpacker, without_hidden
from dsh.plugins.web_fetch_http.fetcher import Fetcher, Resolve
from tests.aio import aio
from tests.llm.wire_server import TLS, Play, WireServer, certificate, response, saying, serving
from tests.plugins.web.kit import mounted

HOST = "site.example"
HTML = "content-type: text/html; charset=utf-8"
TEXT = "content-type: text/plain; charset=utf-8"


def packed_with_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same in every process, for the names of tests


class Names:
    """A name server that gives its answers in turn, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = answers or (["127.0.0.1"],)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


@asynccontextmanager
async def fetching(port: int, resolve: Resolve | None = None, **config: Any) -> AsyncIterator[Fetcher]:
    made = {"allowedHosts": ["127.0.0.0/8"], "allowedPorts": [80, port], **config}
    fetcher = Fetcher(msgspec.convert(made, Config), resolve or Names())
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def page_of(play: Play, path: str = "/", **config: Any) -> tuple[WebPage, WireServer]:
    async with serving(play) as server, fetching(server.port, **config) as fetcher:
        return await fetcher.fetch(f"http://{HOST}:{server.port}{path}", CancelToken()), server


async def refusal_of(play: Play, **config: Any) -> tuple[WebError, WireServer]:
    async with serving(play) as server, fetching(server.port, **config) as fetcher:
        with pytest.raises(WebError) as caught:
            await fetcher.fetch(f"http://{HOST}:{server.port}/", CancelToken())
    return caught.value, server


def redirect(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n".encode()


@aio
async def test_a_page_comes_from_the_checked_address_and_the_server_hears_the_host() -> None:
    page, server = await page_of(saying(response("Grüße".encode(), TEXT)), "/a?b=c#frag")

    url = f"http://{HOST}:{server.port}/a?b=c"
    assert page == WebPage(url=url, status_code=200, kind="text", content="Grüße")
    head = server.requests[0].decode().lower()
    assert head.startswith("get /a?b=c http/1.1\r\n")
    assert f"\r\nhost: {HOST}:{server.port}\r\n" in head
    assert "\r\nuser-agent: dsh\r\n" in head
    assert "cookie" not in head and "authorization" not in head


@aio
async def test_a_name_server_that_changes_its_mind_changes_nothing() -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    page, _ = await page_of(saying(response(b"first", TEXT)), resolve=names)

    assert page.content == "first"
    assert names.asked == [HOST]


@aio
async def test_a_redirect_is_resolved_and_checked_anew() -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    error, server = await refusal_of(saying(redirect("/again"), response(b"never", TEXT)), resolve=names)

    assert error.code == "WEB_BLOCKED_URL"
    assert len(names.asked) == 2
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("http://127.0.0.1/", "WEB_REDIRECT_BLOCKED"),
        ("http://169.254.169.254/latest/", "WEB_REDIRECT_BLOCKED"),
        ("https://elsewhere.example/", "WEB_REDIRECT_BLOCKED"),
        ("http://site.example/", "WEB_REDIRECT_BLOCKED"),
        ("file:///etc/passwd", "WEB_INVALID_URL"),
        ("http://user:pass@site.example/", "WEB_INVALID_URL"),
        ("http://2130706433/", "WEB_BLOCKED_URL"),
        ("http://[::1", "WEB_PROVIDER_ERROR"),
    ],
)
@aio
async def test_a_redirect_to_another_place_is_told_and_not_followed(to: str, code: str) -> None:
    error, server = await refusal_of(saying(redirect(to)))

    assert error.code == code
    assert len(server.requests) == 1


@aio
async def test_redirects_within_the_site_are_followed_up_to_the_bound() -> None:
    plays = [redirect("/1", 301), redirect("2?x", 303), redirect("/3", 307), redirect("/4", 308)]
    page, server = await page_of(saying(*plays, response(b"end", TEXT)), maxRedirects=4)
    assert (page.content, page.url) == ("end", f"http://{HOST}:{server.port}/4")

    error, _ = await refusal_of(saying(redirect("/on")), maxRedirects=3)
    assert (error.code, error.message) == ("WEB_REDIRECT_BLOCKED", "more than 3 redirects")


@aio
async def test_an_answer_of_any_status_is_a_page() -> None:
    body = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\ngone"
    page, _ = await page_of(saying(body))
    assert (page.status_code, page.kind, page.content) == (404, "html", "gone")
    page, _ = await page_of(
        saying(b"HTTP/1.1 302 Found\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n")
    )
    assert (page.status_code, page.content) == (302, "")


@aio
async def test_a_page_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    error, _ = await refusal_of(saying(response(b"x" * 101, TEXT)), maxResponseBytes=100)
    assert error.code == "WEB_FETCH_TOO_LARGE"
    page, _ = await page_of(saying(response(b"x" * 100, TEXT)), maxResponseBytes=100)
    assert (len(page.content), page.truncated) == (100, False)


def chunked(size: int) -> Play:
    """Sends chunks for ever, as far as anybody reads them."""

    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 200 OK\r\n{TEXT}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        while True:
            writer.write(f"{size:x}\r\n".encode() + b"y" * size + b"\r\n")
            await writer.drain()

    return play


@aio
async def test_a_body_without_end_is_cut() -> None:
    async with asyncio.timeout(60):
        page, _ = await page_of(chunked(1000), maxResponseBytes=50_000)
    assert (page.content, page.truncated) == ("y" * 50_000, True)


@aio
async def test_a_text_is_cut_between_characters() -> None:
    page, _ = await page_of(saying(response("🙂".encode() * 50, TEXT)), maxBodyChars=20)
    assert (page.content, page.truncated) == ("🙂" * 20, True)
    page, _ = await page_of(chunked(7), maxResponseBytes=5)
    assert page.content == "y" * 5
    whole = response("é".encode() * 50, "content-type: text/plain", "content-encoding: gzip").split(
        b"\r\n\r\n"
    )
    packed = packed_with_gzip("é".encode() * 50)
    head = whole[0].replace(b"content-length: 100", f"content-length: {len(packed)}".encode())
    page, _ = await page_of(saying(head + b"\r\n\r\n" + packed), maxResponseBytes=41)
    assert (page.content, page.truncated) == ("é" * 20, True)


@aio
async def test_of_html_the_scripts_go_before_the_text_is_cut() -> None:
    body = b"<head><script>" + b"s" * 5000 + b"</script></head><p>words</p>"
    page, _ = await page_of(saying(response(body, HTML)), maxBodyChars=100)
    assert (page.content, page.truncated) == ("<head></head><p>words</p>", False)


@pytest.mark.parametrize(
    ("markup", "left"),
    [
        ("a<script>x</script>b", "ab"),
        ("a<SCRIPT src=x>x</Script >b", "ab"),
        ("a<style>x", "a"),
        ("a<!-- x --><svg><g/></svg>b", "ab"),
        ("a<scripted>b", "a<scripted>b"),
        ("İ<script>x</script>b", "İb"),
    ],
)
def test_what_no_reader_sees_is_taken_out(markup: str, left: str) -> None:
    assert without_hidden(markup) == left


def silent() -> Play:
    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 200 OK\r\n{TEXT}\r\ncontent-length: 10\r\n\r\nhalf".encode())
        await writer.drain()
        await asyncio.sleep(600)
        return False

    return play


@aio
async def test_a_slow_page_ends_at_the_deadline_whatever_it_is_waiting_for() -> None:
    async with asyncio.timeout(60):
        error, server = await refusal_of(silent(), timeoutMs=200)
    assert (error.code, error.message) == ("WEB_FETCH_TIMEOUT", "the page did not come within 200 ms")
    assert len(server.requests) == 1

    async def forever(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(600)
        return []

    async with asyncio.timeout(60):
        error, _ = await refusal_of(silent(), timeoutMs=50, resolve=forever)
    assert error.code == "WEB_FETCH_TIMEOUT"


@aio
async def test_a_cancelled_fetch_ends_at_once_and_closes_the_connection() -> None:
    signal = CancelToken()
    async with asyncio.timeout(60), serving(silent()) as server, fetching(server.port) as fetcher:
        running = asyncio.ensure_future(fetcher.fetch(f"http://{HOST}:{server.port}/", signal))
        while not server.requests:
            await asyncio.sleep(0.005)
        signal.cancel("user")
        with pytest.raises(WebError) as caught:
            await running
        assert caught.value.code == "WEB_ABORTED"


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", packed_with_gzip(b"words")),
        ("x-gzip", packed_with_gzip(b"words")),
        ("deflate", zlib.compress(b"words")),
        ("deflate", zlib.compress(b"words")[2:-4]),
        ("identity", b"words"),
        ("GZIP", packed_with_gzip(b"words") + b"trailing"),
    ],
)
@aio
async def test_packed_pages_are_unpacked(encoding: str, packed: bytes) -> None:
    page, _ = await page_of(saying(response(packed, TEXT, f"content-encoding: {encoding}")))
    assert page.content == "words"


@aio
async def test_a_bomb_unpacks_to_no_more_than_the_bound() -> None:
    bomb = packed_with_gzip(b"0" * 50_000_000)
    page, _ = await page_of(saying(response(bomb, TEXT, "content-encoding: gzip")), maxResponseBytes=100_000)
    assert (len(page.content), page.truncated) == (100_000, True)

    unpacker = Unpacker("gzip")
    assert len(unpacker.unpacked(bomb, 1000)) == 1000


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("content-encoding: br",), b"x"),
        (("content-encoding: gzip, gzip",), packed_with_gzip(packed_with_gzip(b"x"))),
        (("content-encoding: gzip",), b"not packed"),
        (("content-encoding: deflate",), b"not packed"),
    ],
)
@aio
async def test_what_cannot_be_unpacked_is_an_error(headers: tuple[str, ...], body: bytes) -> None:
    error, _ = await refusal_of(saying(response(body, TEXT, *headers)))
    assert error.code == "WEB_PROVIDER_ERROR"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("text/html", "html"), ("TEXT/HTML; charset=utf-8", "html"), ("application/xhtml+xml", "html"),
        ("text/plain", "text"), ("text/markdown", "text"), ("application/json", "text"),
        ("application/ld+json", "text"), ("application/rss+xml", "text"), ("application/xml;x", "text"),
        ("", "text"), ("image/png", None), ("application/pdf", None), ("application/octet-stream", None),
        ("nonsense", None),
    ],
)  # fmt: skip
@aio
async def test_only_text_is_read(said: str, kind: str | None) -> None:
    answer = saying(response(b"words", *([f"content-type: {said}"] if said else [])))
    if kind is None:
        error, _ = await refusal_of(answer)
        assert error.code == "WEB_UNSUPPORTED_CONTENT_TYPE"
        assert repr(said) in error.message
    else:
        page, _ = await page_of(answer)
        assert page.kind == kind


@pytest.mark.parametrize(
    ("said", "body", "content"),
    [
        ("text/plain; charset=iso-8859-1", "é€".encode("cp1252"), "é€"),
        ("text/plain; charset=\"Shift_JIS\"", "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=gb2312", "中文".encode("gb2312"), "中文"),
        ("text/plain; charset=utf-16", "x".encode("utf-16"), "x"),
        ("text/plain", "é".encode(), "é"),
        ("text/plain", b"\xe9", "é"),
        ("text/plain", b"\xef\xbb\xbfx", "x"),
        ("text/plain; charset=latin1", b"\xef\xbb\xbf\xc3\xa9", "é"),
        ("text/plain; charset=utf-8", b"a\xff\xc3", "a\ufffd\ufffd"),
        ("text/html", b'<meta charset="windows-1251">\xcf', '<meta charset="windows-1251">П'),
        ("text/html", b"<meta content='x; charset=koi8-r'>\xd0", "<meta content='x; charset=koi8-r'>п"),
        ("text/html", b"<meta charset=utf-16>\xc3\xa9", "<meta charset=utf-16>é"),
        ("text/html", b"<meta charset=zip>\xc3\xa9", "<meta charset=zip>é"),
        ("text/plain; charset=no-such", "é".encode(), "é"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=utf-8", b"a\x00b", "a\ufffdb"),
    ],
)  # fmt: skip
@aio
async def test_the_text_is_decoded_by_what_the_page_says(said: str, body: bytes, content: str) -> None:
    page, _ = await page_of(saying(response(body, f"content-type: {said}")))
    assert page.content == content


@pytest.mark.parametrize(
    "charset", ["no-such", "zip", "hex", "idna", "unicode_escape", "utf-7", "x" * 500, "\\0"]
)
@aio
async def test_an_unknown_charset_over_bytes_that_are_no_utf8_is_an_error(charset: str) -> None:
    error, _ = await refusal_of(saying(response(b"\xe9\xff", f"content-type: text/plain; charset={charset}")))
    assert error.code == "WEB_UNSUPPORTED_CONTENT_TYPE"


@aio
async def test_bytes_that_say_nothing_of_themselves_and_hold_nul_are_no_text() -> None:
    error, _ = await refusal_of(saying(response(b"\x7fELF\x00\x01")))
    assert error.code == "WEB_UNSUPPORTED_CONTENT_TYPE"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-type: text/plain\r\n\r\nhalf",
    ],
)
@aio
async def test_an_answer_that_breaks_is_an_error_of_the_provider(answer: bytes) -> None:
    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return False

    error, _ = await refusal_of(play)
    assert error.code == "WEB_PROVIDER_ERROR"


@aio
async def test_the_next_address_is_asked_where_one_cannot_be_reached() -> None:
    names = Names(["127.0.0.9", "127.0.0.1"])
    page, _ = await page_of(saying(response(b"here", TEXT)), resolve=names)
    assert page.content == "here"


@aio
async def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    page, _ = await page_of(saying(response(b"direct", TEXT)))
    assert page.content == "direct"


@aio
async def test_two_pages_of_one_host_have_a_connection_each() -> None:
    async with serving(saying(response(b"x", TEXT))) as server, fetching(server.port) as fetcher:
        for _ in range(2):
            await fetcher.fetch(f"http://{HOST}:{server.port}/", CancelToken())
    assert server.connections == 2


@pytest.mark.parametrize(("host", "is_trusted"), [("elsewhere.invalid", True), ("site.example", False)])
@aio
async def test_the_certificate_must_be_that_of_the_host_and_not_of_the_address(
    monkeypatch: pytest.MonkeyPatch, host: str, is_trusted: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
    secure = certificate("other-host")
    heard: list[str | None] = []
    secure.sni_callback = lambda _, name, __: heard.append(name)
    async with serving(saying(response(b"safe", TEXT)), secure) as server, fetching(server.port) as fetcher:
        url = f"https://{host}:{server.port}/"
        if is_trusted:
            assert (await fetcher.fetch(url, CancelToken())).content == "safe"
        else:
            with pytest.raises(WebError, match="certificate") as caught:
                await fetcher.fetch(url, CancelToken())
            assert caught.value.code == "WEB_PROVIDER_ERROR"
    assert heard == [host]


@aio
async def test_the_row_registers_the_provider_and_closes_its_client() -> None:
    ctx, service = await mounted()
    async with serving(saying(response(b"x", TEXT))) as server:
        config = {"allowedHosts": ["localhost", "127.0.0.0/8", "::1"], "allowedPorts": [server.port]}
        row = ctx.plugin(web_fetch_http, config)
        await row
        assert service.can_fetch()
        assert (await service.fetch(server.url, CancelToken())).content == "x"
        with pytest.raises(WebError) as caught:
            await service.fetch("http://169.254.169.254/latest", CancelToken())
        assert caught.value.code == "WEB_BLOCKED_URL"
        await row.dispose()
    assert not service.can_fetch()
    await ctx.dispose()
