"""Proxies of the shared client: which one by which variable, tunnels, credentials, what is told of them."""

import base64

import pytest

from dsh.capabilities.http import UNUSABLE_SETTINGS, HttpClient, HttpError
from dsh.capabilities.proxy import proxy_for, shown_proxy
from tests.aio import aio
from tests.llm.wire_server import OK, TLS, certificate, saying, serving, tunnelling

AUTHORITY = str(TLS / "authority.pem")
KEY = {"authorization": "Bearer secret-key"}


@pytest.fixture(autouse=True)
def authority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", AUTHORITY)


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "http://host/", ""),
        ({"HTTP_PROXY": "http://p:1"}, "http://host/", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://host/", ""),
        ({"HTTPS_PROXY": "http://p:1"}, "https://host/", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "https://host/", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://host/", "http://p:1"),
        ({"all_proxy": "p:1"}, "http://host/", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "HTTP_PROXY": "http://q:2"}, "http://host/", "http://q:2"),
        ({"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:2"}, "http://host/", "http://low:1"),
        ({"http_proxy": "", "HTTP_PROXY": "http://up:2"}, "http://host/", ""),
        ({"HTTP_PROXY": "  http://p:1 "}, "http://host/", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "http://[broken/", ""),
    ],
)
def test_which_proxy_by_which_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize(
    ("exempt", "url", "direct"),
    [
        ("*", "http://host/", True),
        ("host", "http://host/", True),
        ("host", "http://api.host:8000/", True),
        (".host", "http://api.host/", True),
        ("HOST", "http://host/", True),
        ("host", "http://otherhost/", False),
        ("host:8000", "http://host:8000/", True),
        ("host:8000", "http://host:9000/", False),
        ("other, host ", "http://host/", True),
        ("127.0.0.1", "http://127.0.0.1:1234/v1", True),
        ("10.0.0.0/8", "http://10.1.2.3:8000/v1", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("10.0.0.0/8", "http://ten.example/", False),
        ("::1", "http://[::1]:11434/v1", True),
        ("fd00::/8", "http://[fd12::1]/", True),
        ("nonsense/99,,host/", "http://other/", False),
        ("host", "http://us:pa55@host/", True),
        ("", "http://host/", False),
    ],
)
def test_what_is_asked_directly(monkeypatch: pytest.MonkeyPatch, exempt: str, url: str, direct: bool) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://p:1")
    monkeypatch.setenv("no_proxy", exempt)
    assert (proxy_for(url) == "") is direct


def test_a_proxy_is_shown_without_user_and_password() -> None:
    assert shown_proxy("http://user:p@ss@proxy:3128/path") == "proxy:3128"
    assert shown_proxy("http://proxy:3128?token=pa55") == "proxy:3128"


@aio
async def test_a_tunnel_keeps_the_credentials_of_proxy_and_server_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = HttpClient()
    async with serving(saying(OK), certificate("server")) as server:
        async with tunnelling(server, user="us:pa:55 word") as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://us:pa%3A55%20word@127.0.0.1:{proxy.port}")
            for _ in range(3):
                stream = await client.open("GET", "https://localhost/v1", headers=KEY)
                assert await stream.read_all(100) == b"ok"
                await stream.aclose()
            await client.aclose()

    [head] = proxy.requests
    assert head.startswith(b"CONNECT localhost:443 ")
    assert b"secret-key" not in head
    assert (server.connections, len(server.requests)) == (1, 3), "the tunnel is used again"
    assert all(b"Bearer secret-key" in request for request in server.requests)
    assert all(b"roxy-" not in request for request in server.requests)


@aio
async def test_a_tunnel_through_a_proxy_that_is_itself_reached_over_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, tls = HttpClient(), certificate("server")
    async with serving(saying(OK), tls) as server, tunnelling(server, tls=tls) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{proxy.port}")
        stream = await client.open("GET", "https://localhost/", headers=KEY)
        assert await stream.read_all(100) == b"ok"
        await stream.aclose()
        await client.aclose()

    assert proxy.requests[0].startswith(b"CONNECT localhost:443 ")


@aio
async def test_plain_requests_through_a_proxy_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    client = HttpClient()
    async with serving(saying(OK), certificate("server")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"https://us:pw@localhost:{proxy.port}")
        stream = await client.open("GET", "http://model.invalid/v1?x=1", headers=KEY)
        assert await stream.read_all(100) == b"ok"
        await stream.aclose()
        await client.aclose()

    [request] = proxy.requests
    assert request.startswith(b"GET http://model.invalid/v1?x=1 ")
    assert f"Basic {base64.b64encode(b'us:pw').decode()}".encode() in request


@aio
async def test_a_proxy_that_refuses_the_password_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = HttpClient()
    async with serving(saying(OK), certificate("server")) as server:
        async with tunnelling(server, user="us:right") as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://us:wrong@127.0.0.1:{proxy.port}")
            with pytest.raises(HttpError) as caught:
                await client.open("GET", "https://localhost/", headers=KEY)
            await client.aclose()

    assert caught.value.message == (
        f"407 Proxy Authentication Required (through the proxy 127.0.0.1:{proxy.port})"
    )
    assert "password of the proxy" in caught.value.hint
    assert server.requests == []


FORM = "its URL is not of the form http://host:port"


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://us:pa55@h:1", "SOCKS is not supported"),
        ("SOCKS5://us:pa55@h:1", "SOCKS is not supported"),
        ("ftp://us:pa55@h", FORM),
        ("http://", FORM),
        ("http://us:pa55@", FORM),
        ("http://us:pa55", FORM),
        ("http://us:pa55@h:0", FORM),
        ("http://us:pa55@h:65536", FORM),
        ("http://us:pa55@[::1", FORM),
        ("http://us:pa55@256.1.1.1", "its URL names no host"),
    ],
)
@aio
async def test_a_proxy_that_is_not_spoken_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str, words: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    client = HttpClient()
    with pytest.raises(HttpError) as caught:
        await client.open("GET", "http://host.invalid/", headers={})
    await client.aclose()

    assert caught.value.message == f"the proxy settings cannot be used: {words}"
    assert caught.value.code == UNUSABLE_SETTINGS
    assert "HTTP_PROXY" in caught.value.hint and caught.value.__context__ is None


@aio
async def test_one_client_serves_hosts_behind_a_proxy_and_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = HttpClient()
    async with serving(saying(OK)) as near, serving(saying(OK)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        for url in (near.url, "http://far.invalid/", near.url, "http://far.invalid/"):
            stream = await client.open("GET", url, headers={})
            await stream.read_all(100)
            await stream.aclose()
        await client.aclose()

    assert (near.connections, len(near.requests)) == (1, 2)
    assert (proxy.connections, len(proxy.requests)) == (1, 2)
