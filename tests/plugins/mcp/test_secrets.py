"""Secrets of dsh do not reach a server, and those of a server are told to nobody (case SE-01)."""

import os
from typing import Any

import msgspec
import pytest

from dsh.plugins.mcp_client.config import Config
from dsh.plugins.mcp_client.secrets import Secrets
from dsh.plugins.mcp_client.sieve import SHOWN_CHARS
from tests.aio import aio
from tests.plugins.mcp.kit import call, plain, serving, text
from tests.plugins.mcp.test_start import NO_RETRY, told


@aio
async def test_secrets_stay_out_of_the_servers_environment_and_configured_ones_reach_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = {"DEEPSEEK_API_KEY": "v-1", "GH_TOKEN": "v-2", "DB_PASSWORD": "v-3", "MY_SECRET": "v-4"}
    for name, value in {**hidden, "DSH_SESSION_ID": "stale", "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    async with serving(plain(row={"env": {"MY_TOKEN": "for-the-server"}})) as ctx:
        seen = dict(line.split("=", 1) for line in text(await call(ctx, "mcp__plain__env")).splitlines())

    assert not hidden.keys() & seen.keys()
    assert not set(hidden.values()) & set(seen.values())
    assert "DSH_SESSION_ID" not in seen
    assert (seen["LANG"], seen["PATH"], seen["MY_TOKEN"]) == ("C.UTF-8", os.environ["PATH"], "for-the-server")


@aio
async def test_configured_secrets_are_masked_in_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    row = {**NO_RETRY, "env": {"A": "hush-hush"}}
    async with serving(plain(row=row, exit=1, say="refused hush-hush and sk-abcdefgh123\n")):
        pass
    [line] = told(caplog, "plain")
    assert "hush" not in line
    assert "abcdefgh" not in line


@aio
async def test_nothing_of_a_secret_is_left_where_a_text_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    row = {"env": {"A": "hush-" * 20}}
    noise = "x" * (SHOWN_CHARS - 10) + "hush-" * 20
    async with serving(plain(row=row, noise=noise)):
        pass
    [line] = told(caplog, "plain")
    assert line.endswith("x***…")


@pytest.mark.parametrize(
    ("given", "said", "told_text"),
    [
        ({"env": {"A": "abcdef", "B": "abcdefgh"}}, "abcdefgh, abcdef", "***, ***"),
        ({"env": {"A": "1", "B": "yes"}}, "1 error, yes", "1 error, yes"),
        ({"env": {"A": "-----BEGIN\n  line-two\n-----END"}}, "line-two | x", "*** | x"),
        ({"env": {"A": "one\ttwo  three"}}, "one two three", "***"),
        ({"headers": {"Authorization": "Bearer 0123456789"}}, "no 0123456789 here", "no *** here"),
        ({"headers": {"Authorization": "Bearer 0123456789"}}, "01234…", "***…"),
        ({"headers": {"Accept": "a json answer"}}, "answer of json", "answer of json"),
        (
            {"url": "https://user:hush-hush@h/?q=abcd-efgh"},
            "user, hush-hush, /?q=abcd-efgh",
            "***, ***, /?***",
        ),
        ({}, "sk-abcdefgh123", "sk-***"),
    ],
)
def test_what_was_given_in_confidence_is_hidden(given: dict[str, Any], said: str, told_text: str) -> None:
    config = msgspec.convert({"transport": "stdio", "serverName": "s", **given}, Config)
    assert Secrets(config).hide(said) == told_text
