"""What the launcher tells the rows: environment, arguments, home, the end of the boot, and how to end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from dsh.errors import DshError
from dsh.kernel import Event, ServiceKey

EnvSource = Literal["process", "project-env", "user-env"]


class EnvValue(Protocol):
    """One variable of the launch environment and where it came from."""

    @property
    def value(self) -> str: ...

    @property
    def source(self) -> EnvSource: ...

    @property
    def path(self) -> str | None:
        """The `.env` file, where it came from one."""


class LaunchEnvironment(Protocol):
    """The environment as it was at start: inherited over project `.env` over home `.env`. Never changes."""

    def get(self, name: str) -> EnvValue | None: ...

    def get_from(self, name: str, sources: tuple[EnvSource, ...]) -> EnvValue | None:
        """The same, from these sources only."""

    def mapping(self) -> Mapping[str, str]:
        """All names and values."""


class CmdlineArgs(Protocol):
    """Everything behind the launcher's own flags, verbatim. Reading it consumes nothing."""

    def get(self) -> tuple[str, ...]: ...


class AppExit(Protocol):
    """Ask for the bounded end of the process; the first code wins, later calls join."""

    def __call__(self, code: int) -> None: ...


class AppOutput(Protocol):
    """The two streams of the process. Standard output belongs to the app's answer and to nothing else."""

    def answer(self, text: str) -> None:
        """Write to standard output, in UTF-8, whole, before returning. Raises `OutputError`."""

    def notice(self, text: str) -> None:
        """Write one line to standard error."""


class HomePath(Protocol):
    """An absolute path under `$DSH_HOME`, the home itself without segments. Creates nothing."""

    def __call__(self, *segments: str) -> Path: ...


class Boot(Protocol):
    """The start of the tree. An app waits for `ready` before it does anything that can be seen."""

    async def ready(self) -> None:
        """Return once every row is mounted and the boot audit has passed; never, if it fails."""


class Interrupt(msgspec.Struct, frozen=True):
    """A signal reached the process: end in order. `cause` goes into the log as the turn's reason."""

    signal: Literal["SIGINT", "SIGTERM"]
    exit_code: int
    """130 or 143."""
    cause: Mapping[str, Any]
    """`{kind:"user"}` or `{kind:"hook", reason:"signal:SIGTERM"}` (`design.md` §10.2)."""


def tell(output: AppOutput, error: Exception) -> None:
    """Say in one line why an app failed, and in another what to do, where the error knows."""
    text = " ".join(str(error).split()) or type(error).__name__
    code, hint = (error.code, error.hint) if isinstance(error, DshError) else ("", "")
    if isinstance(error, DshError):
        error.is_told = True
    output.notice(f"dsh: {code}: {text}" if code else f"dsh: {text}")
    if hint:
        output.notice(f"hint: {hint}")


LAUNCH_ENVIRONMENT: ServiceKey[LaunchEnvironment] = ServiceKey("launchEnvironment")
CMDLINE_ARGS: ServiceKey[CmdlineArgs] = ServiceKey("cmdlineArgs")
APP_EXIT: ServiceKey[AppExit] = ServiceKey("appExit")
APP_OUTPUT: ServiceKey[AppOutput] = ServiceKey("appOutput")
HOME_PATH: ServiceKey[HomePath] = ServiceKey("dshHomePath")
BOOT: ServiceKey[Boot] = ServiceKey("boot")

APP_INTERRUPT: Event[Interrupt, bool] = Event("app/interrupt", "bail")
"""Answered with True by an app that will end in order and call `appExit` itself."""
