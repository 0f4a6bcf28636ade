"""Row `tmux-context`: which tmux pane dsh runs in and what stands beside it, told to the model. In no bundle.

At the first step of a turn tmux is asked, by a fixed command through the shell that changes nothing. Only a
process that really sits at the pane's terminal is told of it, and only what has changed since. Whatever
fails, nothing is told (`spec/capabilities-core.md` §21).
"""

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, NamedTuple

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.agent.last_reading import LastReading, is_fresh, reading, section_of
from dsh.agent.step_context import is_entered, with_context
from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.recorded import is_given
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.session.log import Clock, Session, now_ms
from dsh.unicode import valid

provide = ()

OWNER = "tmux-context"
TIMEOUT_MS = 2_000
MAX_OUTPUT_BYTES = 64 * 1024
MAX_PANES = 20
"""Of one window; those beyond are counted."""
MAX_NAME_CHARS = 100
FIELDS = ("pane_tty", "session_name", "window_index", "window_name", "pane_index", "window_layout")
PANE = "#{pane_index} #{?pane_active,active,inactive} #{pane_width}x#{pane_height} #{pane_current_command}"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    refresh_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMER_MS)] = 0
    """While the last reading is not older than this, in milliseconds, tmux is not asked again."""


class Terminal(NamedTuple):
    """Where this process sits."""

    tty: str
    socket: str
    pane: str


class Panes:
    """The listener. State: the last reading of each session."""

    def __init__(
        self,
        shell: Callable[[], Shell | None],
        refresh_interval_ms: int,
        terminal: Callable[[], Terminal | None],
        clock: Clock = now_ms,
    ) -> None:
        self._shell = shell
        self._refresh_interval_ms = refresh_interval_ms
        self._terminal = terminal
        self._clock = clock
        self._readings = LastReading(OWNER)

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """Add the reading to the first step of a turn, where it is a new one."""
        decision = await following()
        if step.step != 1 or not is_entered(decision, step):
            return decision
        last = self._readings.of(step.agent.session)
        if is_fresh(last, self._clock(), self._refresh_interval_ms):
            return decision
        text = await self._reading(step)
        if text is None or text == section_of(last, OWNER):
            return decision
        return with_context(step, decision, reading(OWNER, text))

    async def _reading(self, step: PreStep) -> str | None:
        terminal, shell = self._terminal(), self._shell()
        if terminal is None or shell is None:
            return None
        try:
            result = await shell.run(_request(terminal, step.agent.session, step))
        except (DshError, OSError):
            return None
        if result.exit_code != 0 or result.timed_out or result.aborted or result.stdout.truncated:
            return None
        return described(result.stdout.text, terminal.tty)


def _request(terminal: Terminal, session: Session, step: PreStep) -> ShellRequest:
    """The question. It is ours and reads only, so it may reach the socket that confined commands may not."""
    tmux = f"tmux -S {shlex.quote(terminal.socket)}"
    pane = shlex.quote(terminal.pane)
    asked = [f"{tmux} display-message -p -t {pane} {shlex.quote('#{' + field + '}')}" for field in FIELDS]
    asked.append(f"{tmux} list-panes -t {pane} -F {shlex.quote(PANE)}")
    root = session.header.cwd or "/"
    return ShellRequest(
        command=" && ".join(asked),
        workdir="/",
        timeout_ms=TIMEOUT_MS,
        sandbox_policy=SandboxPolicy("danger-full-access", root, session.id),
        signal=step.signal,
        max_output_bytes=MAX_OUTPUT_BYTES,
    )


def described(output: str, tty: str) -> str | None:
    """The reading in words; None where the answer is none, or is of another terminal than ours."""
    lines = output.splitlines()
    if len(lines) <= len(FIELDS) or lines[0] != tty:
        return None
    _, session, index, name, pane, layout = map(_shown, lines[: len(FIELDS)])
    panes = [_shown(line) for line in lines[len(FIELDS) :] if line.strip()]
    rest = len(panes) - MAX_PANES
    more = [f"and {rest} more"] if rest > 0 else []
    return "\n".join(
        (
            f"You run in tmux: session {session}, window {index} ({name}), pane {pane}, layout {layout}.",
            "Panes of this window (index, state, size, what runs in it):",
            *(f"- {one}" for one in (*panes[:MAX_PANES], *more)),
        )
    )


def _shown(text: str) -> str:
    """A name that other programs chose, in one line of bounded length."""
    line = "".join(char if char.isprintable() else "\ufffd" for char in valid(text.strip()))
    return line if len(line) <= MAX_NAME_CHARS else f"{line[:MAX_NAME_CHARS]}…"


def own_terminal(environ: Mapping[str, str]) -> Terminal | None:
    """The terminal and pane of this process; None where it has none of either."""
    socket, pane = environ.get("TMUX", "").partition(",")[0], environ.get("TMUX_PANE", "")
    if not socket or not pane:
        return None
    for descriptor in (0, 1, 2):
        try:
            return Terminal(os.ttyname(descriptor), socket, pane)
        except OSError:
            continue
    return None


def apply(ctx: Context, config: Config) -> None:
    if is_given(ctx, kind="plugin", plugin=OWNER):
        return
    panes = Panes(lambda: ctx.get(SHELL), config.refresh_interval_ms, lambda: own_terminal(os.environ))
    ctx.on(AGENT_PRE_STEP, panes.before_step)
