"""The working directory: paths on the command line are meant from where dsh was called, then `-C` counts."""

import os

from dsh.cli.argv import Invocation
from dsh.errors import UsageError


def settled(invocation: Invocation) -> Invocation:
    """Make the paths of the launcher absolute, then enter the directory of `-C`.

    Raises:
        UsageError: the invoking directory is gone, or the directory cannot be entered.
    """
    if not (invocation.patches or invocation.cwd or invocation.action == "boot"):
        return invocation
    try:
        base = os.getcwd()  # noqa: PTH109 -- pathlib costs time that not every branch has
    except OSError as error:
        raise UsageError(f"the current directory is gone: {error.strerror}") from error
    patches = tuple(os.path.join(base, patch) for patch in invocation.patches)  # noqa: PTH118
    if invocation.cwd is not None:
        enter(invocation.cwd)
    return invocation._replace(patches=patches)


def enter(directory: str) -> None:
    """Make `directory` the working directory.

    Raises:
        UsageError: it does not exist, is no directory, or may not be entered.
    """
    try:
        os.chdir(directory)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot work in {directory!r}: {reason}") from error
