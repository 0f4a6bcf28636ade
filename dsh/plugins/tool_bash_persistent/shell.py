"""One shell that lives on between calls: bash on a terminal of its own."""

import asyncio
import contextlib
import secrets

import msgspec

from dsh.capabilities.subprocess import ExitStatus, SpawnError, Subprocess, Terminal, TerminalSpec
from dsh.capabilities.terminal_text import readable
from dsh.kernel import Cancelled, CancelToken
from dsh.plugins.tool_bash_persistent.call import Call, Ran
from dsh.plugins.tool_bash_persistent.protocol import GO, end_in, line_for, prompt_for

ARGV = ("bash", "--noprofile", "--norc", "--noediting", "+m", "-i")
"""Without job control all that it starts is in its own group."""
SCROLLBACK_BYTES = 1 << 20
LOOK_S = 0.2
"""Between two looks at whether a silent command waits for input. Two in a row must say so."""
INTERRUPT_S = 2.0
"""How long a command that waits for input may take to heed an interrupt or the end of its input."""
START_S = 15.0


class PersistentShell:
    """Runs one command at a time. Make it with `open`."""

    def __init__(self, terminal: Terminal, nonce: str, *, max_bytes: int) -> None:
        self._terminal = terminal
        self._nonce = nonce
        self._max_bytes = max_bytes
        self._offset = 0
        self._last_status = 0
        self.is_over = False

    @classmethod
    async def open(
        cls,
        subprocess: Subprocess,
        argv: tuple[str, ...],
        cwd: str,
        env: dict[str, str | None],
        *,
        grace_ms: int,
        max_bytes: int,
    ) -> "PersistentShell":
        """Start a shell. `argv` is `ARGV`, or what confines it.

        Raises:
            SpawnError: it could not be started.
        """
        nonce = secrets.token_hex(16)
        prompts = {"PS1": prompt_for(nonce), "PS2": "", "PROMPT_COMMAND": None, "HISTFILE": "/dev/null"}
        terminal = subprocess.spawn_terminal(
            TerminalSpec(
                argv=argv, cwd=cwd, env={**env, **prompts}, grace_ms=grace_ms, max_bytes=SCROLLBACK_BYTES
            )
        )
        shell = cls(terminal, nonce, max_bytes=max_bytes)
        try:
            await shell._first_prompt()
        except BaseException:
            terminal.terminate()
            raise
        return shell

    async def _first_prompt(self) -> None:
        raw = b""
        try:
            async with asyncio.timeout(START_S):
                while end_in(raw, self._nonce, self._nonce) is None:
                    if not await self._terminal.changed(len(raw)):
                        status = await self._terminal.done
                        said = readable(raw.decode("utf-8", "replace")).strip()
                        raise SpawnError(f"the shell ended at its start with {_told(status)}: {said}")
                    raw = self._terminal.output.read().raw
        except TimeoutError:
            raise SpawnError(f"the shell gave no prompt within {START_S:.0f} s") from None

    async def run(self, command: str, timeout_s: float, token: CancelToken) -> Ran:
        """Run one command and wait for its end, at most so long. If it is cancelled or late, so is the shell.

        Raises:
            Cancelled: by the token.
        """
        call = Call(self._terminal.output, self._max_bytes, secrets.token_hex(16), self._nonce)
        undo = token.on_cancel(lambda _: self.close())
        try:
            async with asyncio.timeout(timeout_s):
                self._terminal.set_lines(False)
                await self._terminal.write(line_for(command, call.nonce, self._last_status))
                ran = await self._follow(call)
        except TimeoutError:
            self.close()
            ran = call.ran("timed-out", is_over=True)
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            undo()
        if token.cancelled:
            raise Cancelled(token.reason)
        return ran

    async def _follow(self, call: Call) -> Ran:
        looks = 0
        while True:
            if (ran := await self._ended(call, LOOK_S)) is not None:
                return ran
            if call.is_silent:
                looks = looks + 1 if self._terminal.waits_for_input() else 0
            if looks >= 2:
                return await self._interrupted(call)

    async def _ended(self, call: Call, wait_s: float) -> Ran | None:
        """What the call came to, if it ends in this time or something is printed."""
        was_started = call.is_started
        has_more = True
        try:
            async with asyncio.timeout(wait_s):
                has_more = await self._terminal.changed(call.offset)
        except TimeoutError:
            pass
        if not call.take() and has_more:
            await asyncio.sleep(LOOK_S / 10)  # at most the start of a character came
        if call.is_started and not was_started:
            self._terminal.set_lines(True)
            await self._terminal.write(GO)
        if (end := call.end) is not None:
            self._last_status = end.status
            return call.ran("completed", exit_code=end.status)
        if has_more:
            return None
        status = await self._terminal.done
        self.is_over = True
        return call.ran("exited", exit_code=status.exit_code, signal=status.signal, is_over=True)

    async def _interrupted(self, call: Call) -> Ran:
        """Nothing can be typed for the command: interrupt it, then end its input, then end the shell."""
        for key in (b"\x03", b"\x04"):
            await self._terminal.write(key)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERRUPT_S):
                    while (ran := await self._ended(call, LOOK_S)) is None:
                        continue
                    return msgspec.structs.replace(ran, outcome="waiting", exit_code=None, signal=None)
        self.close()
        return call.ran("waiting", is_over=True)

    def close(self) -> None:
        """End the shell and all that it started."""
        self.is_over = True
        self._terminal.terminate()

    async def wait_closed(self) -> None:
        self.close()
        await self._terminal.wait_for_exit()


def _told(status: ExitStatus) -> str:
    return f"signal {status.signal}" if status.signal else f"exit code {status.exit_code}"
