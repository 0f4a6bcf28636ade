"""The program with other bounds on how long it waits for what never ends.

Long ones show that something ends without them; short ones spare the suite the wait.
"""

import sys

from dsh.agent.grace import GRACE_S
from dsh.cli.process import HEARTBEAT_S, LIMIT_S

PROGRAM = """
import sys
from functools import partial
from dsh.agent import grace
from dsh.cli import process
from dsh.cli.entry import main
grace.GRACE_S = {grace_s}
process.Watchdog = partial(process.Watchdog, heartbeat_s={heartbeat_s}, limit_s={limit_s})
sys.exit(main())
"""


def bounded(
    *, grace_s: float = GRACE_S, heartbeat_s: float = HEARTBEAT_S, limit_s: float = LIMIT_S
) -> tuple[str, ...]:
    """What to start in place of the program; see the constants for the meanings."""
    code = PROGRAM.format(grace_s=grace_s, heartbeat_s=heartbeat_s, limit_s=limit_s)
    return (sys.executable, "-P", "-c", code)
