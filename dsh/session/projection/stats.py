"""What a session did and what it took: turns, steps, times, tokens, tools (`spec/persistence.md` §8).

Times are differences of the log's wall clock, which may go backwards: a negative one counts as 0. What a
model took is the time from the start of its step to its message; a retry in between starts the measure of
the first token anew, so that it and the writing time are those of the attempt that succeeded.

What a request used counts once: by its `request/usage`, where the log has one, else by what the message, the
stream or the summary says.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Price, PriceOf, Tokens, added
from dsh.session.projection.request_usage import REQUEST_USAGE, logged_usage
from dsh.session.projection.requests import UNKNOWN_ROUTE, route_of
from dsh.session.projection.unit import Unit, object_at, text_at
from dsh.session.value import safe_int


class ToolStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one tool did; only calls that were answered count."""

    calls: int = 0
    errors: int = 0
    ms: int = 0


class OpenStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The step that has no end yet, as its current attempt stands."""

    started_ms: int
    first_ms: int | None = None
    """When the attempt's first text, reasoning, argument text or tool name came."""
    usage: Tokens | None = None
    """What the attempt reported, until its message does."""
    is_answering: bool = False
    """Something of the attempt is in the log, and not its message."""
    is_counted: bool = False
    """What the attempt used counts already."""


class OpenCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that has no result yet."""

    name: str
    started_ms: int


class Paid(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the log itself says that requests of a route have cost."""

    tokens: Tokens
    """Theirs; those of other requests have no cost in the log."""
    cost_usd: float


