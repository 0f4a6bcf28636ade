"""Row `headless-runner`: does one task and prints the answer.

It makes an agent, gives it the task, waits until all is quiet, flushes, prints. The order is the point: the
log is durable before a word is printed, and the end is asked for after the answer is out
(`spec/front-ends.md` §1.3, §13).
"""

import asyncio
import contextlib
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from dsh.agent.contract import Agent, AgentOptions, CancelCause, CreateAgent, RunLimits
from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.agent.model_selection import SelectedModel
from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.launch import APP_EXIT, APP_INTERRUPT, APP_OUTPUT, BOOT, AppOutput, Interrupt, tell
from dsh.composition.home import home_label
from dsh.errors import CredentialError, DshError
from dsh.kernel import CancelToken, Context, ServiceKey
from dsh.kernel.foreign import contained
from dsh.llm.failure import CREDENTIAL_CODES
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.inbox_fold import consumed_work
from dsh.session.log import Session
from dsh.session.message import text_of, user_message
from dsh.session.store import SESSIONS

inject = [BOOT, APP_EXIT, APP_OUTPUT, AGENTS, AGENT_FACTORY, SESSIONS, DEFAULT_MODEL]
RUN: ServiceKey["Run"] = ServiceKey("headlessRunner")
"""Provided so that there is one: a process has one task, and the first to be done would end it."""

provide = [RUN]

GRACE_S = 8.0
"""How long a cancelled agent may take to become idle; a tool body has 5 s of it (`design.md` §10.3)."""
FAILED = 1
AT_LIMIT = 5
OUT_OF_TIME = 124
_LIMITS = {
    "limit:steps": ("steps", "headless-runner.maxSteps or agent-loop.maxStepsPerTurn", AT_LIMIT),
    "limit:tokens": ("tokens", "headless-runner.maxTokensTotal or agent-loop.maxTokensPerTurn", AT_LIMIT),
    "limit:timeout": ("time", "headless-runner.timeoutMs or agent-loop.maxTurnMs", OUT_OF_TIME),
    "limit:repeat": ("equal calls in a row", "repeat-tool-reminder.endTurnAt", AT_LIMIT),
}
"""What a limit counts, the rows and keys that set it, and the exit code."""
NO_ANSWER = "dsh: the task ended without an answer; dsh sessions show last tells what was done"
HELD = "headless-runner is doing its task"
"""Why no edit of the composition may restart this row, or what it uses, before the end."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `headless-runner` row."""

    task: str
    """What to do; the headless bundle takes it from `headlessStartup`."""
    max_steps: Amount | None = None
    """How many steps the run may have; unset: any number. Retries of a step do not count."""
    max_tokens_total: Amount | None = None
    """How many tokens its model calls may report, input and output; looked at between steps."""
    timeout_ms: TimerMs | None = None
    """How long its turns may take in all, in milliseconds; what runs then is cancelled where it stands."""


class Outcome(NamedTuple):
    """What an idle-to-idle interval of a log came to."""

    text: str
    reason: dict[str, Any] | None
    """The `turn/end` reason of the last turn; None where no turn ended."""
    has_begun: bool = True
    """Whether any turn was begun."""
    is_cut: bool = False
    """Whether the text is the beginning of a reply that was broken off in the last turn."""


def fold_outcome(entries: Iterable[SessionEvent | ChunkRun]) -> Outcome:
    """The last assistant text that is not empty, and how the last turn ended.

    Nothing before the first `turn/start` counts. A message without text (tool calls, reasoning) leaves
    the earlier text standing; text blocks are joined without a separator (`spec/front-ends.md` §1.4).
    """
    text, reason, has_begun, is_cut = "", None, False, False
    for entry in entries:
        if isinstance(entry, ChunkRun):
            continue
        if entry.type == "turn/start":
            has_begun, reason, is_cut = True, None, False
        elif has_begun and entry.type == "assistant/message":
            if said := text_of(entry.data["message"]):
                text, is_cut = said, entry.data.get("interrupted") is True
        elif has_begun and entry.type == "turn/end":
            reason = entry.data["reason"]
    return Outcome(text, reason, has_begun, is_cut)


def account(session: Session, first: int) -> Outcome:
    """What the log came to from seq `first` on. A turn that did nothing does not cover up one that failed."""
    outcome = fold_outcome(session.entries(first))
    if outcome.reason is not None and outcome.reason["kind"] == "completed":
        worked = consumed_work(session, first).end
        if worked is not None:
            return outcome._replace(reason=worked.data["reason"])
    return outcome


def judge(outcome: Outcome) -> tuple[int, str | None]:
    """The exit code, and the line for standard error where there is something to say."""
    reason = outcome.reason
    if reason is None:
        if outcome.has_begun:
            return FAILED, "dsh: the turn has no end in the log"
        return FAILED, "dsh: the task was never taken up: no turn ran"
    match reason["kind"]:
        case "completed":
            return 0, None if outcome.text.strip() else NO_ANSWER
        case "error":
            return _judge_error(reason["error"], is_cut=outcome.is_cut)
        case "max-tokens":
            return FAILED, "dsh: the answer is cut off: the model reached its limit of output tokens"
        case "blocked":
            return FAILED, "dsh: the task was refused before the model was asked"
        case kind:
            return _judge_cause(kind, reason.get("reason") or {})


