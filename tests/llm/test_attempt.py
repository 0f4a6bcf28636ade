"""One attempt on a real socket, whatever the wire: limits in time, ends, connections, what is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio._backends._asyncio  # noqa: F401  # loaded before anything is timed
import httpx  # noqa: F401
import pytest

from dsh.capabilities.http import HttpClient
from dsh.kernel import CancelToken
from dsh.llm.failure import LlmError
from dsh.llm.stream import close_stream
from dsh.llm.transport import attempt as module
from dsh.llm.transport.attempt import Attempt
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.sse import SseEvent
from dsh.llm.transport.translator import Failures
from dsh.llm.transport.watchdog import StreamLimits
from dsh.session.chunk import Chunk, Finish, TextDelta
from tests.aio import aio
from tests.llm.wire_server import WireServer, serving

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r-1\r\nconnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"data: end\n\n"
KEY = "odd~key~0123456789"


class Words:
    """A wire of nothing but words: each event is one, `end` the last. Implements `Translator`."""

    end_mark = "end"

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def push(self, name: bytes, payload: bytes, out: list[Chunk]) -> bool:
        if name == b"error":
            raise self._failures.of_event(payload)
        if payload and payload != b"end":
            out.append(TextDelta(0, payload.decode()))
        return payload == b"end"

    def is_whole(self, tail: SseEvent | None, out: list[Chunk]) -> bool:
        return tail is not None and tail[1] == b"end"

    def finish(self) -> list[Chunk]:
        return [Finish({"kind": "stop"})]


def endpoint(server: WireServer, **changes: Any) -> Endpoint:
    limits = StreamLimits(**changes.pop("limits", {"idle_ms": 20_000}))
    fields: dict[str, Any] = {
        "url": f"{server.url}v1",
        "headers": {"authorization": f"Bearer {KEY}"},
        "provider": "TestAI",
        "shown_url": "http://host/v1",
        "secret": KEY,
        "limits": limits,
        "key_origin": "the variable KEY",
    }
    return Endpoint(**{**fields, **changes})


async def words(
    client: HttpClient, to: Endpoint, signal: CancelToken | None = None, pause_s: float = 0.0
) -> list[str]:
    """What a reply says."""
    said = []
    chunks = Attempt(client, to, Words, signal=signal).stream(b"{}")
    try:
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                said.append(chunk.text)
            await asyncio.sleep(pause_s)
    finally:
        await close_stream(chunks)
    return said


Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def tried(script: Script, **options: Any) -> tuple[list[str] | LlmError, WireServer]:
    """One attempt at a server that does this and then closes, and what the server saw of it."""

    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        await script(writer)
        return False

    client = HttpClient()
    outcome: list[str] | LlmError
    pause_s, signal = options.pop("pause_s", 0.0), options.pop("signal", None)
    async with serving(play) as server:
        try:
            outcome = await words(client, endpoint(server, **options), signal, pause_s)
        except LlmError as error:
            outcome = error
        await client.aclose()
    return outcome, server


def sending(*pieces: bytes | float) -> Script:
    """Send these pieces; a number is a pause in seconds, the last piece may be a silence without end."""

    async def script(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            else:
                await asyncio.sleep(piece)

    return script


EVER = 60.0


def failure(outcome: list[str] | LlmError) -> LlmError:
    assert isinstance(outcome, LlmError), outcome
    return outcome


# -- limits in time (LS-08) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        (EVER,),
        (b"HTTP/1.1 200", EVER),
        (b"HTTP/1.1 200 OK\r\nx-header: y\r\n", EVER),
        (HEAD, EVER),
        (HEAD, b"data: a\n\ndata: b\n\ndata: c\n\n", EVER),
        (HEAD, b"data: unfini", EVER),
    ],
)
@aio
async def test_silence_at_any_point_is_a_timeout(pieces: tuple[bytes | float, ...]) -> None:
    outcome, _ = await tried(sending(*pieces), limits={"idle_ms": 150})

    error = failure(outcome)
    assert error.code == "TIMEOUT"
    assert error.message == "TestAI at http://host/v1 sent nothing within 150 ms"


@aio
async def test_headers_that_never_end_are_a_timeout_although_bytes_arrive() -> None:
    slow = [piece for n in range(100) for piece in (b"x-%d: y\r\n" % n, 0.05)]
    outcome, _ = await tried(sending(b"HTTP/1.1 200 OK\r\n", *slow), limits={"idle_ms": 300})

    assert failure(outcome).code == "TIMEOUT"


@pytest.mark.parametrize("beat", [b": keep-alive\n\n", b"data:\n\n", b"\n", b":"])
@aio
async def test_any_byte_counts_as_a_sign_of_life(beat: bytes) -> None:
    pieces = [piece for _ in range(5) for piece in (0.12, beat)]
    outcome, _ = await tried(sending(HEAD, b"data: a\n\n", *pieces, b"\n" + END), limits={"idle_ms": 500})

    assert outcome == ["a"]


@aio
async def test_endless_signs_of_life_are_bounded_by_the_total() -> None:
    pieces = [piece for _ in range(500) for piece in (b": keep-alive\n\n", 0.02)]
    limits = {"idle_ms": 20_000, "total_ms": 200}
    outcome, _ = await tried(sending(HEAD, *pieces), limits=limits)
    assert "did not finish its reply within 200 ms" in failure(outcome).message

    outcome, _ = await tried(sending(HEAD, *pieces), limits={"idle_ms": 20_000, "first_token_ms": 200})
    assert "did not begin its reply within 200 ms" in failure(outcome).message


@aio
async def test_the_first_word_ends_the_wait_for_it() -> None:
    limits = {"idle_ms": 20_000, "first_token_ms": 2_000}
    outcome, _ = await tried(sending(HEAD, b"data: a\n\n", 0.1, b"data: b\n\n" + END), limits=limits)
    assert outcome == ["a", "b"]


@aio
async def test_a_slow_consumer_is_no_silence() -> None:
    script = sending(HEAD, b"data: a\n\ndata: b\n\ndata: c\n\n", END)
    outcome, _ = await tried(script, limits={"idle_ms": 100}, pause_s=0.15)
    assert outcome == ["a", "b", "c"]


@aio
async def test_a_total_that_passed_while_nobody_read_ends_the_next_read() -> None:
    limits = {"idle_ms": 20_000, "total_ms": 100}
    async with asyncio.timeout(10):
        outcome, _ = await tried(sending(HEAD, b"data: a\n\n", EVER), limits=limits, pause_s=0.3)

    assert "did not finish its reply within 100 ms" in failure(outcome).message


@pytest.mark.parametrize("code", ["TIMEOUT", "ABORTED"])
@aio
async def test_a_given_up_connection_is_closed(code: str) -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(HEAD + b"data: a\n\n")
        while not writer.transport.is_closing():
            writer.write(b"" if code == "TIMEOUT" and not given_up.is_set() else b":")
            await asyncio.sleep(0.005)
        return False

    client, signal, given_up = HttpClient(), CancelToken(), asyncio.Event()
    async with serving(play) as server:
        limits = {"idle_ms": 100} if code == "TIMEOUT" else {"idle_ms": 20_000}
        if code == "ABORTED":
            asyncio.get_running_loop().call_later(0.1, signal.cancel, "enough")
        with pytest.raises(LlmError) as caught:
            await words(client, endpoint(server, limits=limits), signal)
        given_up.set()
        async with asyncio.timeout(10):
            await server.ended.wait()
        await client.aclose()

    assert caught.value.code == code


# -- which of several reasons ------------------------------------------------------------------------


@aio
async def test_a_cancelled_request_asks_nobody() -> None:
    signal = CancelToken()
    signal.cancel("early")
    outcome, server = await tried(sending(HEAD, END), signal=signal)

    assert (failure(outcome).code, server.requests) == ("ABORTED", [])


@aio
async def test_a_timeout_that_came_first_outranks_the_cancellation() -> None:
    signal, loop = CancelToken(), asyncio.get_running_loop()
    loop.call_later(5, signal.cancel, "late")
    outcome, _ = await tried(sending(HEAD, EVER), signal=signal, limits={"idle_ms": 50})
    signal.cancel("now")

    assert failure(outcome).code == "TIMEOUT"


@aio
async def test_the_task_going_down_is_no_failure_of_the_model() -> None:
    client = HttpClient()

    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        await sending(HEAD, b"data: a\n\n", EVER)(writer)
        return False

    async with serving(play) as server:
        task = asyncio.ensure_future(words(client, endpoint(server)))
        while not server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.aclose()


@pytest.mark.parametrize(
    ("pieces", "code", "words"),
    [
        ((HEAD, b"data: a\n\n"), "STREAM_CLOSED", "closed the stream before its end (end)"),
        ((HEAD, b"data: a\n\ndata: en"), "STREAM_CLOSED", ""),
        ((HEAD,), "STREAM_CLOSED", ""),
        ((b"",), "TRANSPORT", "cannot reach http://host/v1: Server disconnected"),
        ((CHUNKED, b"9\r\ndata: a\n\n\r\nzz\r\n"), "TRANSPORT", "the connection to http://host/v1 broke"),
        ((HEAD, b'event: error\ndata: {"type":"overloaded_error","message":"busy"}\n\n'), "SERVER", "busy"),
        ((HEAD, b"event: error\ndata: overloaded\n\n"), "SERVER", "overloaded"),
        ((HEAD, b'\n\n \n{"error":{"message":"no","code":"rate_limit_exceeded"}}'), "RATE_LIMIT", "no"),
        ((HEAD, b'[{"error":{"message":"later","status":"UNAVAILABLE"}}]'), "SERVER", "later"),
        ((HEAD, b'{"object":"error","message":"boom","code":500}'), "SERVER", "boom"),
        ((HEAD, b'{"id":"x"}'), "MALFORMED_RESPONSE", 'JSON instead of a stream: {"id":"x"}'),
        ((HEAD, b"\xef\xbb\xbf<html><title>Portal</title>"), "MALFORMED_RESPONSE", "a web page"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), "EMPTY_RESPONSE", "(HTTP 204)"),
        ((b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n",), "HTTP_407", "a proxy wants user"),
        (
            (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",),
            "MALFORMED_RESPONSE",
            "the answer of http://host/v1 cannot be read: the answer is encoded as 'br'",
        ),
        (
            (b"HTTP/1.1 503 Busy\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",),
            "SERVER",
            "(HTTP 503)",
        ),
    ],
)
@aio
async def test_each_end_has_its_code_and_words(pieces: tuple[bytes, ...], code: str, words: str) -> None:
    outcome, _ = await tried(sending(*pieces))

    error = failure(outcome)
    assert error.code == code
    assert words in error.message
    if pieces[0] is HEAD:
        assert error.failure.request_id == "r-1"


@aio
async def test_the_status_counts_although_the_body_of_the_refusal_never_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ERROR_BODY_S", 0.1)
    head = b"HTTP/1.1 401 No\r\ncontent-length: 100\r\nrequest-id: r-9\r\n\r\n"
    outcome, _ = await tried(sending(head, b'{"error":', EVER))

    error = failure(outcome)
    assert (error.code, error.exit_code, error.failure.request_id) == ("AUTH", 4, "r-9")
    assert "the key came from the variable KEY" in error.message


@aio
async def test_a_refusal_without_its_body_is_no_timeout_however_short_the_limit() -> None:
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nbusy"
    outcome, _ = await tried(sending(head, EVER), limits={"idle_ms": 150})

    assert (failure(outcome).code, failure(outcome).failure.status) == ("SERVER", 503)


@aio
async def test_a_stream_begins_with_whatever_came_before_its_first_sign() -> None:
    outcome, _ = await tried(sending(HEAD, b"\xef\xbb", 0.05, b"\xbfdata: a\n\n", END))

    assert outcome == ["a"]


@aio
async def test_a_refusal_is_read_as_far_as_it_matters() -> None:
    body = json.dumps({"error": {"message": "m" * 10_000_000}}).encode()
    head = b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n" % len(body)
    outcome, _ = await tried(sending(head, body))

    error = failure(outcome)
    assert error.code == "SERVER"
    assert len(error.message) < 400


@aio
async def test_a_wait_as_long_as_allowed_is_not_named() -> None:
    head = b"HTTP/1.1 429 No\r\nretry-after: 300\r\ncontent-length: 0\r\n\r\n"
    outcome, _ = await tried(sending(head), longest_wait_ms=300_000)
    assert "longer" not in failure(outcome).message


@aio
async def test_a_wait_longer_than_allowed_is_named() -> None:
    head = b"HTTP/1.1 429 No\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n"
    outcome, _ = await tried(sending(head), longest_wait_ms=300_000)
    assert "asks to wait 86400 s, longer than maxProviderDelayMs allows" in failure(outcome).message

    event = b'event: error\ndata: {"type":"rate_limit_error","message":"try again in 2h"}\n\n'
    outcome, _ = await tried(sending(HEAD, event), longest_wait_ms=300_000)
    assert failure(outcome).failure.provider_retry_after_ms == 7_200_000
    assert "asks to wait 7200 s" in failure(outcome).message


@aio
async def test_the_key_is_shown_nowhere() -> None:
    for script in (
        sending(b"HTTP/1.1 400 No\r\nx-request-id: %b\r\n\r\n" % KEY.encode(), f"bad {KEY}".encode()),
        sending(HEAD, b'{"said":"%b"}' % KEY.encode()),
        sending(HEAD, b"event: error\ndata: %b\n\n" % KEY.encode()),
        sending(HEAD, b"<title>%b</title>" % KEY.encode()),
    ):
        outcome, server = await tried(script)
        error = failure(outcome)
        assert KEY not in repr(error.failure) + str(error) + error.hint + repr(endpoint(server))


# -- connections -------------------------------------------------------------------------------------


def chunked(*events: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


async def connections(script: Script, attempts: int = 3) -> int:
    """How many connections this many attempts take."""

    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        await script(writer)
        return True

    client = HttpClient()
    async with serving(play) as server:
        for _ in range(attempts):
            assert await words(client, endpoint(server)) == ["a"]
        await client.aclose()
        assert len(server.requests) == attempts
    return server.connections


@aio
async def test_attempts_one_after_another_share_a_connection() -> None:
    whole = CHUNKED + chunked(b"data: a\n\n", END) + b"0\r\n\r\n"
    assert await connections(sending(whole)) == 1
    assert await connections(sending(CHUNKED, chunked(b"data: a\n\n", END), 0.01, b"0\r\n\r\n")) == 1
    assert await connections(sending(*(whole[at : at + 1] for at in range(len(whole))))) == 1


@aio
async def test_a_body_that_does_not_end_after_its_reply_costs_its_connection_and_no_time() -> None:
    assert await connections(sending(CHUNKED, chunked(b"data: a\n\n", END)), attempts=2) == 2


@aio
async def test_a_consumer_that_leaves_closes_the_connection() -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        await sending(CHUNKED, chunked(b"data: a\n\n"), EVER)(writer)
        return False

    client = HttpClient()
    async with serving(play) as server:
        chunks: AsyncIterator[Chunk] = Attempt(client, endpoint(server), Words).stream(b"{}")
        async for _ in chunks:
            break
        await close_stream(chunks)
        assert len(asyncio.all_tasks()) <= 2
        await client.aclose()
