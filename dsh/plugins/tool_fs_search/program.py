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
CUT_NOTE = "The search was stopped before it had seen all files; narrow the pattern or the path."
CUT_SHARE = 0.9
"""How much of its time a search has that found something; the rest is for showing it."""
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

    def cut_at(self, share: float = CUT_SHARE) -> float:
        """When a search that begins now has had this share of its time, by the clock of the loop."""
        return asyncio.get_running_loop().time() + self._config.timeout_ms * share / 1000

    async def run(
        self,
        arguments: Sequence[str],
        path: str,
        cwd: str,
        signal: CancelToken,
        cut_at: float,
        *,
        record_end: bytes = b"\n",
    ) -> Output:
        """Search below `path`, which is relative to `cwd`. Nothing in either can become a flag.

        Args:
            cut_at: from then on what was found is the result, and a note says so; one that has found nothing
                goes on until its deadline, see `cut_at`.
            record_end: what each record ends with.

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
        printed = await self._printed(process, cut_at)
        status = printed.status
        if signal.cancelled:
            raise SearchError("SEARCH_ABORTED", "the search was cancelled")
        if printed.is_too_much or status.signal == "SIGABRT":  # so it ends when memory runs out
            what = (
                f"printed more than {self._config.raw_output_max_bytes} bytes"
                if printed.is_too_much
                else f"needed more than {MAX_MEMORY_BYTES} bytes of memory"
            )
            raise SearchError(
                "SEARCH_RAW_OUTPUT_OVERFLOW",
                f"the search {what}; narrow the pattern, the path or the kinds of files",
            )
        if status.exit_code is not None:
            stdout = printed.stdout
            notes = judged(status.exit_code, process.stderr.read().text, is_fallback=program.is_fallback)
        elif printed.is_cut:
            stdout = printed.stdout[: printed.stdout.rfind(record_end) + 1]
            notes = (CUT_NOTE,)
        else:
            raise SearchError("SEARCH_FAILED", f"the search program was ended by {status.signal}")
        return Output(stdout, (*notes, FALLBACK_NOTE) if program.is_fallback else notes)

    async def paths(
        self, arguments: Sequence[str], path: str, cwd: str, signal: CancelToken, cut_at: float
    ) -> Paths:
        """Run a search for paths.

        Raises:
            SearchError: see its codes.
        """
        listing = ["--files", "--null", *arguments]
        output = await self.run(listing, path, cwd, signal, cut_at, record_end=b"\0")
        return Paths(await asyncio.to_thread(_names, output.stdout), output.notes)

    async def _printed(self, process: ProcessHandle, cut_at: float) -> "_Printed":
        """What it prints until it ends; it is ended where that is too much or takes too long."""
        loop = asyncio.get_running_loop()
        pieces: list[bytes] = []
        size, is_cut = 0, False

        def cut() -> None:
            nonlocal is_cut
            if pieces:
                is_cut = True
                process.terminate()

        timer = loop.call_at(cut_at, cut)
        try:
            while size <= self._config.raw_output_max_bytes and (piece := await process.reader.read()):
                size += len(piece)
                pieces.append(piece)
                if loop.time() >= cut_at:
                    cut()
            if is_too_much := size > self._config.raw_output_max_bytes:
                process.terminate()
            status = await process.finish()
        except BaseException:
            process.terminate()
            raise
        finally:
            timer.cancel()
        return _Printed(b"".join(pieces), status, is_cut, is_too_much)


def _names(stdout: bytes) -> list[str]:
    return [os.fsdecode(name) for name in stdout.split(b"\0") if name]


class _Printed(msgspec.Struct, frozen=True):
    """What the search program printed, and how it ended."""

    stdout: bytes
    status: ExitStatus
    is_cut: bool
    is_too_much: bool


def _bound_memory(pid: int) -> None:
    """It keeps what it found in a file until it has searched all of it: that may not fill the machine."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has a narrower limit
            resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def judged(exit_code: int, stderr: str, *, is_fallback: bool = False) -> tuple[str, ...]:
    """What an exit code and the error output say about a result: notes on what was left out.

    The program ends with 2 whenever anything went wrong on the way. If all that went wrong is that single
    places could not be read, the rest of the result stands. With 1 it ends when it found nothing; the
    stand-in never does, so that an interpreter that crashes is not taken for that.

    Raises:
        SearchError: the pattern is invalid, or the search as a whole failed.
    """
    if exit_code == 0 or (exit_code == 1 and not is_fallback):
        return ()
    problems = [line.strip().removeprefix("rg: ") for line in stderr.splitlines() if line.strip()]
    if exit_code == 1:
        problems = problems[-1:]  # of a traceback
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
