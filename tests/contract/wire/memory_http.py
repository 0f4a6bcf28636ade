"""An HTTP client whose server is a list of answers in memory: no socket, so the fake clock can run it.

Everything above the client is real: the adapter, the attempt, the splitter, the watchdog.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from dsh.capabilities.http import HttpClient, HttpError, HttpStream
from dsh.testing.mock_server.plan import Pause, Plan, Reset, Stall


class Sent(NamedTuple):
    """A request that went out."""

    at_s: float
    """When, on the loop's clock."""
    url: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class MemoryHttp(HttpClient):
    """Answers each model call with the next plan, and a question for the list of models with 404.

    State: the calls that went out, the streams that are open.
    """

    def __init__(self, plans: Iterable[Plan], beside: tuple[bytes, Iterable[Plan]] = (b"\0", ())) -> None:
        """
        Args:
            beside: words of requests that have answers of their own, and these answers.
        """
        super().__init__()
        self._plans = iter(plans)
        self._words, self._beside = beside[0], iter(beside[1])
        self.sent: list[Sent] = []
        self.open_streams = 0

    def warm(self, url: str) -> None:
        """There is nothing to load."""

    async def open(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b""
    ) -> HttpStream:
        if method == "GET":
            return self._played(Plan(status=404))
        self.sent.append(Sent(asyncio.get_running_loop().time(), url, dict(headers), content))
        plan = next(self._beside if self._words in content else self._plans, None)
        assert plan is not None, f"request {len(self.sent)} has no answer"
        if plan.status == 0:
            if any(isinstance(step, Stall) for step in plan.steps):
                await asyncio.Event().wait()
            raise HttpError("Connection reset by peer")
        return self._played(plan)

    def _played(self, plan: Plan) -> HttpStream:
        self.open_streams += 1
        return cast(HttpStream, _MemoryStream(self, plan))


class _MemoryStream:
    """Plays the steps of a plan; an empty read is its end."""

    def __init__(self, http: MemoryHttp, plan: Plan) -> None:
        self.status, self.headers = plan.status, dict(plan.headers)
        self._http, self._steps, self._is_open = http, iter(plan.steps), True

    async def read(self) -> bytes:
        for step in self._steps:
            if isinstance(step, bytes):
                if step:
                    return step
            elif isinstance(step, Pause):
                await asyncio.sleep(step.ms / 1000)
            elif isinstance(step, Stall):
                await asyncio.Event().wait()
            else:
                assert isinstance(step, Reset)
                raise HttpError("Connection reset by peer")
        return b""

    async def read_all(self, limit: int, *, into: list[bytes] | None = None) -> bytes:
        pieces = [] if into is None else into
        while sum(map(len, pieces)) < limit and (piece := await self.read()):
            pieces.append(piece)
        return b"".join(pieces)[:limit]

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._http.open_streams -= 1


def in_pieces(plan: Plan, cuts: Iterable[int]) -> Plan:
    """The same body, cut at these places and nowhere else."""
    return Plan(status=plan.status, headers=plan.headers, steps=tuple(_cut(plan.sent(), cuts)))


def _cut(body: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for stop in (*sorted(cuts), len(body)):
        yield body[start:stop]
        start = stop
