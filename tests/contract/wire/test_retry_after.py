"""When the server says to come back: read from every header that tells it, and from nothing else."""

import email.utils
import time

import pytest

from dsh.testing.mock_server.part import FaultKind
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires

KINDS = pytest.mark.parametrize("kind", ["rate_limit", "service_unavailable", "overloaded"])


@over_wires
@KINDS
@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"retry-after": "3"}, 3000),
        ({"retry-after": "86400"}, 86_400_000),
        ({"retry-after-ms": "250", "retry-after": "3"}, 250),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "3.5"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
@aio
async def test_what_the_headers_ask_for_is_part_of_the_failure(
    wire: Wire, kind: FaultKind, headers: dict[str, str], wait_ms: float | None
) -> None:
    async with in_memory(wire, wire.error(kind, headers=headers)) as line:
        failure = (await line.ask()).failure

        assert failure.get("providerRetryAfterMs") == wait_ms


@over_wires
@KINDS
@aio
async def test_a_date_is_a_wait_from_now(wire: Wire, kind: FaultKind) -> None:
    headers = {"retry-after": email.utils.formatdate(time.time() + 60, usegmt=True)}
    async with in_memory(wire, wire.error(kind, headers=headers)) as line:
        assert 50_000 < (await line.ask()).failure["providerRetryAfterMs"] <= 60_000


@over_wires
@KINDS
@aio
async def test_a_wait_beyond_the_limit_is_named_with_the_key_that_limits_it(
    wire: Wire, kind: FaultKind
) -> None:
    async with in_memory(wire, wire.error(kind, headers={"retry-after": "86400"})) as line:
        message = (await line.ask()).failure["message"]

        assert "86400 s" in message and "maxProviderDelayMs" in message
