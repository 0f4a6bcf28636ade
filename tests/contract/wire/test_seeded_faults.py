"""Hundreds of faults in one session and in many: each turn ends as the policy says, after its waits."""

import random

import pytest

from dsh.session.verify.log import verify
from tests.agent.kit import ends
from tests.aio import aio_in_virtual_time
from tests.contract.wire.recovery import (
    ANSWERED,
    FINAL,
    PASSING,
    Expected,
    Loop,
    code_of,
    expected_turns,
    looped,
    plan_of,
)
from tests.contract.wire.wires import Wire, over_wires

JITTER = 0.1


def script_of(seed: int, length: int) -> list[str]:
    """A script of mostly faults that may pass."""
    rng = random.Random(seed)
    kinds = [(PASSING, 7), (FINAL, 1), (ANSWERED, 3)]
    chosen = rng.choices([names for names, _ in kinds], [weight for _, weight in kinds], k=length)
    return [rng.choice(names) for names in chosen]


async def check_turn(it: Loop, turn: Expected, number: int) -> None:
    """Run one turn and compare it with what the policy makes of its answers."""
    first, asked = it.agent.session.length, len(it.sent)
    await it.prompt(f"task {number}")
    where = f"turn {number}: {turn}"

    assert len(it.sent) - asked == len(turn.behaviours), where
    end = ends(it.agent.session)[-1]
    assert (end["kind"], end.get("error", {}).get("code", "")) == (turn.kind, turn.code), where
    rows = it.rows("llm/retry", first)
    assert [(row["step"], row["retry"]) for row in rows] == [(s, n) for s, n, _ in turn.retries], where
    started = [(row["step"], row["retry"]) for row in it.rows("llm/retry-started", first)]
    assert started == [(s, n) for s, n, _ in turn.retries], where
    failed = [code for code in (code_of(it.wire, b) for b in turn.behaviours) if code]
    assert [row["failure"]["code"] for row in rows] == failed[: len(rows)], where
    for row, (_, _, wait_ms) in zip(rows, turn.retries, strict=True):
        exact = "providerRetryAfterMs" in row["failure"]
        spread = 0 if exact else wait_ms * JITTER
        assert wait_ms - spread <= row["delayMs"] <= min(wait_ms + spread, 10_000), where
    answers = sum(not code_of(it.wire, b) for b in turn.behaviours)
    assert len(it.rows("assistant/message", first)) == answers, where
    chains = {(row["step"], row["retryId"]) for row in rows}
    assert len(chains) == len({step for step, _ in chains}), "one chain of retries a step"


@over_wires
@pytest.mark.parametrize("budget", [2])
@aio_in_virtual_time
async def test_hundreds_of_faults_in_one_session_end_turn_by_turn_as_the_policy_says(
    wire: Wire, budget: int
) -> None:
    script = script_of(20, 500)
    turns = list(expected_turns(wire, script, budget))
    plans = [plan_of(wire, behaviour) for behaviour in script]
    policy = {"maxRetries": budget, "backoff": {"jitterRatio": JITTER}}
    async with looped(wire, plans, policy) as it:
        for number, turn in enumerate(turns, 1):
            await check_turn(it, turn, number)

        assert sum(bool(code_of(wire, b)) for turn in turns for b in turn.behaviours) > 300
        assert {turn.kind for turn in turns} == {"completed", "error", "max-tokens"}
        assert verify(it.agent.session).findings == ()


@over_wires
@pytest.mark.parametrize("budget", [0, 1, 5])
@aio_in_virtual_time
async def test_many_sessions_of_a_few_faults_each_do_so_too(wire: Wire, budget: int) -> None:
    for seed in range(15):
        script = script_of(1000 * budget + seed, 20)
        turns = list(expected_turns(wire, script, budget))
        policy = {"maxRetries": budget, "backoff": {"jitterRatio": JITTER}}
        async with looped(wire, [plan_of(wire, behaviour) for behaviour in script], policy) as it:
            for number, turn in enumerate(turns, 1):
                await check_turn(it, turn, number)
