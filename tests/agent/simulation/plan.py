"""What a simulated run is made of, as plain data: replies, tool calls, and what comes from outside when."""

from typing import Literal, TypeAlias

import msgspec
from hypothesis import strategies as st

Ms: TypeAlias = int
CALL_TOOLS = ("reader", "writer", "loner", "safe", "missing")
KEYS = ("a", "b")
REPLY_KINDS = (
    *("text", "text", "calls", "calls", "calls", "thought", "cut", "empty"),
    *("retryable", "final", "overflow", "raise", "hang"),
)
ACTS = (
    *("followup", "followup", "steer", "inject", "cancel", "cancel keeping"),
    *("maintain", "continue", "compact", "dispose"),
)


class CallPlan(msgspec.Struct, frozen=True):
    """One tool call: it is in the arguments what the tool does."""

    tool: str
    key: str
    took_ms: Ms
    outcome: Literal[
        "ok", "long", "raise", "wrong type", "context", "conclude", "steer", "cancel", "spawn", "deny"
    ]
    heeds: bool
    """Whether the body ends when its token is cancelled."""
    raw: str | None = None
    """The arguments as the model writes them, where they are broken."""


class ReplyPlan(msgspec.Struct, frozen=True):
    """One reply of the model."""

    kind: Literal[
        "text", "thought", "calls", "cut", "empty", "retryable", "final", "overflow", "raise", "hang"
    ]
    calls: tuple[CallPlan, ...] = ()
    pieces: int = 1
    gap_ms: Ms = 0
    """Between two chunks."""
    input_tokens: int = 0
    """What its usage says; 0 for no usage."""


class Act(msgspec.Struct, frozen=True):
    """Something from outside."""

    at_ms: Ms
    what: Literal[
        "followup",
        "steer",
        "inject",
        "cancel",
        "cancel keeping",
        "maintain",
        "continue",
        "compact",
        "dispose",
    ]
    long: bool = False
    """A message that fills much of the window."""


class Limits(msgspec.Struct, frozen=True):
    """Options of the loop."""

    cap: int
    steps: int | None
    turn_ms: Ms | None
    on_failure: Literal["park", "continue"]
    run_steps: int | None
    default_timeout_ms: Ms | None
    """Of tools that say nothing."""


class Plan(msgspec.Struct, frozen=True):
    """One run."""

    replies: tuple[ReplyPlan, ...]
    """By request; when they are used up the model answers with a text."""
    acts: tuple[Act, ...]
    limits: Limits


def _times(longest: Ms) -> st.SearchStrategy[Ms]:
    return st.one_of(st.just(0), st.integers(0, 20), st.integers(0, longest))


calls = st.builds(
    CallPlan,
    tool=st.sampled_from(CALL_TOOLS),
    key=st.sampled_from(KEYS),
    took_ms=_times(9_000),
    outcome=st.sampled_from(
        [
            "ok",
            "ok",
            "ok",
            "long",
            "raise",
            "wrong type",
            "context",
            "conclude",
            "steer",
            "cancel",
            "spawn",
            "deny",
        ]
    ),
    heeds=st.booleans(),
    raw=st.sampled_from([None] * 8 + ["", "{", "[1]", '{"key": 7}', '{"took_ms": "x"}']),
)
replies = st.builds(
    ReplyPlan,
    kind=st.sampled_from(REPLY_KINDS),
    calls=st.lists(calls, min_size=1, max_size=5).map(tuple),
    pieces=st.integers(1, 3),
    gap_ms=_times(3_000),
    input_tokens=st.sampled_from([0, 0, 10, 500, 3_000]),
)
acts = st.builds(
    Act,
    at_ms=_times(20_000),
    what=st.sampled_from(ACTS),
    long=st.sampled_from([False, False, False, True]),
)
limits = st.builds(
    Limits,
    cap=st.sampled_from([1, 2, 10]),
    steps=st.sampled_from([None, None, 1, 2, 5]),
    turn_ms=st.sampled_from([None, None, 1, 5_000]),
    on_failure=st.sampled_from(["park", "continue"]),
    run_steps=st.sampled_from([None, None, 3]),
    default_timeout_ms=st.sampled_from([1_800_000, 1_000]),
)
plans = st.builds(
    Plan,
    replies=st.lists(replies, min_size=1, max_size=10).map(tuple),
    acts=st.lists(acts, max_size=6).map(lambda drawn: (Act(0, "followup"), *drawn)),
    limits=limits,
)
