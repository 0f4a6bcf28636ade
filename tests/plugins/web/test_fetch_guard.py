"""Which URLs and addresses `web-fetch-http` lets through: every spelling of a place that is not public."""

import ipaddress
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.web import WebError
from dsh.plugins.web_fetch_http import Config
from dsh.plugins.web_fetch_http.address import is_public
from dsh.plugins.web_fetch_http.fetcher import Fetcher
from dsh.plugins.web_fetch_http.target import Target, read_url
from tests.aio import aio

MAX = 2048


def names(**known: Sequence[str]) -> Any:
    """A name server: `site_example` is `site.example`."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        found = known.get(host.replace(".", "_").replace("-", "_"))
        if found is None:
            raise OSError(-2, "Name or service not known")
        return found

    return resolve, asked


def fetcher(resolve: Any = None, **config: Any) -> Fetcher:
    made = msgspec.convert(config, Config)
    return Fetcher(made, resolve or names()[0])


async def verdict(url: str, resolve: Any = None, **config: Any) -> str:
    """The addresses that may be asked, or the code of the refusal."""
    try:
        return ",".join(await fetcher(resolve, **config).addresses(read_url(url, MAX)))
    except WebError as error:
        return error.code


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1",
        "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.7", "224.0.0.1",
        "239.255.255.250", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "100::1", "2001::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1",
        "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_what_is_not_public_is_known(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "169.253.1.1",
        "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.169.0.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
        "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2003::1",
    ],
)  # fmt: skip
def test_what_is_public_is_let_through(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_nothing_that_the_standard_library_takes_for_private_is_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address):
        assert not (
            address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
        )
        assert address.is_global


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
        "http://0177.0.0.1/", "http://127.0.0.1./", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[fe80::1%25eth0]/",
        "http://[64:ff9b::7f00:1]/", "http://１２７.０.０.１/", "http://127。0。0。1/", "http://0/",
        "http://017700000001/", "http://169.254.169.254/latest/meta-data/", "http://localhost/",
        "http://LOCALHOST/", "http://localhost./", "http://a.localhost/", "http://localhost.localdomain/",
        "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://0x/", "http://1.2.3.4.5/", "http://example.0x7f/",
    ],
)  # fmt: skip
@aio
async def test_every_spelling_of_a_local_address_is_refused(url: str) -> None:
    resolve, asked = names(localhost=["127.0.0.1"])

    assert await verdict(url, resolve) in ("WEB_BLOCKED_URL", "WEB_INVALID_URL")
    assert asked == []


@pytest.mark.parametrize(
    "url",
    [
        "", "   ", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd",
        "data:text/html,x",
        "javascript:alert(1)", "http://", "http:///path", "https://?q", "http://user@example.com/",
        "http://user:pass@example.com/", "http://example.com\\@127.0.0.1/", "http://exa mple.com/",
        "http://example.com/a\nb", "http://example.com/\x00", "http://example.com:0/", "http://example.com:99999/",
        "http://example.com:x/", "http://[::1/", "http://[v1.x]/", "http://-example-.com/", "http://a..b/",
        "http://%31%32%37.0.0.1/", "http://" + "a" * 64 + ".com/", "http://x.example/" + "a" * MAX,
        "http://\ud800.example/",
    ],
)  # fmt: skip
def test_what_is_no_page_on_the_web_is_refused(url: str) -> None:
    with pytest.raises(WebError) as caught:
        read_url(url, MAX)
    assert caught.value.code == "WEB_INVALID_URL"
    assert "pass" not in caught.value.message.replace("password", "")


@given(st.text(max_size=60).map(lambda rest: f"http://{rest}") | st.text(max_size=60))
def test_reading_a_url_gives_ascii_parts_or_a_named_error(url: str) -> None:
    try:
        target = read_url(url, MAX)
    except WebError as error:
        assert error.code in ("WEB_INVALID_URL", "WEB_BLOCKED_URL")
    else:
        assert target.url.isascii() and target.url.isprintable()
        assert read_url(target.url, 10 * MAX) == target


@pytest.mark.parametrize(
    ("url", "again"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a?b=c#frag", "https://example.com/a?b=c"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://bücher.example/straße?q=ü", "https://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC"),
        ("https://example.com/a%20b/%zz", "https://example.com/a%20b/%zz"),
        ("https://[2606:4700:0:0::1111]/", "https://[2606:4700::1111]/"),
        ("  https://example.com/x  ", "https://example.com/x"),
    ],
)
def test_a_url_is_spelled_in_one_way(url: str, again: str) -> None:
    assert read_url(url, MAX).url == again


@aio
async def test_every_address_of_a_host_must_be_public() -> None:
    resolve, _ = names(
        good_example=["8.8.8.8", "2606:4700::1111"], mixed_example=["8.8.8.8", "10.0.0.1"], odd_example=["x"],
        none_example=[],
    )  # fmt: skip

    assert await verdict("https://good.example/", resolve) == "8.8.8.8,2606:4700::1111"
    assert await verdict("https://mixed.example/", resolve) == "WEB_BLOCKED_URL"
    assert await verdict("https://odd.example/", resolve) == "WEB_BLOCKED_URL"
    assert await verdict("https://none.example/", resolve) == "WEB_PROVIDER_ERROR"
    assert await verdict("https://unknown.example/", resolve) == "WEB_PROVIDER_ERROR"


@aio
async def test_the_refusal_says_why_and_what_lets_it_through() -> None:
    resolve, _ = names(wiki_corp=["10.1.2.3"])
    with pytest.raises(WebError) as caught:
        await fetcher(resolve).addresses(read_url("http://wiki.corp/", MAX))

    assert caught.value.message == (
        "http://wiki.corp/ may not be fetched: wiki.corp is 10.1.2.3, which is not on the public Internet"
    )
    assert "allowedHosts" in caught.value.hint


@pytest.mark.parametrize(
    ("allowed", "url", "expected"),
    [
        ("wiki.corp", "http://wiki.corp/", "10.1.2.3"),
        ("WIKI.corp.", "http://Wiki.Corp./", "10.1.2.3"),
        ("wiki.corp", "http://x.wiki.corp/", "WEB_BLOCKED_URL"),
        ("*.corp", "http://x.wiki.corp/", "10.1.2.4"),
        ("*.corp", "http://corp/", "WEB_BLOCKED_URL"),
        ("*.wiki.corp", "http://evilwiki.corp/", "WEB_BLOCKED_URL"),
        ("10.1.0.0/16", "http://wiki.corp/", "10.1.2.3"),
        ("10.2.0.0/16", "http://wiki.corp/", "WEB_BLOCKED_URL"),
        ("127.0.0.1", "http://127.0.0.1/", "127.0.0.1"),
        ("127.0.0.1", "http://localhost/", "WEB_BLOCKED_URL"),
        ("localhost", "http://localhost/", "127.0.0.1"),
        ("::1", "http://[::1]/", "::1"),
        ("[::1]", "http://[::1]/", "::1"),
    ],
)
@aio
async def test_the_user_may_allow_more(allowed: str, url: str, expected: str) -> None:
    resolve, _ = names(
        wiki_corp=["10.1.2.3"], wiki_corp_=["10.1.2.3"], x_wiki_corp=["10.1.2.4"], corp=["10.1.2.5"],
        evilwiki_corp=["10.1.2.6"], localhost=["127.0.0.1"],
    )  # fmt: skip
    assert await verdict(url, resolve, allowedHosts=[allowed]) == expected


@pytest.mark.parametrize("port", [22, 25, 8080, 6379])
@aio
async def test_only_the_ports_of_the_web_may_be_asked(port: int) -> None:
    url = f"http://8.8.8.8:{port}/"
    assert await verdict(url) == "WEB_BLOCKED_URL"
    assert await verdict(url, allowedPorts=[port]) == "8.8.8.8"


@pytest.mark.parametrize(
    "config",
    [
        {"allowedHosts": ["10.0.0.1/8"]}, {"allowedHosts": ["http://wiki"]}, {"allowedHosts": [""]},
        {"allowedHosts": ["10.0.0.300"]}, {"allowedHosts": ["wiki:80"]}, {"allowedPorts": [0]},
        {"allowedHosts": ["*"]}, {"maxUrlLength": 0}, {"userAgent": "a\nb"}, {"proxy": "x"},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(config, Config)


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/b", "https://a.example/b"), ("b?c=1", "https://a.example/x/b?c=1"), ("?q=2", "https://a.example/x/y?q=2"),
        ("https://a.example:443/b", "https://a.example/b"), ("//a.example/b", "https://a.example/b"),
        ("https://b.example/", None), ("//b.example/", None), ("http://a.example/", None),
        ("https://a.example:8443/", None), ("https://www.a.example/", None),
    ],
)  # fmt: skip
def test_redirects_stay_with_their_origin(location: str, leads_to: str | None) -> None:
    start = read_url("https://a.example/x/y", MAX)
    target = start.redirected(location, MAX)
    assert start.may_lead_to(target) is (leads_to is not None)
    if leads_to is not None:
        assert target.url == leads_to


def test_a_redirect_may_add_encryption_and_nothing_else() -> None:
    plain, secure = Target("http", "a.example", 80, "/"), Target("https", "a.example", 443, "/")
    assert plain.may_lead_to(secure)
    assert not secure.may_lead_to(plain)
    assert not Target("http", "a.example", 8080, "/").may_lead_to(secure)
