"""One attempt at an endpoint that streams its reply: request out, bytes in, chunks up.

The path of a chunk: a read from the socket, the splitter, a typed decode, the struct. Nothing is started,
armed or awaited for a single chunk.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from dsh.capabilities.http import HttpClient, HttpError, HttpStream
from dsh.kernel import CancelToken
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.sse import SseParser
from dsh.llm.transport.translator import Failures, Translator
from dsh.llm.transport.watchdog import Watchdog
from dsh.session.chunk import Chunk, Finish

if TYPE_CHECKING:
    from dsh.llm.transport.refusal import Refusal

MAX_BLANK_BYTES = 4096
"""How much white space may stand before what tells a stream from a page or plain JSON."""
MAX_ERROR_BODY_BYTES = 256 * 1024
ERROR_BODY_S = 5.0
"""How long the body of an answer that is no stream is waited for; what it says only adds to the status."""
DRAIN_S = 0.05
"""How long the body's end is waited for once the reply is whole, so that the connection can be used again."""


class Attempt:
    """One request to an endpoint and the reading of its reply."""

    def __init__(
        self,
        http: HttpClient,
        endpoint: Endpoint,
        wire: Callable[[Failures], Translator],
        *,
        signal: CancelToken | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            wire: makes what reads the reply.
        """
        self._http = http
        self._endpoint = endpoint
        self._wire = wire
        self._signal = signal
        self._clock = clock
        self._headers: Mapping[str, str] = {}

    async def stream(self, body: bytes) -> AsyncIterator[Chunk]:
        """The chunks of the reply.

        Raises:
            LlmError: any failure of `spec/llm.md` §4.5. Blocks that were open stay open.
        """
        where = f"{self._endpoint.provider} at {self._endpoint.shown_url}"
        watchdog = Watchdog(self._endpoint.limits, self._signal, where)
        stream: HttpStream | None = None
        complete = False
        try:
            stream = await self._open(body, watchdog)
            translator = self._wire(self)
            parser = SseParser()
            out: list[Chunk] = []
            failure: LlmError | None = None
            head: bytes | None = b""
            while not complete and failure is None:
                data = await self._read(stream, watchdog)
                if head is not None and data:
                    head += data
                    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
                    if not start and len(head) < MAX_BLANK_BYTES:
                        continue
                    if start and start in b"{[<":
                        raise self._refusal.of_body(head + await self._rest(stream, watchdog))
                    data, head = head, None
                try:
                    if data:
                        complete = any(translator.push(*event, out) for event in parser.feed(data))
                    elif not (complete := translator.is_whole(parser.end(), out)):
                        failure = self._refusal.failed(
                            "STREAM_CLOSED",
                            f"{where} closed the stream before its end ({translator.end_mark})",
                        )
                except LlmError as error:
                    failure = error
                if out:
                    watchdog.saw_chunk()
                    for chunk in out:
                        yield chunk
                    out.clear()
            if failure is not None:
                raise self._refusal.named(failure)
            for chunk in translator.finish():
                yield self._named(chunk) if type(chunk) is Finish and "failure" in chunk.reason else chunk
        finally:
            watchdog.close()
            if stream is not None:
                if complete:
                    await _drain(stream)
                await stream.aclose()

    def in_band(self, error: Any) -> LlmFailure:
        """Of `Failures`."""
        return self._refusal.in_band(error)

    def of_event(self, payload: bytes) -> LlmError:
        """Of `Failures`."""
        return self._refusal.of_event(payload)

    def shown(self, text: str) -> str:
        """Of `Failures`."""
        return self._refusal.shown(text)

    async def _open(self, body: bytes, watchdog: Watchdog) -> HttpStream:
        endpoint = self._endpoint
        try:
            with watchdog:
                stream = await self._http.open("POST", endpoint.url, headers=endpoint.headers, content=body)
        except HttpError as error:
            message = f"cannot reach {endpoint.shown_url}: {self._refusal.shown(str(error))}"
            if error.hint:
                message += f"; {error.hint}"
            raise LlmError.of(error.code or "TRANSPORT", message) from error
        self._headers = stream.headers
        if 200 <= stream.status < 300 and stream.status != 204:
            return stream
        try:
            raise await self._refused(stream, watchdog)
        finally:
            await stream.aclose()

    async def _read(self, stream: HttpStream, watchdog: Watchdog) -> bytes:
        try:
            with watchdog:
                return await stream.read()
        except HttpError as error:
            reason = self._refusal.shown(str(error))
            if error.code:
                message = f"the answer of {self._endpoint.shown_url} cannot be read: {reason}"
            else:
                message = f"the connection to {self._endpoint.shown_url} broke: {reason}"
            raise self._refusal.failed(error.code or "TRANSPORT", message) from error

    async def _refused(self, stream: HttpStream, watchdog: Watchdog) -> LlmError:
        """The failure behind an answer without a stream."""
        if stream.status == 204:
            return self._refusal.failed(
                "EMPTY_RESPONSE", f"{self._endpoint.provider} answered without a body (HTTP 204)"
            )
        return self._refusal.of_status(stream.status, await self._rest(stream, watchdog))

    async def _rest(self, stream: HttpStream, watchdog: Watchdog) -> bytes:
        """What else the body of a failed answer says, as far as it comes soon: the status says enough."""
        pieces: list[bytes] = []
        try:
            with watchdog:
                async with asyncio.timeout(ERROR_BODY_S):
                    await stream.read_all(MAX_ERROR_BODY_BYTES, into=pieces)
        except (HttpError, TimeoutError):
            pass
        except LlmError as error:
            if error.code != "TIMEOUT":
                raise
        return b"".join(pieces)[:MAX_ERROR_BODY_BYTES]

    def _named(self, finish: Finish) -> Finish:
        """The end of a reply that was none, with the provider's name for the request."""
        error = self._refusal.named(LlmError(LlmFailure.from_json(finish.reason["failure"])))
        return Finish({**finish.reason, "failure": error.failure.to_json()})

    @property
    def _refusal(self) -> "Refusal":
        """What puts failures into words."""
        from dsh.llm.transport.refusal import Refusal

        return Refusal(self._endpoint, self._headers, self._clock())


async def _drain(stream: HttpStream) -> None:
    with contextlib.suppress(HttpError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            await stream.read_all(MAX_ERROR_BODY_BYTES)
