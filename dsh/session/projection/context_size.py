"""How large the next request is, folded from a log in a state of constant size (`spec/tools.md` §8).

It knows no message: what a replacement takes away is the price that the event right before it states. All
prices are the log's, and a factor that is learned from the last usage makes tokens of them. The token meter,
which looks at each message, is what decides; this is what is shown.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from dsh.session.calibration import MIN_FACTOR, START_FACTOR, learned_factor
from dsh.session.chunk_run import Entry
from dsh.session.digest import REQUEST_DIGEST
from dsh.session.estimate import FRAME, log_price_of_blocks, log_price_of_system, log_price_of_tools
from dsh.session.event import SessionEvent
from dsh.session.projection.error import ProjectionError
from dsh.session.projection.price import Tokens
from dsh.session.projection.token_usage import reported
from dsh.session.projection.unit import Unit, object_at, text_at
from dsh.session.value import MAX_SAFE_INT, safe_int


class Claim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an event says of the replacement that follows it."""

    seq: int
    start: int | None
    end: int | None
    price: int


class Baseline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request, or a request and its reply, as the provider counted it."""

    tokens: int
    price: int
    """The log price of the same: system text, tools, messages."""


class ContextSize(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state. Prices are the log's."""

    system: int = 0
    tools: int = 0
    surface: int = 0
    """Of all messages that the model sees."""
    sent: int | None = None
    """Of those that stood in the last request of the open step, where the log says so."""
    factor: float = START_FACTOR
    """Tokens for each token of a price."""
    baseline: Baseline | None = None
    """None before a usage that can be true, and after a change of the model."""
    pressure: int | None = None
    """The input of the last request that a provider reported, in tokens."""
    provider: str | None = None
    model: str | None = None
    """Of the last request header."""
    window: int | None = None
    claim: Claim | None = None

    @property
    def price(self) -> int:
        """Of the next request."""
        return self.system + self.tools + self.surface

    @property
    def projected(self) -> int | None:
        """The next request in tokens; None before the first request header."""
        if self.model is None:
            return None
        if self.baseline is None:
            return self.tokens(self.price)
        change = self.factor * (self.price - self.baseline.price)
        return max(0, round(self.baseline.tokens + change))

    def tokens(self, price: int) -> int:
        """A price in tokens."""
        return round(price * self.factor)


def init() -> ContextSize:
    """The state before the first event."""
    return ContextSize()


def apply(state: ContextSize, entry: Entry) -> ContextSize:
    """The state after an entry.

    Raises:
        ProjectionError: a replacement follows the price of another one.
    """
    if not isinstance(entry, SessionEvent) or not isinstance(entry.data, dict):
        return state
    return _HANDLERS[entry.type](state, entry)


def _step_start(state: ContextSize, _: SessionEvent) -> ContextSize:
    return state if state.sent is None else replace(state, sent=None)


def _digest(state: ContextSize, _: SessionEvent) -> ContextSize:
    return state if state.sent == state.surface else replace(state, sent=state.surface)


def _header(state: ContextSize, event: SessionEvent) -> ContextSize:
    header = object_at(event.data, "header") or {}
    config = object_at(header, "config")
    provider, model = text_at(config, "provider"), text_at(config, "model")
    is_same = (provider, model) == (state.provider, state.model)
    return replace(
        state,
        system=log_price_of_system(header.get("system")),
        tools=log_price_of_tools(header.get("tools")),
        provider=provider,
        model=model,
        baseline=state.baseline if is_same else None,
    )


def _context(state: ContextSize, event: SessionEvent) -> ContextSize:
    window = safe_int(event.data.get("contextWindow"))
    return state if window == state.window else replace(state, window=window)


def _chunk(state: ContextSize, event: SessionEvent) -> ContextSize:
    used = reported(event)
    return state if used is None else _counted(state, used, 0, 0)


def _claim(state: ContextSize, event: SessionEvent) -> ContextSize:
    span = object_at(event.data, "shadowedRange") or {}
    price = max(safe_int(event.data.get("shadowedTokenCount")) or 0, 0)
    start, end = safe_int(span.get("start")), safe_int(span.get("end"))
    return replace(state, claim=Claim(seq=event.seq, start=start, end=end, price=price))


