"""How a child is started: its pipes, the launcher that lets it die with us, and why it could not be."""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

from dsh.capabilities import guard, launcher
from dsh.capabilities.subprocess import SpawnError, SpawnSpec, TerminalSpec

HAS_LAUNCHER = sys.platform == "linux"
"""Elsewhere no system call ties a child to our life."""


def started(spec: SpawnSpec, env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int | None]:
    """The child, and a descriptor that tells whether the launcher could start the program (`failure`).

    Raises:
        SpawnError: it could not be started; nothing runs.
    """
    if not (spec.dies_with_parent and HAS_LAUNCHER):
        return _popen(spec, list(spec.argv), env, spec.pass_fds), None
    _check_program(spec, env)
    report, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        argv = launcher.command(list(spec.argv), status_fd=theirs)
        return _popen(spec, argv, env, (*spec.pass_fds, theirs)), report
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(theirs)


def started_on_terminal(spec: TerminalSpec, env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """The child, the descriptor of the terminal's other side, and that of the launcher's report.

    Raises:
        SpawnError: it could not be started; nothing runs.
    """
    _check_program(spec, env)
    opened: list[int] = []
    try:
        ours, theirs = os.openpty()
        opened += [ours, theirs]
        _make_plain(ours, spec)
        report, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        opened += [report, telling]
        argv = launcher.command(list(spec.argv), status_fd=telling, has_terminal=True)
        popen = subprocess.Popen(
            argv,
            cwd=spec.cwd,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            pass_fds=(telling,),
        )
        opened = [theirs, telling]
        return popen, ours, report
    except (OSError, ValueError) as error:
        raise _error(spec, _why(error, spec)) from error
    finally:
        for fd in opened:
            os.close(fd)


def _make_plain(terminal: int, spec: TerminalSpec) -> None:
    os.set_blocking(terminal, False)
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", spec.rows, spec.columns, 0, 0))


def failure(report: int) -> str | None:
    """Why the launcher that has exited did not start the program; None if it did."""
    try:
        raw = os.read(report, 1 << 16)
    except OSError:
        raw = b""
    return launcher.read_status(raw)


def _popen(
    spec: SpawnSpec, argv: list[str], env: dict[str, str], pass_fds: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    ours = theirs = None
    try:
        ours, theirs = os.pipe()
        guard.expect(theirs)
        popen = subprocess.Popen(
            argv,
            cwd=spec.cwd,
            env=env,
            stdin=subprocess.DEVNULL if spec.stdin == "ignore" else subprocess.PIPE,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            pass_fds=pass_fds,
        )
        popen.stdout, ours = os.fdopen(ours, "rb", buffering=0), None
        return popen
    except (OSError, ValueError) as error:
        raise _error(spec, _why(error, spec)) from error
    finally:
        for fd in (ours, theirs):
            if fd is not None:
                os.close(fd)


def _check_program(spec: SpawnSpec | TerminalSpec, env: dict[str, str]) -> None:
    """Say at once what the launcher could only say later."""
    name = spec.argv[0]
    try:
        if "/" not in name:
            if shutil.which(name, path=env.get("PATH", os.defpath)) is None:
                raise _error(spec, "there is no such program on PATH")
            return
        path = Path(spec.cwd, name)
        mode = path.stat().st_mode  # raises where there is none
        if mode & 0o170000 != 0o100000 or not os.access(path, os.X_OK):
            raise _error(spec, "permission denied")
    except OSError as error:
        raise _error(spec, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _error(spec, _why(error, spec)) from error


def _error(spec: SpawnSpec | TerminalSpec, why: str) -> SpawnError:
    return SpawnError(f"cannot start {spec.argv[0]!r}: {why}")


def _why(error: OSError | ValueError, spec: SpawnSpec | TerminalSpec) -> str:
    if isinstance(error, UnicodeError):
        return "an argument or a variable is not valid Unicode"
    if isinstance(error, ValueError):
        return "an argument or a variable holds a NUL character"
    what = (error.strerror or str(error)).lower()
    if error.filename == spec.cwd:
        return f"the directory {spec.cwd!r} cannot be entered: {what}"
    if error.errno == errno.ENOENT:
        return what if "/" in spec.argv[0] else "there is no such program on PATH"
    if error.errno == errno.E2BIG:
        size = max(len(os.fsencode(argument)) for argument in spec.argv)
        return f"an argument of {size} bytes is too long for the system; put the text into a file"
    return what
