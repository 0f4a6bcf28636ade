"""The key: named when it is missing, refused before it is sent when it cannot be one, shown never."""

import pytest

from dsh.testing.mock_server.part import Text, whole
from tests.aio import aio
from tests.contract.wire.memory_http import MemoryHttp
from tests.contract.wire.wires import (
    KEY,
    MEMORY,
    WIRES,
    Line,
    Reply,
    Wire,
    composed,
    in_memory,
    over_wires,
    served,
)

SECRET = "sk-geheim-12345"


async def asked(wire: Wire, keys: dict[str, str]) -> tuple[Reply, MemoryHttp]:
    http = MemoryHttp([wire.plan(whole(Text("yes")))])
    async with composed(http, keys) as ctx:
        await wire.mount(ctx, MEMORY)
        return await Line(ctx, wire).ask(), http


@over_wires
@aio
async def test_the_key_goes_out_in_the_wires_own_header_and_nowhere_else(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text("yes")))) as line:
        assert (await line.ask()).text == "yes"
        [sent] = line.sent

        assert wire.dialect.key({name.lower(): value for name, value in sent.headers.items()}) == KEY
        assert sum(KEY in value for value in sent.headers.values()) == 1
        assert KEY not in sent.url and KEY.encode() not in sent.raw


@over_wires
@pytest.mark.parametrize("others", [False, True])
@aio
async def test_a_missing_key_is_named_and_no_other_takes_its_place(wire: Wire, others: bool) -> None:
    keys = {other.key_variable: SECRET for other in WIRES if others and other is not wire}
    reply, http = await asked(wire, keys)

    assert reply.code == "MISSING_CREDENTIAL"
    assert wire.key_variable in reply.failure["message"]
    assert http.sent == []


@over_wires
@pytest.mark.parametrize("key", ["", " ", "\n"])
@aio
async def test_a_blank_key_is_a_missing_one(wire: Wire, key: str) -> None:
    reply, http = await asked(wire, {wire.key_variable: key})

    assert reply.code == "MISSING_CREDENTIAL"
    assert http.sent == []


@over_wires
@pytest.mark.parametrize("key", [f"{SECRET} x", f"{SECRET}\x07", "sk-ключ-12345", f"sk\u2028{SECRET}"])
@aio
async def test_a_key_that_cannot_be_one_is_not_sent_and_not_shown(wire: Wire, key: str) -> None:
    reply, http = await asked(wire, {wire.key_variable: key})

    assert reply.code == "INVALID_CREDENTIAL"
    assert wire.key_variable in reply.failure["message"]
    assert "geheim" not in repr(reply.finish) and "ключ" not in repr(reply.finish)
    assert http.sent == []


@over_wires
@pytest.mark.parametrize("key", [f" {SECRET}", f"{SECRET}\n", f"\t{SECRET}\r\n"])
@aio
async def test_white_space_around_a_key_is_not_sent(wire: Wire, key: str) -> None:
    reply, http = await asked(wire, {wire.key_variable: key})

    assert reply.text == "yes"
    assert wire.dialect.key({name.lower(): value for name, value in http.sent[0].headers.items()}) == SECRET


@over_wires
@aio
async def test_a_refused_key_names_where_it_came_from(wire: Wire) -> None:
    async with served(wire, "success", api_key="another") as (line, _):
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", "AUTH")
        assert wire.key_variable in reply.failure["message"]
        assert KEY not in repr(reply.finish)


@over_wires
@aio
async def test_every_request_says_who_asks(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text("yes")))) as line:
        await line.ask()
        headers = {name.lower(): value for name, value in line.sent[0].headers.items()}

        assert headers["user-agent"].startswith("dsh/")
        assert not any(name.startswith("x-deepseek") for name in headers)