def _message(state: ContextSize, event: SessionEvent) -> ContextSize:
    price = _price(event)
    used = reported(event) if event.type == "assistant/message" else None
    if used is not None:
        state = _counted(state, used, used.output, price)
    if event.surface == "append":
        return replace(state, surface=_bounded(state.surface + price)) if price else state
    return _replaced(state, event, price)


def _price(event: SessionEvent) -> int:
    """Of the message that an event puts before the model; 0 where it puts none."""
    message = event.data if event.type == "user/message" else object_at(event.data, "message") or {}
    content = message.get("content")
    if not isinstance(content, list | tuple) or (event.type == "assistant/message" and not content):
        return 0
    return log_price_of_blocks(content) + FRAME


def _replaced(state: ContextSize, event: SessionEvent, price: int) -> ContextSize:
    """What nobody priced is taken for as large as what takes its place."""
    claim, surface = state.claim, event.surface
    if claim is None or claim.seq != event.seq - 1 or not isinstance(surface, dict):
        return state
    if (claim.start, claim.end) != (surface["start"], surface["end"]):
        raise ProjectionError(
            f"event {event.seq} replaces {surface['start']}..{surface['end']}, "
            f"event {claim.seq} prices {claim.start}..{claim.end}",
            code="PROJECTION_CLAIM",
            hint="dsh sessions verify tells what is wrong with the log",
        )
    return replace(state, surface=_bounded(max(state.surface - claim.price, 0) + price), claim=None)


def _counted(state: ContextSize, used: Tokens, output: int, price: int) -> ContextSize:
    """A provider has counted a request; `output` and `price` are of the reply, as far as it counts."""
    prompt = _bounded(used.input + used.cache_read + used.cache_write)
    sent = state.system + state.tools + (state.surface if state.sent is None else state.sent)
    if not prompt or prompt < sent * MIN_FACTOR:
        return replace(state, pressure=prompt, baseline=None)
    baseline = Baseline(tokens=_bounded(prompt + output), price=_bounded(sent + price))
    factor = learned_factor(sent, prompt)
    if (state.pressure, state.baseline, state.factor) == (prompt, baseline, factor):
        return state
    return replace(state, pressure=prompt, baseline=baseline, factor=factor)


def _bounded(tokens: int) -> int:
    return min(tokens, MAX_SAFE_INT)


_HANDLERS: dict[str, Callable[[ContextSize, SessionEvent], ContextSize]] = {
    "step/start": _step_start,
    REQUEST_DIGEST: _digest,
    "request/header": _header,
    "request/context": _context,
    "assistant/chunk": _chunk,
    "compaction/summary": _claim,
    "compaction/prune": _claim,
    "user/message": _message,
    "assistant/message": _message,
    "tool/result": _message,
}
TYPES = frozenset(_HANDLERS)
"""The types of the events that count."""


def pressure_of(state: ContextSize) -> dict[str, Any]:
    """`{pressureTokens?, projectedTokens?, contextWindow?}`."""
    found = {
        "pressureTokens": state.pressure,
        "projectedTokens": state.projected,
        "contextWindow": state.window,
    }
    return {key: value for key, value in found.items() if value is not None}


def breakdown_of(state: ContextSize) -> dict[str, Any]:
    """`{systemTokens, toolsTokens, messagesTokens}`: together what is projected."""
    system, tools = state.tokens(state.system), state.tokens(state.tools)
    total = state.projected
    messages = state.tokens(state.surface) if total is None else max(0, total - system - tools)
    return {"systemTokens": system, "toolsTokens": tools, "messagesTokens": messages}


CONTEXT_PRESSURE: Unit[ContextSize] = Unit(
    key="contextPressure",
    version=1,
    state_type=ContextSize,
    init=init,
    apply=apply,
    types=TYPES,
    view=pressure_of,
)
"""How full the window of the model is: the last request as reported, the next one as projected."""
CONTEXT_BREAKDOWN: Unit[ContextSize] = Unit(
    key="contextBreakdown",
    version=1,
    state_type=ContextSize,
    init=init,
    apply=apply,
    types=TYPES,
    view=breakdown_of,
)
"""What the next request consists of: system text, tools, messages."""
