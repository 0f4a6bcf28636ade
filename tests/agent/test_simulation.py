"""Random runs of the whole loop on a fake clock: whatever happens when, log and requests are right."""

import asyncio

from hypothesis import given, settings

from dsh.testing.clock import VirtualTimeLoop
from tests.agent.simulation.check import check
from tests.agent.simulation.plan import Plan, plans
from tests.agent.simulation.world import Record, play

EXAMPLES = 150


def simulate(plan: Plan) -> Record:
    """Play a plan in a loop of its own and judge it."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        record = runner.run(play(plan))
    check(record)
    return record


@settings(max_examples=EXAMPLES)
@given(plans)
def test_every_run_leaves_a_right_log(plan: Plan) -> None:
    simulate(plan)
