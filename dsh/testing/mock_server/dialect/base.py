"""What a dialect of the mock server can do."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from dsh.testing.mock_server.dialect.sse import compact
from dsh.testing.mock_server.part import Call, Fault, Part, Reasoning
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Plan, Step


class Dialect(Protocol):
    """One server's spelling of requests, replies and errors."""

    @property
    def name(self) -> str:
        """`deepseek`, `openai` or `anthropic`."""

    @property
    def path(self) -> str:
        """How the path of a model call ends."""

    @property
    def garbled(self) -> bytes:
        """An event that is no JSON."""

    @property
    def malformed(self) -> bytes:
        """An event that is JSON, but of a wrong shape."""

    def steps(self, parts: Iterable[Part]) -> list[Step]:
        """A reply on the wire."""

    def asked(self, request: Any) -> "Dialect":
        """The dialect as it answers this request: some of it is told only where it is asked for."""

    def fault(self, fault: Fault) -> tuple[int, Any]:
        """An error's status and JSON body."""

    def failure(self, status: int, message: str, code: str = "") -> Any:
        """The JSON body of an error of the mock server itself: a wrong request, a script that is used up."""

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The key a request carries."""

    def models(self, ids: Sequence[str]) -> Any:
        """The answer to a request for the list of models."""

    def request_id(self, value: str) -> Mapping[str, str]:
        """The header that names a request."""


def streamed(dialect: Dialect, parts: Iterable[Part]) -> Plan:
    """The plan of a streamed reply, with the calls it makes."""
    said = list(parts)
    calls: dict[str, str] = {}
    reasoning = ""
    for part in said:
        if isinstance(part, Reasoning):
            reasoning += part.text
        elif isinstance(part, Call) and part.id is not None:
            calls[part.id] = reasoning
    return Plan(steps=tuple(dialect.steps(said)), calls=calls)


def refused(dialect: Dialect, fault: Fault, options: MockOptions) -> Plan:
    """An HTTP error."""
    status, body = dialect.fault(fault)
    headers = dict(JSON_HEADERS)
    if fault.kind == "rate_limit":
        headers["retry-after"] = str(math.ceil(options.retry_after_ms / 1000))
    return Plan(status=status, headers=headers, steps=(compact(body),))


def failed(dialect: Dialect, status: int, message: str, code: str = "") -> Plan:
    """An error of the mock server itself."""
    body = compact(dialect.failure(status, message, code))
    return Plan(status=status, headers=JSON_HEADERS, steps=(body,))


Behaviour: TypeAlias = Callable[[Dialect, MockOptions], Plan]
"""What a server does with a request, in whichever dialect it is asked."""


def replying(reply: Callable[[MockOptions], list[Part]]) -> Behaviour:
    """The behaviour of a reply that is put on the wire as it is written down."""
    return lambda d, o: streamed(d, reply(o))
