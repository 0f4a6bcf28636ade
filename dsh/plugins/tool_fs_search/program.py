"""Running the search program: which one, with what, and what its end means."""

import asyncio
import contextlib
import os
import re
import resource
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsh.capabilities.subprocess import (
    Collect,
    ExitStatus,
    ProcessHandle,
    SpawnError,
    SpawnSpec,
    Subprocess,
)
from dsh.kernel import CancelToken
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.error import SearchError

FALLBACK_NOTE = (
    "ripgrep was not found, so the slower built-in search was used; its regular expressions are Python's."
)
_COMMON = ("--no-config", "--no-ignore-messages")
"""A host's configuration could run programs, and a broken ignore file is nobody's error here."""

_INVALID = re.compile(
    r"regex parse error|error parsing glob|is not allowed in a regex|regex exceeds size limit"
)
_ONE_PLACE = re.compile(r"\(os error \d+\)$")
_SHOWN_PROBLEMS = 5
MAX_MEMORY_BYTES = 1024 * 1024 * 1024
"""What the search program may hold in memory."""


class Program(msgspec.Struct, frozen=True):
    """The start of an argument vector, and whether it is the stand-in for ripgrep."""

    argv: tuple[str, ...]
    is_fallback: bool = False


def find_program(path: str | None = None, interpreter: str = sys.executable) -> Program:
    """ripgrep on PATH, else beside the interpreter, else the built-in search in a process of its own.

    Args:
        path: search path for `rg`; the environment's `PATH` when unset.
    """
    beside = Path(interpreter).parent / "rg"
    found = shutil.which("rg", path=path) or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is not None:
        return Program((str(Path(found).absolute()),))
    return Program((interpreter, "-I", str(Path(__file__).parent / "fallback.py")), is_fallback=True)


class Output(msgspec.Struct, frozen=True):
    """What a finished search printed. `notes` say what the result lacks."""

    stdout: bytes
    notes: tuple[str, ...] = ()


class Paths(msgspec.Struct, frozen=True):
    """The files of a search, in no order and spelled as the program does."""

    paths: Sequence[str]
    notes: tuple[str, ...] = ()


class SearchProgram:
    """Runs searches with one program, looked for at the first one."""

    def __init__(self, subprocess: Subprocess, config: Config, program: Program | None = None) -> None:
        self._subprocess, self._config, self._program = subprocess, config, program

    async def run(self, arguments: Sequence[str], path: str, cwd: str, signal: CancelToken) -> Output:
        """Search below `path`, which is relative to `cwd`. Nothing in either can become a flag.

        Raises:
            SearchError: see its codes.
        """
        if signal.cancelled:
            raise SearchError("SEARCH_ABORTED", "the search was cancelled")
        await asyncio.to_thread(_check_place, path, cwd)
        if self._program is None:
            self._program = await asyncio.to_thread(find_program)
        program = self._program
        spec = SpawnSpec(
            argv=(*program.argv, *_COMMON, *arguments, "--", path),
            cwd=cwd,
            stdout="pipe",
            stderr=Collect(self._config.stderr_max_bytes),
            grace_ms=self._config.grace_ms,
            signal=signal,
            dies_with_parent=False,
        )
        try:
            process = self._subprocess.spawn(spec)
        except SpawnError as error:
            raise SearchError("SEARCH_FAILED", f"the search could not be started: {error}") from error
        _bound_memory(process.pid)
        stdout, status = await self._output_of(process)
        if signal.cancelled:
            raise SearchError("SEARCH_ABORTED", "the search was cancelled")
        if stdout is None or status.signal == "SIGABRT":  # so it ends when memory runs out
            raise SearchError(
                "SEARCH_RAW_OUTPUT_OVERFLOW",
                f"the search printed more than {self._config.raw_output_max_bytes} bytes; "
                "narrow the pattern, the path or the kinds of files",
            )
        if status.exit_code is None:
            raise SearchError("SEARCH_FAILED", f"the search program was ended by {status.signal}")
        notes = judged(status.exit_code, process.stderr.read().text)
        return Output(stdout, (*notes, FALLBACK_NOTE) if program.is_fallback else notes)

    async def paths(self, arguments: Sequence[str], path: str, cwd: str, signal: CancelToken) -> Paths:
        """Run a search for paths.

        Raises:
            SearchError: see its codes.
        """
        output = await self.run(["--files", "--null", *arguments], path, cwd, signal)
        return Paths([os.fsdecode(name) for name in output.stdout.split(b"\0") if name], output.notes)

    async def _output_of(self, process: ProcessHandle) -> tuple[bytes | None, ExitStatus]:
        """All it printed, None if that is too much: then it is ended at once."""
        pieces: list[bytes] | None = []
        size = 0
        try:
            while piece := await process.reader.read():
                size += len(piece)
                if size > self._config.raw_output_max_bytes:
                    pieces = None
                    process.terminate()
                    break
                if pieces is not None:
                    pieces.append(piece)
            status = await process.finish()
        except BaseException:
            process.terminate()
            raise
        return b"".join(pieces) if pieces is not None else None, status


def _bound_memory(pid: int) -> None:
    """It keeps what it found in a file until it has searched all of it: that may not fill the machine."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has a narrower limit
            resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def judged(exit_code: int, stderr: str) -> tuple[str, ...]:
    """What an exit code and the error output say about a result: notes on what was left out.

    The program ends with 2 whenever anything went wrong on the way. If all that went wrong is that single
    places could not be read, the rest of the result stands.

    Raises:
        SearchError: the pattern is invalid, or the search as a whole failed.
    """
    if exit_code in (0, 1):
        return ()
    problems = [line.strip().removeprefix("rg: ") for line in stderr.splitlines() if line.strip()]
    if problems and all(_ONE_PLACE.search(problem) for problem in problems):
        shown = "; ".join(problems[:_SHOWN_PROBLEMS])
        rest = len(problems) - _SHOWN_PROBLEMS
        return (f"Some places could not be searched: {shown}" + (f"; and {rest} more" if rest > 0 else ""),)
    if exit_code == 2 and _INVALID.search(stderr):
        raise SearchError("SEARCH_INVALID_PATTERN", f"invalid pattern: {' '.join(problems)}")
    why = " ".join(problems) or "it said nothing about why"
    raise SearchError("SEARCH_FAILED", f"the search failed with exit code {exit_code}: {why[:2000]}")


def _check_place(path: str, cwd: str) -> None:
    """Refuse what cannot be searched, and what would be waited on for ever."""
    shown = cwd if path == "." else path
    try:
        mode = os.stat(os.path.join(cwd, path)).st_mode
    except (OSError, ValueError) as error:
        why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise SearchError("SEARCH_FAILED", f'cannot search "{shown}": {why}') from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise SearchError("SEARCH_FAILED", f'cannot search "{shown}": neither a directory nor a regular file')
