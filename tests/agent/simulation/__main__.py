"""A long hunt: `python -m tests.agent.simulation [EXAMPLES]`."""

import logging
import sys

from hypothesis import given, settings

from tests.agent.simulation.plan import Plan, plans
from tests.agent.test_simulation import simulate


def main() -> None:
    """Try that many random plans; the first that fails is made small and shown."""
    logging.disable()  # the plans are full of what is warned of
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000

    @settings(max_examples=examples, deadline=None, database=None)
    @given(plans)
    def hunt(plan: Plan) -> None:
        simulate(plan)

    hunt()
    sys.stdout.write(f"{examples} runs, all right\n")


if __name__ == "__main__":
    main()