def _judge_error(error: dict[str, Any], *, is_cut: bool) -> tuple[int, str]:
    code = error["code"]
    line = f"dsh: {code}: {' '.join(str(error['message']).split())}"
    if is_cut:
        line += "; the answer is cut off there"
    if code == "AUTH":  # the provider's words; those of a key that was never sent name the remedy themselves
        line += f"; export a valid key, or put it into {home_label()}/.credentials.yaml"
    return (CredentialError.exit_code if code in CREDENTIAL_CODES else FAILED), line


def _judge_cause(kind: str, cause: dict[str, Any]) -> tuple[int, str]:
    name = cause.get("reason") or cause.get("kind")
    if name in _LIMITS:
        what, where, code = _LIMITS[name]
        return code, f"dsh: stopped at the limit of {what} ({where}); a higher one lets it go on"
    because = f" ({name})" if name else ""
    return (AT_LIMIT if str(name).startswith("limit:") else FAILED), f"dsh: the turn ended {kind}{because}"


class Run:
    """The one task of this process, from the passed audit to the request for the end."""

    def __init__(self, ctx: Context, task: str, limits: RunLimits, grace_s: float) -> None:
        self._ctx, self._task, self._limits, self._grace_s = ctx, task, limits, grace_s
        self._output: AppOutput = ctx.use(APP_OUTPUT)
        self._exit = ctx.use(APP_EXIT)
        self._agent: Agent | None = None
        self._interrupt: Interrupt | None = None
        self._interrupted = asyncio.Event()
        self._token = CancelToken()
        self._is_over = False

    async def main(self) -> None:
        """Do the task and ask for the end, with whatever code it has come to."""
        await self._ctx.use(BOOT).ready()
        try:
            code = await self._do()
        except BaseException as raised:
            error = contained(raised, "the run")
            code = self._say(error) if self._ctx.fiber.is_active else None
        if code is not None:
            self._end(code)

    def gone(self) -> None:
        """The row goes. If the rest of the tree stays, nobody but this run would ever end the process."""
        if self._is_over or self._ctx.kernel.is_closing:
            return
        self._output.notice("dsh: the task was cut off: a service went that row headless-runner stands on")
        self._end(FAILED)

    def _end(self, code: int) -> None:
        self._is_over = True
        self._exit(self._interrupt.exit_code if self._interrupt else code)

    def interrupt(self, interrupt: Interrupt) -> bool:
        """A signal: cancel the turn and let the run end in order. False once there is nothing to end."""
        if self._is_over:
            return False
        self._interrupt = self._interrupt or interrupt
        self._interrupted.set()
        if self._agent is None:
            self._token.cancel(dict(interrupt.cause))
        else:
            self._agent.cancel(cast(CancelCause, dict(interrupt.cause)))
        return True

    async def _do(self) -> int | None:
        """The exit code; None when the tree went down meanwhile, for then there is no answer to print."""
        sessions = self._ctx.use(SESSIONS)
        agent = await self._create(self._ctx.use(DEFAULT_MODEL).current_selection())
        await self._idle(agent)
        first = agent.session.length
        if not self._interrupted.is_set():
            agent.followup(user_message(self._task))
            await self._idle(agent)
        if not self._ctx.fiber.is_active:
            return None
        await sessions.flush(agent.session)
        outcome = account(agent.session, first)
        self._output.answer(outcome.text + "\n")
        code, line = judge(outcome)
        if line is not None and self._interrupt is None:
            self._output.notice(line)
        return code

    async def _create(self, selection: ModelSelection) -> Agent:
        handle = await self._ctx.use(AGENTS).create(
            CreateAgent(
                session_id=f"session-{uuid.uuid4()}",
                cwd=str(Path.cwd()),
                options=AgentOptions(provider=selection.provider, model=selection.model),
                limits=self._limits,
                setup=lambda ctx: _set_up(ctx, selection),
                signal=self._token,
            )
        )
        self._agent = handle.agent
        if self._interrupt is not None:
            self._agent.cancel(cast(CancelCause, dict(self._interrupt.cause)))
        return self._agent

    async def _idle(self, agent: Agent) -> None:
        """Wait until the agent does nothing; after a signal only for so long."""
        idle = asyncio.ensure_future(agent.when_idle())
        signal = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((idle, signal), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((idle,), timeout=self._grace_s)
        finally:
            for waiting in (idle, signal):
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting

    def _say(self, error: Exception) -> int:
        if self._interrupt is None:
            tell(self._output, error)
        return error.exit_code if isinstance(error, DshError) else DshError.exit_code


def _set_up(ctx: Context, selection: ModelSelection) -> None:
    """The agent is held like the run: what it stands on is not restarted either."""
    hold(ctx)
    SelectedModel(selection).install(ctx)


def hold(ctx: Context) -> None:
    """Keep edits from restarting the fiber of this context, and what it stands on, as long as it lives."""
    ctx.effect(lambda: ctx.fiber.hold(HELD), f"held: {HELD}")


def apply(ctx: Context, config: Config) -> None:
    """Start the run. It waits for the boot audit before it does anything that can be seen."""
    limits = RunLimits(steps=config.max_steps, tokens=config.max_tokens_total, duration_ms=config.timeout_ms)
    start(ctx, config.task, limits)


def start(ctx: Context, task: str, limits: RunLimits, *, grace_s: float = GRACE_S) -> None:
    """Run `task` as an effect of `ctx`, and answer signals for it."""
    run = Run(ctx, task, limits, grace_s)
    ctx.provide(RUN, run)
    ctx.effect(lambda: run.gone, "end of the run")
    hold(ctx)
    ctx.on(APP_INTERRUPT, run.interrupt)
    ctx.spawn(run.main(), "headless run")
