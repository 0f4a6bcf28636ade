"""The fold behind a measure: head, priced surface, and the last request whose size a provider told.

An event is taken into account as a whole or, where it breaks a rule, not at all: the fold then stands before
it, and meets it again when it is asked again (`spec/tools.md` §8).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dsh.capabilities.token_meter import BaselineKind, Measurement, UnmeasurableLog
from dsh.plugins.token_meter.step import OpenStep
from dsh.plugins.token_meter.surface import PricedSurface, tokens_of
from dsh.session.calibration import START_RATIO, is_credible, learned_ratio
from dsh.session.chunk_run import ChunkRun, Entry, entry_stop
from dsh.session.derive import project
from dsh.session.digest import REQUEST_DIGEST
from dsh.session.estimate import log_price, weight, weight_of_header
from dsh.session.event import SURFACE_TYPES, SessionEvent
from dsh.session.log import Session
from dsh.session.projection.price import Tokens
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.value import FrozenDict, safe_int


class Anchor(NamedTuple):
    """A request and its reply, as the provider counted them."""

    header: FrozenDict
    tokens: int
    """All that went in and came out."""
    surface_weight: int
    """Of the messages that were sent and of the reply as it came, in bytes."""


class _Claim(NamedTuple):
    """What the event before a replacement says of it."""

    seq: int
    shadowed: frozenset[int]


class _Exchange(NamedTuple):
    """A request and its reply; weights in bytes."""

    sent: int
    """Of the messages in the request."""
    output: int
    """Of all that was streamed."""
    used: Tokens | None


class MeterFold:
    """State: everything that the measure of one session is made of, up to event `length`."""

    def __init__(self) -> None:
        self.length = 0
        self.ratio = START_RATIO
        self.surface = PricedSurface()
        self.header: FrozenDict | None = None
        self.head_weight = 0
        self.anchor: Anchor | None = None
        """What a total stands on as long as requests are made with its header."""
        self._is_anchored = False
        self._step: OpenStep | None = None
        self._claim: _Claim | None = None
        self._session_id = ""
        self._measured: Measurement | None = None

    def catch_up(self, session: Session) -> None:
        """Take the events into account that have come since the last time.

        Raises:
            UnmeasurableLog: at the first event that breaks a rule; those before it count.
        """
        if self.length == session.length:
            return
        self._session_id = session.id
        self.take(session.entries(self.length) if self.length else session.walk())

    def take(self, entries: Iterable[Entry]) -> None:
        """Take the next entries of the log into account.

        Raises:
            UnmeasurableLog: as `catch_up`.
        """
        for entry in entries:
            if isinstance(entry, ChunkRun):
                if self._step is not None:
                    self._step.add_run(entry)
            else:
                self._apply(entry)
            self.length = entry_stop(entry)
            self._measured = None

    def measurement(self) -> Measurement:
        """The measure of what has been taken into account; the same object until more is."""
        if self._measured is None:
            self._measured = self._measure()
        return self._measured

    def _measure(self) -> Measurement:
        surface, head = self.surface, tokens_of(self.head_weight, self.ratio)
        messages = tokens_of(surface.weight, self.ratio)
        total, anchor = head + messages, self.anchor
        kind: BaselineKind = "estimated" if self.header is not None or surface.seqs else "none"
        if anchor is not None and self._is_anchored:
            kind = "usage"
            total = max(0, anchor.tokens + messages - tokens_of(anchor.surface_weight, self.ratio))
        return Measurement(
            log_length=self.length,
            baseline=kind,
            total_tokens=total,
            head_tokens=head,
            surface_tokens=messages,
            nodes=surface.nodes(self.ratio),
        )

    # -- events ------------------------------------------------------------------------------------

    def _apply(self, event: SessionEvent) -> None:
        if event.type in SURFACE_TYPES:
            self._message(event)
        elif (handler := _HANDLERS.get(event.type)) is not None:
            handler(self, event)

    def _step_start(self, event: SessionEvent) -> None:
        where = _place(event.data)
        if self._step is not None or where is None:
            raise self._broken(event, "step/start while another step is open, or without a number")
        self._step = OpenStep(where, self.surface.weight)

    def _step_end(self, event: SessionEvent) -> None:
        if self._step is None or self._step.where != _place(event.data):
            raise self._broken(event, "step/end of a step that is not open")
        self._step = None

    def _turn_boundary(self, event: SessionEvent) -> None:
        if self._step is not None:
            raise self._broken(event, f"{event.type} while a step is open")

    def _header(self, event: SessionEvent) -> None:
        header = canonical_header(event.data["header"])
        self.header, self.head_weight = header, weight_of_header(header)
        self._is_anchored = self.anchor is not None and headers_equal(header, self.anchor.header)

    def _chunk(self, event: SessionEvent) -> None:
        if self._step is not None:
            self._step.add_chunk(event)

    def _digest(self, event: SessionEvent) -> None:
        if self._step is not None:
            self._step.dispatched = event.seq

    def _priced(self, event: SessionEvent) -> None:
        named = event.data.get("shadowedSeqs") if isinstance(event.data, dict) else None
        seqs = (safe_int(seq) for seq in named) if isinstance(named, list | tuple) else ()
        self._claim = _Claim(event.seq, frozenset(seq for seq in seqs if seq is not None))

    # -- the surface -------------------------------------------------------------------------------

    def _message(self, event: SessionEvent) -> None:
        message = project(event)
        heavy, price = (0, 0) if message is None else (weight(message), log_price(message))
        span = None if event.surface == "append" else self._span(event)
        step = self._step
        exchange: _Exchange | None = None
        if event.type == "assistant/message" and step is not None and step.holds(event.data):
            exchange = self._exchange(event, step, heavy)
        if span is None:
            self.surface.append(event.seq, heavy, price)
        else:
            self.surface.replace(span, event.seq, heavy, price)
        if step is not None:
            step.surface_changed(event.seq, self.surface.weight)
        if exchange is not None and exchange.used is not None:
            self._reported(exchange.used, exchange)

    def _exchange(self, event: SessionEvent, step: OpenStep, heavy: int) -> _Exchange:
        """The request that a reply answers, and the reply as it came; one that cites nothing, as it is."""
        streamed = step.streamed(event)
        if streamed is None:
            raise self._broken(event, "it cites events that are no chunks of its step")
        usage = event.data.get("usage")
        return _Exchange(
            sent=step.sent_weight(event),
            output=heavy if event.sources is None else streamed.total(),
            used=Tokens.of_usage(usage) if isinstance(usage, dict) else None,
        )

    def _span(self, event: SessionEvent) -> tuple[int, int]:
        surface: Any = event.surface
        span = self.surface.span(surface["start"], surface["end"])
        if span is None:
            raise self._broken(event, f"it replaces {surface['start']}..{surface['end']}, which is not there")
        claim = self._claim
        if claim is not None and claim.seq == event.seq - 1:
            shadowed = self.surface.seqs[span[0] : span[1] + 1]
            if claim.shadowed != frozenset(shadowed):
                raise self._broken(event, f"event {claim.seq} prices another range than is replaced")
        return span

    def _reported(self, used: Tokens, exchange: _Exchange) -> None:
        """A provider has told what a request and its reply came to."""
        sent, output = exchange.sent, exchange.output
        prompt = used.input + used.cache_read + used.cache_write
        self.anchor, self._is_anchored = None, False
        if self.header is None or not is_credible(prompt + used.output, self.head_weight + sent + output):
            return
        self.ratio = learned_ratio(self.head_weight + sent, prompt)
        self.anchor = Anchor(self.header, prompt + used.output, sent + output)
        self._is_anchored = True

    def _broken(self, event: SessionEvent, problem: str) -> UnmeasurableLog:
        return UnmeasurableLog(self._session_id, event.seq, problem)


def _place(data: Any) -> tuple[int, int] | None:
    """Turn and step that a payload names."""
    if not isinstance(data, dict):
        return None
    turn, step = safe_int(data.get("turn")), safe_int(data.get("step"))
    return None if turn is None or step is None else (turn, step)


_HANDLERS: dict[str, Callable[[MeterFold, SessionEvent], None]] = {
    "turn/start": MeterFold._turn_boundary,
    "turn/end": MeterFold._turn_boundary,
    "step/start": MeterFold._step_start,
    "step/end": MeterFold._step_end,
    "request/header": MeterFold._header,
    REQUEST_DIGEST: MeterFold._digest,
    "assistant/chunk": MeterFold._chunk,
    "compaction/summary": MeterFold._priced,
    "compaction/prune": MeterFold._priced,
}
