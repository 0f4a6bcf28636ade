"""`--dump-config` and `--dump-default-config`: the composed rows as text. Nothing is booted or evaluated."""

from pathlib import Path

from dsh.cli.argv import Invocation
from dsh.cli.stream import notice
from dsh.composition.compose import compose
from dsh.composition.dump import dump
from dsh.composition.home import home_path


def dumped(invocation: Invocation) -> str:
    """The document; what did not fit goes to standard error.

    Raises:
        CompositionError: unknown profile, or a file that cannot be read or applied.
    """
    composition = compose(
        invocation.profile,
        [Path(patch) for patch in invocation.patches],
        home_path(),
        default_only=invocation.action == "dump-default",
    )
    for warning in composition.warnings:
        notice(f"dsh: {warning}")
    return dump(composition)
