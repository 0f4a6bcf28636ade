"""What holds for every test: hypothesis knows no clock, parallel workers collect the same tests, and no
process is left at the end.
"""

import os
import sys
import uuid

import pytest
from hypothesis import HealthCheck, settings

from dsh.testing import workspace
from tests.leftovers import MARK, left_over

settings.register_profile(
    "dsh",
    deadline=None,  # how long an example takes says how busy the machine is, not whether the law holds
    suppress_health_check=[HealthCheck.too_slow],
    database=None,  # the checkout may be another's; what repeats a failure is printed with it
    print_blob=True,
)
settings.load_profile("dsh")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names parameters that are functions by their names: pytest's own id of a function holds its address."""
    return getattr(val, "__qualname__", None) if callable(val) else None


def pytest_configure(config: pytest.Config) -> None:
    """Mark this run, so that what it starts can be told from the rest of the machine's processes."""
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = uuid.uuid4().hex
    pytest.MonkeyPatch().setattr(workspace, "KEPT", (*workspace.KEPT, MARK))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that leaves processes behind has failed. Its workers have ended by now."""
    if hasattr(session.config, "workerinput") or not sys.platform.startswith("linux"):
        return
    left = left_over(os.environ[MARK])
    if not left:
        return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for pid, command in left.items():
        sys.stderr.write(f"\nleft running by the tests: {pid} {command[:300]}\n")
