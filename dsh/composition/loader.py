"""Mounts the rows of a composition on the kernel and says how each of them is."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dsh.composition.audit import RowReport
from dsh.composition.compose import Composition
from dsh.kernel import Context, Service, ServiceKey


class Facts(NamedTuple):
    """What expressions may read, fixed at start."""

    home: Path
    profile: str
    cwd: str
    env: Mapping[str, str]
    """The launch environment, merged (`LaunchEnvironment.mapping()`)."""


class Loader(Service):
    """Service `loader`. Provided by constructing it on the root context; holds the mounted rows."""

    def __init__(self, ctx: Context, facts: Facts) -> None:
        super().__init__(ctx)

    async def load(self, composition: Composition) -> None:
        """Resolve, import and check every enabled row, mount all, and wait until nothing moves.

        All rows start at once; each is loaded when its services are there. Failing bodies and rows
        that wait are no error here: ask `audit`.

        Raises:
            BootError: a row cannot be imported or is wrong; then nothing was mounted.
        """
        raise NotImplementedError

    def audit(self) -> list[RowReport]:
        """Every enabled row that is not active: failed, or pending and what it waits for."""
        raise NotImplementedError

    def require_active(self) -> None:
        """Raise what `audit` found.

        Raises:
            BootError: one line for each failed or pending row.
        """
        raise NotImplementedError


LOADER: ServiceKey[Loader] = ServiceKey("loader")
