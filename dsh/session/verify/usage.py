"""What requests used and cost: whether `request/usage` agrees with its step, its message and its price."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.session.event import SessionEvent
from dsh.session.projection.price import Price, Tokens
from dsh.session.projection.request_usage import REQUEST_USAGE, RequestUsage, logged_usage
from dsh.session.value import safe_int
from dsh.session.verify.finding import Findings, quoted

EXACT_USD = 1e-9
"""How far a logged cost may be from the one that its price makes, and how much of it besides."""


class Usages:
    """State: the open step, the number of its request, and what the row of that request said."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._step: tuple[int | None, int | None] | None = None
        self._attempt: int | None = None
        """By the digests; None where this writer records none."""
        self._row: RequestUsage | None = None

    def see(self, event: SessionEvent) -> None:
        """Take the next event."""
        data = event.data if isinstance(event.data, Mapping) else {}
        match event.type:
            case "step/start":
                self._step = safe_int(data.get("turn")), safe_int(data.get("step"))
                self._attempt = self._row = None
            case "step/end" | "turn/end":
                self._step = None
            case "request/digest":
                self._attempt, self._row = (self._attempt or 0) + 1, None
            case "assistant/message":
                self._check_message(event, data)
            case kind if kind == REQUEST_USAGE:
                self._check_row(event, data)

    def _check_row(self, event: SessionEvent, data: Mapping[str, Any]) -> None:
        row = logged_usage(data)
        if row is None:
            said = f"{REQUEST_USAGE}: it names no route or holds no usage, and counts for nothing"
            self._findings.warning("USAGE_UNREADABLE", event.seq, said)
            return
        self._check_cost(event, row, data)
        if row.purpose is not None:
            return
        if (row.turn, row.step) != self._step or (self._attempt or row.attempt) != row.attempt:
            where = "none is open" if self._step is None else f"open is {self._step}"
            number = "" if self._attempt is None else f", request {self._attempt}"
            said = (
                f"{REQUEST_USAGE} names step {(row.turn, row.step)}, request {row.attempt}; {where}{number}"
            )
            self._findings.error("USAGE_PLACE", event.seq, said)
        elif self._row is not None and self._row.attempt == row.attempt:
            said = f"{REQUEST_USAGE}: request {row.attempt} of the step has a row already, so it counts twice"
            self._findings.error("USAGE_PLACE", event.seq, said)
        self._row = row

    def _check_cost(self, event: SessionEvent, row: RequestUsage, data: Mapping[str, Any]) -> None:
        price = _price(data.get("price"))
        expected = None if price is None else row.tokens.cost_usd(price)
        if expected is None or row.cost_usd is None:
            is_right = data.get("price") is None and data.get("costUsd") is None
        else:
            is_right = abs(row.cost_usd - expected) <= EXACT_USD * (1 + expected)
        if not is_right:
            cost = quoted(data.get("costUsd"))
            said = f"{REQUEST_USAGE}: the cost is {cost}, tokens and price make {expected}"
            self._findings.error("USAGE_COST", event.seq, said)

    def _check_message(self, event: SessionEvent, data: Mapping[str, Any]) -> None:
        row, reported = self._row, data.get("usage")
        if event.surface == "append" and row is not None and isinstance(reported, Mapping):
            found = Tokens.of_usage(reported)
            if found != row.tokens:
                said = (
                    f"assistant/message: it says {quoted(dict(reported))}, its {REQUEST_USAGE} other tokens"
                )
                self._findings.error("USAGE_OF_REPLY", event.seq, said)


def _price(value: object) -> Price | None:
    try:
        return msgspec.convert(value, Price)
    except msgspec.ValidationError:
        return None
