"""What all requests of the turns of a session took, as providers report it (`spec/tools.md` §8).

A step has one report: what its stream or its message says last, so that a retry takes the place of the
attempt before it. What summaries and titles took is not in it; the unit `sessionStats` counts everything.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Tokens
from dsh.session.projection.unit import Unit, object_at
from dsh.session.value import safe_int


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state."""

    before: Tokens = Tokens()
    """Of the steps before the last one that reported."""
    last: Tokens = Tokens()
    """Of that one."""
    turn: int | None = None
    step: int | None = None
    """Which one it is."""


def reported(event: SessionEvent) -> Tokens | None:
    """What an `assistant/chunk` or `assistant/message` says of usage, None where it says nothing."""
    where = object_at(event.data, "chunk") if event.type == "assistant/chunk" else event.data
    usage = object_at(where, "usage")
    return None if usage is None else Tokens.of_usage(usage)


def _init() -> TokenUsage:
    return TokenUsage()


def _apply(state: TokenUsage, entry: Entry) -> TokenUsage:
    used = reported(entry) if isinstance(entry, SessionEvent) else None
    if used is None or not isinstance(entry, SessionEvent):
        return state
    turn, step = safe_int(entry.data.get("turn")), safe_int(entry.data.get("step"))
    if (turn, step) != (state.turn, state.step):
        return TokenUsage(before=state.before + state.last, last=used, turn=turn, step=step)
    return state if used == state.last else replace(state, last=used)


def _view(state: TokenUsage) -> dict[str, Any]:
    total = state.before + state.last
    return {
        "uncachedInputTokens": total.input,
        "outputTokens": total.output,
        "cacheReadTokens": total.cache_read,
        "cacheWriteTokens": total.cache_write,
    }


TOKEN_USAGE: Unit[TokenUsage] = Unit(
    key="tokenUsage",
    version=1,
    state_type=TokenUsage,
    init=_init,
    apply=_apply,
    types=frozenset({"assistant/chunk", "assistant/message"}),
    view=_view,
)
"""View: `{uncachedInputTokens, outputTokens, cacheReadTokens, cacheWriteTokens}`."""
