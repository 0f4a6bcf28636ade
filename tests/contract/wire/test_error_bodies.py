"""Answers that refuse: the status says what it is, the body is shown as far as a person can read it."""

import json

import pytest

from dsh.testing.mock_server.part import FaultKind
from dsh.testing.mock_server.plan import Plan
from tests.aio import aio
from tests.contract.wire.wires import KEY, MEMORY, Wire, in_memory, over_wires

CODES = {
    400: "INVALID_REQUEST",
    401: "AUTH",
    403: "AUTH",
    404: "HTTP_404",
    408: "HTTP_408",
    409: "HTTP_409",
    413: "INVALID_REQUEST",
    418: "HTTP_418",
    422: "HTTP_422",
    425: "HTTP_425",
    429: "RATE_LIMIT",
    500: "SERVER",
    502: "SERVER",
    503: "SERVER",
    504: "SERVER",
    529: "SERVER",
}
PAGE = b"<!doctype html><html><head><title>Bad Gateway</title><style>p{}</style></head><body>" + (
    b"<p>nginx</p>" * 3400
)
BODIES: dict[str, tuple[str, bytes]] = {
    "nothing": ("application/json", b""),
    "a page": ("text/html", PAGE),
    "a page in Latin-1": (
        "text/html; charset=iso-8859-1", b"<html><body>Kein Zugriff f\xfcr G\xe4ste</body></html>"),
    "plain words": ("text/plain", b"upstream connect error"),
    "a wrong charset": ("text/plain; charset=nonsense", b"\xff\xfe\x00"),
    "null": ("application/json", b"null"),
    "a list": ("application/json", b"[]"),
    "no error": ("application/json", b'{"detail":"no"}'),
    "words for an error": ("application/json", b'{"error":"went wrong"}'),
    "an empty error": ("application/json", b'{"error":{}}'),
    "a number for a message": ("application/json", b'{"error":{"message":5,"type":null,"code":[]}}'),
    "an object for a message": ("application/json", b'{"error":{"message":{"a":1}}}'),
    "half of its JSON": ("application/json", b'{"error":{"message":"it bro'),
    "JSON below its depth": ("application/json", b'{"error":' * 3000),
}  # fmt: skip


@over_wires
@pytest.mark.parametrize("body", BODIES)
@aio
async def test_the_status_gives_the_code_whatever_the_body_is(wire: Wire, body: str) -> None:
    kind, raw = BODIES[body]
    plans = [Plan(status=status, headers={"content-type": kind}, steps=(raw,)) for status in CODES]
    async with in_memory(wire, *plans) as line:
        for status, code in CODES.items():
            failure = (await line.ask()).failure

            assert (failure["code"], failure["status"]) == (code, status)
            message = failure["message"]
            assert message.strip() and "\n" not in message and len(message) < 800
            assert "<" not in message, "a page is read to a person without its tags"


@over_wires
@aio
async def test_the_providers_own_words_are_the_message_in_one_line(wire: Wire) -> None:
    async with in_memory(wire, wire.error("invalid_request", "first line\nsecond\tline\x1b[31m")) as line:
        failure = (await line.ask()).failure

        assert failure["message"].startswith("first line second line")
        assert failure["message"].isprintable()
        assert failure["code"] == "INVALID_REQUEST"


@over_wires
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("rate_limit", "RATE_LIMIT"), ("server_error", "SERVER"), ("service_unavailable", "SERVER"),
        ("overloaded", "SERVER"), ("auth_error", "AUTH"), ("permission", "AUTH"), ("not_found", "HTTP_404"),
        ("invalid_request", "INVALID_REQUEST"), ("too_large", "INVALID_REQUEST"), ("quota_exceeded", "QUOTA"),
        ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"), ("request_timeout", "HTTP_408"),
        ("too_early", "HTTP_425"),
    ],
)  # fmt: skip
@aio
async def test_what_the_server_calls_an_error_has_one_code_on_every_wire(
    wire: Wire, kind: FaultKind, code: str
) -> None:
    async with in_memory(wire, wire.error(kind)) as line:
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", code)


@over_wires
@aio
async def test_the_name_of_the_request_travels_with_the_failure(wire: Wire) -> None:
    async with in_memory(wire, wire.error("server_error", headers=wire.dialect.request_id("req-7"))) as line:
        assert (await line.ask()).failure["requestId"] == "req-7"


@over_wires
@pytest.mark.parametrize("status", [301, 302, 307, 308])
@aio
async def test_a_redirect_is_a_failure_and_is_not_followed(wire: Wire, status: int) -> None:
    async with in_memory(
        wire, Plan(status=status, headers={"location": "http://elsewhere.invalid/"})
    ) as line:
        failure = (await line.ask()).failure

        assert failure["code"] == f"HTTP_{status}"
        assert "redirects" in failure["message"]
        assert len(line.sent) == 1


@over_wires
@pytest.mark.parametrize(
    ("kind", "raw", "code"),
    [
        ("text/html", PAGE, "MALFORMED_RESPONSE"),
        ("text/event-stream", b"\n\n  <html>captive</html>", "MALFORMED_RESPONSE"),
        ("application/json", b'{"id":"x","choices":[],"content":[]}', "MALFORMED_RESPONSE"),
        ("application/json", b'["a"]', "MALFORMED_RESPONSE"),
        ("application/json", b'{"error":{"message":"slow down","type":"rate_limit_error"}}', "RATE_LIMIT"),
        ("text/plain", b"hello", "STREAM_CLOSED"),
    ],
)
@aio
async def test_a_success_that_is_no_stream_is_a_failure(wire: Wire, kind: str, raw: bytes, code: str) -> None:
    plan = Plan(headers={"content-type": kind}, steps=(raw,))
    async with in_memory(wire, plan) as line:
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", code)
        assert "<" not in reply.failure["message"]


@over_wires
@pytest.mark.parametrize("status", [200, 400, 401, 500])
@aio
async def test_a_key_that_the_server_echoes_is_shown_nowhere(wire: Wire, status: int) -> None:
    echo = f"wrong key {KEY} at {MEMORY}"
    bodies = [json.dumps({"error": {"message": echo, "type": "t", "code": echo}}).encode(), echo.encode()]
    plans = [
        Plan(status=status, headers={"x-request-id": KEY, "request-id": KEY}, steps=(b,)) for b in bodies
    ]
    async with in_memory(wire, *plans) as line:
        for _ in bodies:
            reply = await line.ask()
            assert reply.kind == "error"
            assert KEY not in repr(reply.finish)
