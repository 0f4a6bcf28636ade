"""TLS of the shared client: whom it trusts, by which variable, and what it says of a server it does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dsh.capabilities import http
from dsh.capabilities.http import UNUSABLE_SETTINGS, HttpClient, HttpError
from tests.aio import aio
from tests.llm.wire_server import OK, TLS, WireServer, certificate, saying, serving

AUTHORITY = str(TLS / "authority.pem")
HASHED_NAME = "774b5dcc.0"
"""How OpenSSL looks for the authority in a folder: `openssl x509 -hash -in authority.pem`."""


@asynccontextmanager
async def secure(name: str = "server") -> AsyncIterator[WireServer]:
    async with serving(saying(OK), certificate(name)) as server:
        yield server


async def get(url: str) -> bytes:
    client = HttpClient()
    try:
        stream = await client.open("GET", url, headers={"authorization": "Bearer secret"})
        try:
            return await stream.read_all(100)
        finally:
            await stream.aclose()
    finally:
        await client.aclose()


async def refused(url: str) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await get(url)
    return caught.value


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
@aio
async def test_each_of_the_usual_variables_names_an_authority(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, AUTHORITY)
    async with secure() as server:
        assert await get(server.tls_url) == b"ok"
        assert await get(f"https://127.0.0.1:{server.port}/") == b"ok"


@pytest.mark.parametrize("variable", ["SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
@aio
async def test_a_folder_of_hashed_names_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    (tmp_path / HASHED_NAME).symlink_to(AUTHORITY)
    monkeypatch.setenv(variable, str(tmp_path))
    async with secure() as server:
        assert await get(server.tls_url) == b"ok"


@aio
async def test_the_first_variable_that_is_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", "")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", AUTHORITY)
    monkeypatch.setenv("CURL_CA_BUNDLE", "/nowhere")
    async with secure() as server:
        assert await get(server.tls_url) == b"ok"
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
        assert "cannot be trusted" in (await refused(server.tls_url)).message


@pytest.mark.parametrize(
    ("variable", "path", "words"),
    [
        ("SSL_CERT_DIR", "/nowhere", "not a folder"),
        ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem", "No such file"),
        ("CURL_CA_BUNDLE", str(TLS / "server.key.pem"), "no certificate"),
    ],
)
@aio
async def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, path: str, words: str
) -> None:
    monkeypatch.setenv(variable, path)

    error = await refused("https://127.0.0.1:9/")

    assert (error.code, error.hint) == (UNUSABLE_SETTINGS, f"check {variable}")
    assert words in error.message


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("localhost", "self-signed certificate", "SSL_CERT_FILE"),
        ("expired", "certificate has expired", "renewed"),
        ("other-host", "not valid for 'localhost'", "host name"),
    ],
)
@aio
async def test_what_is_wrong_with_a_certificate_is_told_with_a_remedy_and_no_key_is_sent(
    monkeypatch: pytest.MonkeyPatch, name: str, words: str, hint: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", AUTHORITY)
    async with secure(name) as server:
        error = await refused(server.tls_url)

        assert error.message.startswith("its certificate cannot be trusted: ")
        assert words in error.message
        assert hint in error.hint
        assert server.requests == []


@aio
async def test_an_unknown_authority_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with secure() as server:
        error = await refused(server.tls_url)

    assert "unable to get local issuer certificate" in error.message
    assert "SSL_CERT_FILE" in error.hint


@aio
async def test_a_server_without_tls_is_told_from_one_that_cannot_be_trusted() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        error = await refused(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert error.message == "TLS failed: wrong version number"
    assert "speaks no TLS" in error.hint


@aio
async def test_a_handshake_that_is_never_answered_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.1)
    async with serving(saying(OK)) as server:
        error = await refused(f"https://127.0.0.1:{server.port}/")

    assert error.message == "no connection within 0.1 s"
    assert "network" in error.hint
