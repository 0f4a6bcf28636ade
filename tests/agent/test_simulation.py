"""Random runs of the whole loop on a fake clock: whatever happens when, log and requests are right."""

import asyncio

import pytest
from hypothesis import given, settings

from dsh.testing.clock import VirtualTimeLoop
from tests.agent.simulation.check import check
from tests.agent.simulation.plan import Plan, plans
from tests.agent.simulation.record import Record
from tests.agent.simulation.world import play

EXAMPLES = 150


def simulate(plan: Plan) -> Record:
    """Play a plan in a loop of its own and judge it."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            record = runner.run(play(plan))
        except SystemExit as error:
            raise AssertionError("somebody's exit has ended the process") from error
    check(record)
    return record


@pytest.mark.timeout(600)  # to make a plan that fails small takes its time
@settings(max_examples=EXAMPLES)
@given(plans)
def test_every_run_leaves_a_right_log(plan: Plan) -> None:
    simulate(plan)
