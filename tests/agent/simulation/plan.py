"""What a simulated run is made of, as plain data: replies, tool calls, and what comes from outside when."""

from typing import Literal, TypeAlias

import msgspec
from hypothesis import strategies as st

Ms: TypeAlias = int
KEYS = ("a", "b")
TOOLS = ("reader", "reader", "writer", "writer", "safe", "safe", "safe", "loner", "missing")
"""More than once: more often."""
OUTCOMES = (
    *("ok", "ok", "ok", "ok", "ok", "ok", "ok", "long", "raise", "wrong type", "context", "conclude"),
    *("steer", "cancel", "spawn", "deny", "ask", "ask"),
)
REPLIES = (
    *("calls", "calls", "calls", "calls", "calls", "calls", "calls", "calls", "calls"),
    *("text", "text", "thought", "cut", "empty", "retryable", "final", "overflow", "raise", "exit", "hang"),
)
SUMMARIES = ("text", "text", "text", "empty", "retryable", "raise", "exit", "hang")
ACTS = (
    *("followup", "followup", "followup", "steer", "steer", "inject", "cancel", "cancel keeping", "continue"),
    *("maintain", "compact", "cap", "tools again", "dispose", "end owner"),
)
LISTENED = (
    *("agent/pre-step", "agent/request", "agent/request-error", "agent/turn-stopping", "agent/status"),
    *("agent/inbox/inserted", "agent/inbox/claimed", "system-prompt/assemble", "llm/stream", "session/event"),
    *("tools/pre-execute", "tools/execute", "tools/post-execute", "tools/result", "approval/request"),
)
DEEDS = ("raise", "exit", "delay", "stall", "wrong", "twice", "steer", "cancel")


class CallPlan(msgspec.Struct, frozen=True):
    """One tool call: it is in the arguments what the tool does."""

    tool: str
    key: str
    took_ms: Ms
    outcome: str
    """One of `OUTCOMES`."""
    heeds: bool
    """Whether the body ends when its token is cancelled; of an approval, whether it is given."""
    raw: str | None = None
    """The arguments as the model writes them, where they are broken."""


class ReplyPlan(msgspec.Struct, frozen=True):
    """One reply of the model."""

    kind: str
    """One of `REPLIES`."""
    calls: tuple[CallPlan, ...] = ()
    pieces: int = 1
    gap_ms: Ms = 0
    """Between two chunks."""
    input_tokens: int = 0
    """What its usage says; 0 for no usage."""


class Act(msgspec.Struct, frozen=True):
    """Something from outside."""

    at_ms: Ms
    what: str
    """One of `ACTS`."""
    long: bool = False
    """A message that fills much of the window."""


class Part(msgspec.Struct, frozen=True):
    """What happens while one agent lives."""

    replies: tuple[ReplyPlan, ...]
    """By request; when they are used up the model answers with a text."""
    summaries: str
    """How requests for a summary are answered: one of `SUMMARIES`."""
    acts: tuple[Act, ...]


class Sequel(msgspec.Struct, frozen=True):
    """How a log goes on when its agent is gone."""

    way: Literal["resume", "fork"]
    at_permille: int
    """Where the log is cut, as if the process had been killed there; a fork begins at the turn before."""
    part: Part


class Story(msgspec.Struct, frozen=True):
    """One session from its beginning, perhaps in two parts."""

    part: Part
    sequel: Sequel | None = None


class Meddler(msgspec.Struct, frozen=True):
    """A listener that does something once."""

    event: str
    """One of `LISTENED`."""
    time: int
    """Which time it is called, from 1."""
    does: str
    """One of `DEEDS`."""


class Limits(msgspec.Struct, frozen=True):
    """Options of the loop."""

    cap: int
    steps: int | None
    turn_ms: Ms | None
    on_failure: Literal["park", "continue"]
    run_steps: int | None
    default_timeout_ms: Ms
    """Of tools that say nothing."""


class Plan(msgspec.Struct, frozen=True):
    """One run: stories that happen at the same time in one composition."""

    stories: tuple[Story, ...]
    meddlers: tuple[Meddler, ...]
    limits: Limits


def _times(longest: Ms) -> st.SearchStrategy[Ms]:
    return st.one_of(st.just(0), st.integers(0, 20), st.integers(0, longest))


calls = st.builds(
    CallPlan,
    tool=st.sampled_from(TOOLS),
    key=st.sampled_from(KEYS),
    took_ms=_times(9_000),
    outcome=st.sampled_from(OUTCOMES),
    heeds=st.booleans(),
    raw=st.sampled_from([None] * 30 + ["", "{", "[1]", '{"key": 7}', '{"took_ms": "x"}']),
)
replies = st.builds(
    ReplyPlan,
    kind=st.sampled_from(REPLIES),
    calls=st.lists(calls, min_size=2, max_size=6).map(tuple),
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
parts = st.builds(
    Part,
    replies=st.lists(replies, min_size=1, max_size=8).map(tuple),
    summaries=st.sampled_from(SUMMARIES),
    acts=st.lists(acts, max_size=5).map(lambda drawn: (Act(0, "followup"), *drawn)),
)
sequels = st.builds(
    Sequel,
    way=st.sampled_from(["resume", "fork"]),
    at_permille=st.integers(0, 1_000).map(lambda n: 1_000 - n),
    part=parts,
)
stories = st.builds(Story, part=parts, sequel=st.none() | sequels)
meddlers = st.builds(
    Meddler, event=st.sampled_from(LISTENED), time=st.integers(1, 4), does=st.sampled_from(DEEDS)
)
limits = st.builds(
    Limits,
    cap=st.sampled_from([10, 10, 2, 1]),
    steps=st.sampled_from([None] * 6 + [1, 2, 5]),
    turn_ms=st.sampled_from([None] * 6 + [1, 5_000]),
    on_failure=st.sampled_from(["park", "continue"]),
    run_steps=st.sampled_from([None] * 6 + [3]),
    default_timeout_ms=st.sampled_from([1_800_000, 1_800_000, 1_000]),
)
plans = st.builds(
    Plan,
    stories=st.lists(stories, min_size=1, max_size=2).map(tuple),
    meddlers=st.lists(meddlers, max_size=2).map(tuple),
    limits=limits,
)
