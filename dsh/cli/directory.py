"""The working directory: paths on the command line are meant from where dsh was called, then `-C` counts."""

import os

from dsh.cli.argv import Invocation
from dsh.errors import UsageError


def settled(invocation: Invocation) -> Invocation:
    """Make the launcher's paths and a relative `$DSH_HOME` absolute, then enter the directory of `-C`.

    Raises:
        UsageError: the invoking directory is gone, or the directory cannot be entered.
    """
    if not (invocation.patches or invocation.cwd or invocation.locked or invocation.action == "boot"):
        return invocation
    try:
        base = os.getcwd()  # noqa: PTH109 -- pathlib costs time that not every branch has
    except OSError as error:
        raise UsageError(f"the current directory is gone: {error.strerror}") from error
    patches = tuple(os.path.join(base, patch) for patch in invocation.patches)  # noqa: PTH118
    locked = os.path.join(base, invocation.locked) if invocation.locked else None  # noqa: PTH118
    home = os.environ.get("DSH_HOME", "").strip()
    if home and not home.startswith("~"):
        os.environ["DSH_HOME"] = os.path.join(base, home)  # noqa: PTH118
    if invocation.cwd is not None:
        enter(invocation.cwd)
    return invocation._replace(patches=patches, locked=locked)


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
