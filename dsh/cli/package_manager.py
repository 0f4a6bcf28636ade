"""Runs the package manager that installs a profile's packages: pip of this Python, else uv."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple

from dsh.composition.requirement import is_archive
from dsh.errors import DshError, UsageError

Name = Literal["pip", "uv"]
MISSING = 127
"""What a command exits with whose package manager does not exist, as a shell would."""
_ELSEWHERE = frozenset(
    (
        "PIP_TARGET",
        "PIP_USER",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_REPORT",
        "PIP_DRY_RUN",
        "PIP_REQUIRE_VIRTUALENV",
    )
)
"""Variables that would send packages somewhere else."""
END_S = 10.0
"""How long the package manager may take to end once this process was told to."""


class ManagerMissing(DshError):
    """There is no package manager."""

    exit_code = MISSING


class Terminated(BaseException):
    """This process was told to end (SIGTERM)."""


class PackageManager(NamedTuple):
    """One way to install packages."""

    name: Name
    command: tuple[str, ...]
    """The first words of `install`."""

    def install(self, words: list[str], *, target: Path, constraints: Path, places: Sequence[str]) -> int:
        """Install into an empty folder; answers the package manager's exit code.

        Args:
            places: the paths and URLs among the words. They are built and fetched anew: pip keeps what it
                built of an archive, uv of a folder too, and would not look whether the code is another.

        What it says goes to standard error; standard output stays ours. It runs in the current folder, from
        which relative paths among the words are meant.

        Raises:
            Terminated, KeyboardInterrupt: this process was told to end; the package manager has ended.
        """
        environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        line = [*self.command, "--target", str(target), "--constraint", str(constraints), *words]
        if self.name == "uv" and places:
            line.append("--no-cache")
        elif any(map(is_archive, places)):
            line.append("--no-cache-dir")
        with tempfile.TemporaryDirectory(prefix="dsh-plugin-", ignore_cleanup_errors=True) as scratch:
            environment["TMPDIR"] = scratch  # one that is told to end leaves what it was about where it is
            return _run(line, environment)


def find_manager(wanted: str | None) -> PackageManager:
    """The package manager of that name; without a name pip where this Python has it, else uv.

    Raises:
        ManagerMissing: it does not exist.
        UsageError: nobody knows one of that name.
    """
    if wanted not in (None, "pip", "uv"):
        raise UsageError(f"no package manager {wanted!r}", hint="--manager takes pip or uv")
    uv = shutil.which("uv")
    if wanted != "uv" and importlib.util.find_spec("pip") is not None:
        flags = ("--disable-pip-version-check", "--no-warn-script-location")
        return PackageManager("pip", (sys.executable, "-m", "pip", "install", *flags))
    if wanted != "pip" and uv is not None:
        return PackageManager("uv", (uv, "pip", "install", "--python", sys.executable))
    what = "neither pip nor uv is" if wanted is None else f"{wanted} is not"
    raise ManagerMissing(
        f"{what} there to install packages with",
        hint=f"{sys.executable} -m ensurepip installs pip; uv: https://docs.astral.sh/uv",
    )


@contextmanager
def terminable() -> Iterator[None]:
    """Turn the first SIGTERM during the block into `Terminated`, so that what was begun is undone."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise Terminated


def _run(line: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end, and end it where this process is told to; a signal waits until it can."""
    group = None if _has_terminal() else 0
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        with subprocess.Popen(
            line,
            stdout=2,
            env=environment,
            process_group=group,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        ) as process:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                return process.wait()
            except BaseException:
                _end(process, with_group=group is not None)
                raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _has_terminal() -> bool:
    """Whether there is a terminal: a package manager may ask there, and hears of Ctrl-C by itself."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]", *, with_group: bool) -> None:
    """End it; with its group also what it started, such as a build, which does not end by itself."""

    def send(number: int) -> None:
        with suppress(ProcessLookupError):
            if with_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    send(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    send(signal.SIGKILL)
