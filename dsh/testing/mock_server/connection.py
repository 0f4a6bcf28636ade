"""One HTTP/1.1 connection from the server's side, just as much of it as a model client uses."""

import asyncio
from collections.abc import Mapping

from dsh.testing.mock_server.plan import Outcome, Pause, Plan, Stall


class Counter:
    """How many pieces of the body went out."""

    sent = 0


class Connection:
    """Reads requests and plays answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def request(self) -> tuple[str, str, dict[str, str], bytes]:
        """Method, target, headers with names in lower case, body.

        Raises:
            ValueError: these bytes are no request.
        """
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return method, target, headers, await self._body(headers)

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length") or 0))
        parts: list[bytes] = []
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readuntil(b"\r\n")
        return b"".join(parts)

    async def play(self, plan: Plan, counter: Counter) -> Outcome:
        """Send an answer step by step. Raises ConnectionError when the client has gone."""
        if plan.status:
            self._writer.write(_head(plan))
            await self._writer.drain()
        for step in plan.steps:
            if isinstance(step, bytes):
                self._writer.write(step if plan.status >= 300 else b"%x\r\n%b\r\n" % (len(step), step))
                counter.sent += 1
                if counter.sent % 16 == 0:
                    await self._writer.drain()
            elif isinstance(step, Pause):
                await self._writer.drain()
                if await self._client_left(step.ms / 1000):
                    return "client_closed"
            elif isinstance(step, Stall):
                await self._client_left(None)
                return "stalled"
            else:
                await self._writer.drain()
                self._writer.transport.abort()
                return "reset"
        if plan.status < 300 and plan.status != 204:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return "completed" if plan.status < 500 else "server_error"

    async def _client_left(self, wait_s: float | None) -> bool:
        """Wait that long, or until the client closes its side, which is told by True."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._reader.at_eof():
                    await self._reader.read(1)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


def _head(plan: Plan) -> bytes:
    lines = [f"HTTP/1.1 {plan.status} Mock", *(f"{name}: {value}" for name, value in plan.headers.items())]
    if plan.status >= 300:
        lines.append(f"content-length: {sum(len(step) for step in plan.steps if isinstance(step, bytes))}")
    elif plan.status != 204:
        lines.append("transfer-encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
