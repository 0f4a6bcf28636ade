"""A shell command that runs in the background, and how its end is judged."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from dsh.capabilities.shell import SandboxReport, ShellDelta, ShellStatus
from dsh.capabilities.subprocess import Captured, ExitStatus, ProcessHandle, SpawnError
from dsh.capabilities.terminal_text import shown, unfinished
from dsh.kernel.task import retrieve


class Verdict(msgspec.Struct, frozen=True):
    """What a shell that confines knows of a command that has ended."""

    sandbox: SandboxReport | None = None
    failure: str | None = None
    """The command was not run at all, and why."""


Judge = Callable[[ExitStatus, str], Verdict]
"""Given how it ended and what is in memory of its standard error."""


def no_judge(status: ExitStatus, stderr: str) -> Verdict:
    return Verdict()


class BackgroundCommand:
    """Implements `dsh.capabilities.shell.ShellProcess`."""

    def __init__(self, process: ProcessHandle, judge: Judge = no_judge) -> None:
        self._process = process
        self._judge = judge
        self._end: ExitStatus | None = None
        self._verdict = Verdict()
        self._over = asyncio.get_running_loop().create_task(self._settle(), name=f"command {process.pid}")
        self._over.add_done_callback(retrieve)

    async def _settle(self) -> None:
        try:
            end = await self._process.done
            self._verdict = self._judge(end, self._process.stderr.read().text)
        except SpawnError as error:
            end = ExitStatus(exit_code=None, signal=None)
            self._verdict = Verdict(failure=error.message)
        self._end = end

    @property
    def status(self) -> ShellStatus:
        if self._verdict.failure is not None:
            return "failed"
        if self._end is None:
            return "running"
        return "completed" if self._end.exit_code is not None else "killed"

    @property
    def exit_code(self) -> int | None:
        return self._end.exit_code if self._end is not None else None

    @property
    def signal(self) -> str | None:
        return self._end.signal if self._end is not None else None

    @property
    def left_running(self) -> bool:
        """Processes of the command live on after its end."""
        return self._end is not None and self._end.left_running

    @property
    def sandbox(self) -> SandboxReport | None:
        return self._verdict.sandbox

    @property
    def failure(self) -> str | None:
        return self._verdict.failure

    @property
    def done(self) -> Awaitable[None]:
        return asyncio.shield(self._over)

    def read_from(self, stdout: int, stderr: int) -> ShellDelta:
        out, next_out = self._piece(self._process.stdout.read_from(stdout))
        err, next_err = self._piece(self._process.stderr.read_from(stderr))
        text = shown(out)
        if said := shown(err):
            text += f"\n[stderr]\n{said}" if text and not text.endswith("\n") else f"[stderr]\n{said}"
        is_lossy = out.lossy or err.lossy
        return ShellDelta(text, next_out, next_err, is_lossy, out.spill_path, err.spill_path)

    def _piece(self, captured: Captured) -> tuple[Captured, int]:
        """What can be shown already: the start of an escape sequence waits for its rest."""
        held = unfinished(captured.raw) if self._end is None else 0
        if not held:
            return captured, captured.next_offset
        raw = captured.raw[:-held]
        text = raw.decode("utf-8", "replace")
        return msgspec.structs.replace(captured, raw=raw, text=text), captured.next_offset - held

    def kill(self) -> None:
        self._process.terminate()
