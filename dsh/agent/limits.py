"""How much a turn and a run may do, and what they have done so far.

Steps and tokens are looked at between two steps, before anything is claimed for the next one; time is held
by one timer a turn, which cancels at once. A limit cancels the turn like anybody else would, and keeps what
waits: the turn ends `aborted`, with the limit as its cause (`design.md` §10.2, §10.6).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from dsh.agent.contract import CancelCause, RunLimits

LimitName = Literal["steps", "tokens", "timeout"]
OnTurnFailure = Literal["park", "continue"]


class TurnRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn may do, and what follows one that failed."""

    limits: RunLimits = RunLimits()
    """Of each turn by itself."""
    on_failure: OnTurnFailure = "park"
    """Whether prompts that wait behind a turn that failed wait on, or get their turns."""


def tokens_of(usage: Mapping[str, Any]) -> int:
    """All tokens that a provider reported for one attempt: input, cached input, output."""
    parts = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    counts = (usage.get(part) for part in parts)
    return sum(count for count in counts if type(count) is int and count > 0)


class Used:
    """What was done under some limits. State: steps, tokens, and the time of turns that have ended."""

    __slots__ = ("limits", "seconds", "steps", "tokens")

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.steps = 0
        self.tokens = 0
        self.seconds = 0.0

    def reached(self) -> LimitName | None:
        """The limit that allows no further step."""
        limits = self.limits
        if limits.steps is not None and self.steps >= limits.steps:
            return "steps"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return "tokens"
        return None

    def left_s(self) -> float | None:
        """How long a turn that begins now may take; None without a limit."""
        limit_ms = self.limits.duration_ms
        return None if limit_ms is None else max(0.0, limit_ms / 1000 - self.seconds)


class TurnBudget:
    """One turn against its own limits and those of the run. State: its use, and its timer while it lasts."""

    def __init__(self, run: Used, limits: RunLimits, stop: Callable[[CancelCause], None]) -> None:
        """`stop` ends the turn for the given cause; called again it changes nothing."""
        self._uses = (Used(limits), run)
        self._run = run
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._begun_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The turn is in the log: its time runs."""
        self._begun_s = self._loop.time()
        left_s = min((left for use in self._uses if (left := use.left_s()) is not None), default=None)
        if left_s == 0:
            self._stop(cause_of("timeout"))
        elif left_s is not None:
            self._timer = self._loop.call_later(left_s, self._stop, cause_of("timeout"))

    def check(self) -> None:
        """Stop the turn if its limits, or those of the run, allow no further step."""
        for use in self._uses:
            if (name := use.reached()) is not None:
                self._stop(cause_of(name))

    def step_begins(self) -> None:
        for use in self._uses:
            use.steps += 1

    def add_usage(self, usage: Mapping[str, Any] | None) -> None:
        """Count what an attempt consumed, however it ended. None where the provider reported nothing."""
        if usage is not None:
            tokens = tokens_of(usage)
            for use in self._uses:
                use.tokens += tokens

    def end(self) -> None:
        """The turn is over: its time counts for the run, and nothing stops it any more. Once is enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._begun_s is not None:
            self._run.seconds += self._loop.time() - self._begun_s
            self._begun_s = None


def cause_of(limit: LimitName) -> CancelCause:
    """What `turn/end` names where a limit ended the turn."""
    return {"kind": "hook", "reason": f"limit:{limit}"}
