"""What became of a confined command: facts from the runner's status pipe, and what its words suggest."""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dsh.capabilities.launcher import read_status
from dsh.capabilities.sandbox import Confined

MAX_STATUS_BYTES = 1 << 16


class StatusPipe:
    """The pipe into which a runner writes. The child inherits `fd`; read it once the child has ended."""

    def __init__(self) -> None:
        self._reading, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_open = True

    def close_writing(self) -> None:
        """The child has been started. Idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self.fd)

    def read(self) -> bytes:
        """All that was written. The pipe is closed afterwards; a second call answers nothing."""
        self.close_writing()
        if self._reading < 0:
            return b""
        try:
            return b"".join(self._pieces())
        finally:
            os.close(self._reading)
            self._reading = -1

    def _pieces(self) -> Iterator[bytes]:
        left = MAX_STATUS_BYTES
        with contextlib.suppress(BlockingIOError):  # somebody still holds the other end
            while left > 0 and (piece := os.read(self._reading, left)):
                left -= len(piece)
                yield piece


@contextmanager
def status_pipe() -> Iterator[StatusPipe]:
    """A pipe that is closed at the end whatever happens."""
    pipe = StatusPipe()
    try:
        yield pipe
    finally:
        pipe.read()


class ConfinedEnd(msgspec.Struct, frozen=True):
    """The judgement."""

    failure: str | None = None
    """The runner failed before the command ran, and its words."""
    denied: bool = False
    """The command failed and its standard error says that the sandbox refused something."""


def judge(
    confined: Confined, status: bytes, *, exit_code: int | None, was_killed: bool, stderr: str
) -> ConfinedEnd:
    """What became of a command that ran as `confined` says.

    Args:
        status: what came through the status pipe.
        exit_code: that of the runner, None after a death by signal.
        was_killed: by us, or by a signal. Then there is no failure and no denial.
        stderr: what is in memory of standard error.
    """
    if was_killed or exit_code is None:
        return ConfinedEnd()
    if (failure := _failure(confined, status, exit_code, stderr)) is not None:
        return ConfinedEnd(failure=failure)
    lowered = stderr.lower()
    return ConfinedEnd(
        denied=exit_code != 0 and any(words in lowered for words in confined.denial_signatures)
    )


def _failure(confined: Confined, status: bytes, exit_code: int, stderr: str) -> str | None:
    match confined.status:
        case "launcher":
            return read_status(status)
        case "bwrap":
            return None if _has_exit_code(status) else _words_of(stderr, ("bwrap: ",)) or "it told no reason"
        case "none":
            return _words_of(stderr, confined.failure_signatures) if exit_code != 0 else None


def _has_exit_code(status: bytes) -> bool:
    """Whether bubblewrap told the exit code of the command, which it does only if it could start it."""
    for line in status.splitlines():
        with contextlib.suppress(ValueError):
            fact = json.loads(line)
            if isinstance(fact, dict) and "exit-code" in fact:
                return True
    return False


def _words_of(stderr: str, signatures: tuple[str, ...]) -> str | None:
    """The first line that holds one of the signatures."""
    for line in stderr.splitlines():
        lowered = line.lower()
        if lowered.strip() == PARTIAL_NOTICE:
            continue
        if any(words in lowered for words in signatures):
            return line.strip()
    return None


PARTIAL_NOTICE = "landlock-run: partial enforcement (older landlock abi)"
"""A line by which a runner tells of weaker walls; the command has run all the same."""
