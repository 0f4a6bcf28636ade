"""The options that say where sessions are; a module of its own, so that the help loads nothing else."""

from typing import NamedTuple


class Place(NamedTuple):
    """What `--root` and `--profile` say."""

    root: str = ""
    """A folder of logs or a SQLite database; empty for where the profile keeps them."""
    profile: str = ""
    """Empty for the default one."""
