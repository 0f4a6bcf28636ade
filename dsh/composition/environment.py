"""The launch environment: what was inherited, over the project's `.env`, over the home's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

EnvSource = Literal["process", "project-env", "user-env"]


class EnvValue(NamedTuple):
    """One variable and where it came from."""

    value: str
    source: EnvSource
    path: str | None = None


class Environment:
    """The environment as it was at start. Implements `dsh.capabilities.launch.LaunchEnvironment`."""

    def get(self, name: str) -> EnvValue | None:
        raise NotImplementedError

    def get_from(self, name: str, sources: tuple[EnvSource, ...]) -> EnvValue | None:
        raise NotImplementedError

    def mapping(self) -> Mapping[str, str]:
        raise NotImplementedError


def load_environment(cwd: Path, home: Path, inherited: Mapping[str, str]) -> tuple[Environment, list[str]]:
    """Read `<cwd>/.env` and `<home>/.env` (skipped when both are one folder).

    Nothing is set in the process: call `export` for that.

    Returns:
        The environment, and warnings to print as `dsh: {warning}`.

    Raises:
        CompositionError: a file sets a name that only the launching environment may set.
    """
    raise NotImplementedError


def export(environment: Environment, environ: dict[str, str]) -> None:
    """Add what the files set to `environ` (such as `os.environ`); what is there, also if empty, stays."""
    raise NotImplementedError
