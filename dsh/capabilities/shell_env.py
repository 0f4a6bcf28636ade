"""The managed `DSH_*` variables of the commands an agent runs (`spec/capabilities-core.md` §10)."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey
from dsh.session.log import Session


class EnvContributor(msgspec.Struct, frozen=True):
    """Adds variables to each command: their names and descriptions, and a function that gives values."""

    name: str
    variables: Mapping[str, str]
    """`DSH_…` name to description."""
    resolve: Callable[[Session | None], Mapping[str, str]]
    """Values for one call; a name may be left out, an undeclared one is an error."""


class ShellEnv(Protocol):
    """The registry of managed variables."""

    def contribute(self, contributor: EnvContributor) -> None:
        """Add a contributor while the caller is mounted; names and variables are unique."""

    def collect(self, session: Session | None) -> Mapping[str, str]:
        """All managed variables for one call, sorted by name."""


SHELL_ENV: ServiceKey[ShellEnv] = ServiceKey("shellEnv")