class Stats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state. Mappings in it are never changed, but replaced."""

    turns: int = 0
    """Turns in which a step ended."""
    steps: int = 0
    """Steps that ended."""
    llm_ms: int = 0
    tool_ms: int = 0
    """Of all answered calls; calls that ran at once count each."""
    ttft_ms: int = 0
    """From the start of a step to its first token, over `ttft_steps` steps."""
    ttft_steps: int = 0
    decode_ms: int = 0
    """From the first token to the message, where the message says how many tokens it took."""
    decode_tokens: int = 0
    requests: int = 0
    """Requests to a model of which anything is in the log, failed attempts and summaries counted."""
    retries: int = 0
    tokens: dict[str, Tokens] = {}
    """By route."""
    paid: dict[str, Paid] = {}
    """By route, where the log knows costs."""
    is_summary_counted: bool = False
    """What the summary that comes next used counts already."""
    tools: dict[str, ToolStats] = {}
    """By name."""
    turn: int | None = None
    """The last turn that counts among `turns`."""
    route: str | None = None
    """The one of the last request header."""
    step: OpenStep | None = None
    calls: dict[str, OpenCall] = {}
    """By call id."""


def view(stats: Stats, price_of: PriceOf | None = None) -> dict[str, Any]:
    """The figures as JSON: the eight of the original under its names, then ours.

    A cost is what the log says that requests have cost; to what it says nothing of, the price that holds now
    is put. `costUsd` is null where any of it is not known, in the sum if that is so of any route;
    `knownCostUsd` is the part that is known. By a price that depends on the length of a request no sum of
    several has a cost, unless all of it together is short.

    Args:
        price_of: the prices that hold now.
    """
    tokens: dict[str, Any] = {}
    total: float | None = 0.0 if stats.tokens else None
    known = 0.0
    for route, used in stats.tokens.items():
        part, rest = _cost(used, stats.paid.get(route), None if price_of is None else price_of(route))
        known += part + (rest or 0.0)
        cost = None if rest is None else part + rest
        total = None if total is None or cost is None else total + cost
        tokens[route] = {**msgspec.to_builtins(used), "costUsd": cost}
    return {
        "turns": stats.turns,
        "steps": stats.steps,
        "llmMs": stats.llm_ms,
        "toolMs": stats.tool_ms,
        "ttftMs": stats.ttft_ms,
        "ttftSteps": stats.ttft_steps,
        "decodeMs": stats.decode_ms,
        "decodeTokens": stats.decode_tokens,
        "requests": stats.requests,
        "retries": stats.retries,
        "tokens": tokens,
        "tools": msgspec.to_builtins(stats.tools),
        "costUsd": total,
        "knownCostUsd": known,
    }


def _cost(used: Tokens, paid: Paid | None, price: Price | None) -> tuple[float, float | None]:
    """What the log says that a route has cost, and what the rest costs now; None where that is not known."""
    rest = used if paid is None else used.without(paid.tokens)
    part = 0.0 if paid is None else paid.cost_usd
    if rest == Tokens():
        return part, 0.0 if paid is not None or price is not None else None
    if price is None or (price.long is not None and rest.total_input > price.long.above_input_tokens):
        return part, None  # which of several requests were long is not known
    return part, rest.cost_usd(price)


def priced_view(price_of: PriceOf) -> Callable[[Stats], dict[str, Any]]:
    """The view with the prices as they are when it is made."""
    return lambda stats: view(stats, price_of)


def _init() -> Stats:
    return Stats()


def _apply(stats: Stats, entry: Entry) -> Stats:
    if isinstance(entry, ChunkRun):
        return _run(stats, entry)
    handler = _HANDLERS.get(entry.type)
    return stats if handler is None or not isinstance(entry.data, dict) else handler(stats, entry)


# -- turns and steps -------------------------------------------------------------------------------


def _step_start(stats: Stats, event: SessionEvent) -> Stats:
    return replace(stats, step=OpenStep(started_ms=event.time))


def _step_end(stats: Stats, event: SessionEvent) -> Stats:
    turn = safe_int(event.data.get("turn"))
    turns = stats.turns + (turn is not None and turn != stats.turn)
    return replace(_given_up(stats), steps=stats.steps + 1, turns=turns, turn=turn, step=None)


def _turn_end(stats: Stats, event: SessionEvent) -> Stats:
    return replace(_given_up(stats), calls={}, step=None) if stats.calls or stats.step else stats


def _given_up(stats: Stats) -> Stats:
    """The attempt under way, if there is one, has failed: what it used is used."""
    step = stats.step
    if step is None or not step.is_answering:
        return stats
    usage = None if step.is_counted else step.usage
    return _used(replace(stats, requests=stats.requests + 1), stats.route, usage)


# -- the model -------------------------------------------------------------------------------------


def _run(stats: Stats, run: ChunkRun) -> Stats:
    step = stats.step
    if step is None or (step.is_answering and step.first_ms is not None):
        return stats
    first = step.first_ms
    if first is None:
        first = run.time0 if run.name else _first_text_ms(run)
    if step.is_answering and first is None:
        return stats
    return replace(stats, step=replace(step, is_answering=True, first_ms=first))


def _first_text_ms(run: ChunkRun) -> int | None:
    for at, text in enumerate(run.texts):
        if text:
            return run.time0 + sum(run.dt[:at])
    return None


def _chunk(stats: Stats, event: SessionEvent) -> Stats:
    step, chunk = stats.step, object_at(event.data, "chunk")
    if step is None or chunk is None:
        return stats
    changes: dict[str, Any] = {} if step.is_answering else {"is_answering": True}
    if chunk.get("type") == "usage" and (usage := object_at(chunk, "usage")) is not None:
        changes["usage"] = Tokens.of_usage(usage)
    elif step.first_ms is None and _is_token(chunk):
        changes["first_ms"] = event.time
    return replace(stats, step=replace(step, **changes)) if changes else stats


def _is_token(chunk: Mapping[str, Any]) -> bool:
    match chunk.get("type"):
        case "text-delta" | "reasoning-delta":
            return bool(text_at(chunk, "text"))
        case "tool-call-delta":
            return bool(text_at(chunk, "argumentsDelta")) or bool(text_at(chunk, "name"))
    return False


def _assistant_message(stats: Stats, event: SessionEvent) -> Stats:
    step = stats.step
    source = object_at(object_at(event.data, "message"), "source")
    reported = object_at(event.data, "usage")
    usage = Tokens.of_usage(reported) if reported is not None else step.usage if step is not None else None
    stats = replace(stats, requests=stats.requests + 1)
    if step is None or not step.is_counted:
        stats = _used(stats, route_of(source) or stats.route, usage)
    if step is None:
        return stats
    made: dict[str, int] = {"llm_ms": added(stats.llm_ms, _ms(step.started_ms, event.time))}
    if step.first_ms is not None:
        made["ttft_ms"] = added(stats.ttft_ms, _ms(step.started_ms, step.first_ms))
        made["ttft_steps"] = stats.ttft_steps + 1
        if usage is not None and usage.output:
            made["decode_ms"] = added(stats.decode_ms, _ms(step.first_ms, event.time))
            made["decode_tokens"] = added(stats.decode_tokens, usage.output)
    return replace(stats, step=OpenStep(started_ms=step.started_ms), **made)


def _retry(stats: Stats, _: SessionEvent) -> Stats:
    failed = _given_up(stats)
    if failed is stats:  # nothing of the attempt came, but it was one
        failed = replace(stats, requests=stats.requests + 1)
    step = stats.step
    return failed if step is None else replace(failed, step=OpenStep(started_ms=step.started_ms))


def _retry_started(stats: Stats, _: SessionEvent) -> Stats:
    return replace(stats, retries=stats.retries + 1)


def _request_header(stats: Stats, event: SessionEvent) -> Stats:
    route = route_of(object_at(object_at(event.data, "header"), "config"))
    return stats if route is None or route == stats.route else replace(stats, route=route)


def _summary(stats: Stats, event: SessionEvent) -> Stats:
    usage = object_at(event.data, "usage")
    if stats.is_summary_counted:
        return replace(stats, is_summary_counted=False)
    if usage is None and event.data.get("llmStreamCall") is not True:
        return stats
    used = Tokens.of_usage(usage) if usage is not None else None
    return _used(replace(stats, requests=stats.requests + 1), route_of(event.data), used)


def _compaction(stats: Stats, _: SessionEvent) -> Stats:
    return replace(stats, is_summary_counted=False) if stats.is_summary_counted else stats


def _request_usage(stats: Stats, event: SessionEvent) -> Stats:
    record = logged_usage(event.data)
    if record is None:
        return stats
    stats = _used(stats, record.route, record.tokens)
    if record.cost_usd is not None:
        before = stats.paid.get(record.route, Paid(tokens=Tokens(), cost_usd=0.0))
        now = Paid(tokens=before.tokens + record.tokens, cost_usd=before.cost_usd + record.cost_usd)
        stats = replace(stats, paid={**stats.paid, record.route: now})
    if record.purpose == "session-title":  # its request is in the log as such
        return stats
    if record.purpose is not None:
        is_summary = stats.is_summary_counted or record.purpose == "compaction"
        return replace(stats, requests=stats.requests + 1, is_summary_counted=is_summary)
    step = stats.step
    if step is None:
        return stats
    if step.is_counted:  # a second attempt, which nobody announced
        stats = replace(stats, requests=stats.requests + 1)
    return replace(stats, step=replace(step, is_answering=True, is_counted=True))


def _title_request(stats: Stats, _: SessionEvent) -> Stats:
    return replace(stats, requests=stats.requests + 1)


def _used(stats: Stats, route: str | None, usage: Tokens | None) -> Stats:
    if usage is None:
        return stats
    name = route or UNKNOWN_ROUTE
    return replace(stats, tokens={**stats.tokens, name: stats.tokens.get(name, Tokens()) + usage})


# -- tools -----------------------------------------------------------------------------------------


def _tool_call(stats: Stats, event: SessionEvent) -> Stats:
    call_id = text_at(event.data, "callId")
    if call_id is None:
        return stats
    call = OpenCall(name=text_at(event.data, "name") or "", started_ms=event.time)
    return replace(stats, calls={**stats.calls, call_id: call})


def _tool_result(stats: Stats, event: SessionEvent) -> Stats:
    message = object_at(event.data, "message")
    call_id = text_at(object_at(message, "source"), "callId")
    call = stats.calls.get(call_id) if call_id is not None else None
    if call is None:
        return stats
    took = _ms(call.started_ms, event.time)
    before = stats.tools.get(call.name, ToolStats())
    now = ToolStats(
        calls=before.calls + 1, errors=before.errors + _is_error(event.data), ms=added(before.ms, took)
    )
    return replace(
        stats,
        tool_ms=added(stats.tool_ms, took),
        tools={**stats.tools, call.name: now},
        calls={key: other for key, other in stats.calls.items() if key != call_id},
    )


def _is_error(data: Mapping[str, Any]) -> bool:
    content = (object_at(data, "message") or {}).get("content")
    block = content[0] if isinstance(content, list | tuple) and content else None
    return object_at(data, "error") is not None or (isinstance(block, dict) and block.get("isError") is True)


def _ms(start: int, end: int) -> int:
    return max(end - start, 0)


_HANDLERS: dict[str, Callable[[Stats, SessionEvent], Stats]] = {
    "step/start": _step_start,
    "step/end": _step_end,
    "turn/end": _turn_end,
    "assistant/chunk": _chunk,
    "assistant/message": _assistant_message,
    "llm/retry": _retry,
    "llm/retry-started": _retry_started,
    "request/header": _request_header,
    "compaction/start": _compaction,
    "compaction/summary": _summary,
    "session/title-llm-request": _title_request,
    REQUEST_USAGE: _request_usage,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
}

STATS: Unit[Stats] = Unit(
    key="sessionStats",
    version=1,
    state_type=Stats,
    init=_init,
    apply=_apply,
    types=frozenset(_HANDLERS),
    reads_runs=True,
    view=view,
)
"""The view has no prices; a row that knows some registers the unit with another one."""
