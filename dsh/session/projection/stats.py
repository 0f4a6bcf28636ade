"""What a session did and what it took: turns, steps, times, tokens, tools (`spec/persistence.md` §8).

Times are differences of the log's wall clock, which may go backwards: a negative one counts as 0. What a
model took is the time from the start of its step to its message; a retry in between starts the measure of
the first token anew, so that it and the writing time are those of the attempt that succeeded.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Price, Prices, Tokens, added
from dsh.session.projection.unit import Unit, object_at, text_at
from dsh.session.value import safe_int

UNKNOWN_ROUTE = "unknown"
"""Where usage counts for which no log entry names a route."""


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


class OpenCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that has no result yet."""

    name: str
    started_ms: int


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
    tools: dict[str, ToolStats] = {}
    """By name."""
    turn: int | None = None
    """The last turn that counts among `turns`."""
    route: str | None = None
    """The one of the last request header."""
    step: OpenStep | None = None
    calls: dict[str, OpenCall] = {}
    """By call id."""


def view(stats: Stats, prices: Prices | None = None) -> dict[str, Any]:
    """The figures as JSON: the eight of the original under its names, then ours.

    `costUsd` is null where no price is known: of a route without one, and in the sum if any route that was
    used has none.

    Args:
        prices: by route.
    """
    tokens: dict[str, Any] = {}
    total: float | None = 0.0 if stats.tokens else None
    for route, used in stats.tokens.items():
        price = (prices or {}).get(route)
        cost = None if price is None else used.cost_usd(price)
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
    }


def priced_view(prices: Callable[[], Mapping[str, Price]]) -> Callable[[Stats], dict[str, Any]]:
    """The view with the prices as they are when it is made."""
    return lambda stats: view(stats, prices())


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
    return _used(replace(stats, requests=stats.requests + 1), stats.route, step.usage)


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
    stats = _used(replace(stats, requests=stats.requests + 1), _route_of(source) or stats.route, usage)
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
    route = _route_of(object_at(object_at(event.data, "header"), "config"))
    return stats if route is None or route == stats.route else replace(stats, route=route)


def _summary(stats: Stats, event: SessionEvent) -> Stats:
    usage = object_at(event.data, "usage")
    if usage is None and event.data.get("llmStreamCall") is not True:
        return stats
    used = Tokens.of_usage(usage) if usage is not None else None
    return _used(replace(stats, requests=stats.requests + 1), _route_of(event.data), used)


def _title_request(stats: Stats, _: SessionEvent) -> Stats:
    return replace(stats, requests=stats.requests + 1)


def _route_of(where: Mapping[str, Any] | None) -> str | None:
    provider, model = text_at(where, "provider"), text_at(where, "model")
    return f"{provider}/{model}" if provider and model else None


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
    "compaction/summary": _summary,
    "session/title-llm-request": _title_request,
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
