"""`--dump-config` and `--dump-default-config`: the composed rows as text. Nothing is booted or evaluated.

What only a lock needs is loaded for a lock.
"""

from pathlib import Path

from dsh.cli.argv import Invocation
from dsh.cli.stream import notice
from dsh.composition.compose import compose
from dsh.composition.dump import dump
from dsh.composition.home import home_path
from dsh.composition.row import INCLUDE


def dumped(invocation: Invocation) -> str:
    """The document; what did not fit goes to standard error.

    Raises:
        CompositionError: unknown profile, a file that cannot be read or applied (one that is included for
            sure, too), or what is composed is not
            what `--locked` asks for.
    """
    home = home_path()
    default_only = invocation.action == "dump-default"
    composition = compose(
        invocation.profile,
        [Path(patch) for patch in invocation.patches],
        home,
        default_only=default_only,
    )
    for warning in composition.warnings:
        notice(f"dsh: {warning}")
    if not default_only and any(inner.name == INCLUDE for row in composition.rows for inner in row.walk()):
        from dsh.composition.mount.included import warnings_of_includes

        for warning in warnings_of_includes(composition.rows):
            notice(f"dsh: {warning}")
    if invocation.locked is not None:
        from dsh.composition.lock.document import require_locked

        require_locked(composition, home, Path(invocation.locked))
    if invocation.is_lock:
        from dsh.composition.lock.document import lock_text

        return lock_text(composition, home)
    return dump(composition)
