"""For tests of what a user who is not root may not do, whoever runs the suite."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

NOBODY = 65_534


def reachable() -> str:
    """A directory for temporary files that the unprivileged user can come to."""
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        place = Path(name).resolve()
        if os.geteuid() != 0 or all(path.stat().st_mode & 0o001 for path in (place, *place.parents)):
            return name
    raise AssertionError("no directory for temporary files is open to other users")


@contextmanager
def unprivileged() -> Iterator[None]:
    """For the length of the block this process is not root's."""
    is_root = os.geteuid() == 0
    if is_root:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, 0, 0)


def as_nobody(test: Callable[P, None]) -> Callable[P, None]:
    """Run the body of a test unprivileged; what pytest does around it opens files that only root may."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with unprivileged():
            test(*args, **kwargs)

    return run
