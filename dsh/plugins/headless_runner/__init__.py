"""Row `headless-runner`: does one task and prints the answer.

It makes an agent, gives it the task, waits until all is quiet, flushes, prints. The order is the point: the
log is durable before a word is printed, and the end is asked for after the answer is out
(`spec/front-ends.md` §1.3, §13).
"""

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import cast

import msgspec

from dsh.agent.contract import Agent, AgentOptions, CancelCause, CreateAgent, RunLimits
from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.agent.model_selection import SelectedModel
from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.launch import APP_EXIT, APP_INTERRUPT, APP_OUTPUT, BOOT, AppOutput, Interrupt, tell
from dsh.errors import DshError
from dsh.kernel import CancelToken, Context, ServiceKey
from dsh.kernel.foreign import contained
from dsh.plugins.headless_runner.background import Background
from dsh.plugins.headless_runner.outcome import FAILED, account, judge
from dsh.session.message import user_message
from dsh.session.store import SESSIONS

inject = [BOOT, APP_EXIT, APP_OUTPUT, AGENTS, AGENT_FACTORY, SESSIONS, DEFAULT_MODEL]
RUN: ServiceKey["Run"] = ServiceKey("headlessRunner")
"""Provided so that there is one: a process has one task, and the first to be done would end it."""

provide = [RUN]

GRACE_S = 8.0
"""How long a cancelled agent may take to become idle; a tool body has 5 s of it (`design.md` §10.3)."""
JOB_WAIT_S = 5.0
"""How long background jobs may go on when the agent has nothing more to do (`design.md` §4.9)."""
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


class Run:
    """The one task of this process, from the passed audit to the request for the end."""

    def __init__(
        self, ctx: Context, task: str, limits: RunLimits, *, grace_s: float, job_wait_s: float
    ) -> None:
        self._ctx, self._task, self._limits = ctx, task, limits
        self._grace_s, self._job_wait_s = grace_s, job_wait_s
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
            await self._end_background(agent, first)
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

    async def _end_background(self, agent: Agent, first: int) -> None:
        """Let jobs that still run end by themselves for a while, then end them and say so.

        What they tell the agent may wake it. A turn that failed, a limit or a signal waits for nothing.
        """
        background = Background(self._ctx, agent, self._interrupted)
        while not self._interrupted.is_set() and self._ctx.fiber.is_active:
            reason = account(agent.session, first).reason
            is_done = reason is None or reason["kind"] != "completed"
            if is_done or not await background.has_news(self._job_wait_s):
                break
            await self._idle(agent)
        for line in background.drop():
            self._output.notice(line)

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


def start(
    ctx: Context,
    task: str,
    limits: RunLimits,
    *,
    grace_s: float = GRACE_S,
    job_wait_s: float = JOB_WAIT_S,
) -> None:
    """Run `task` as an effect of `ctx`, and answer signals for it."""
    run = Run(ctx, task, limits, grace_s=grace_s, job_wait_s=job_wait_s)
    ctx.provide(RUN, run)
    ctx.effect(lambda: run.gone, "end of the run")
    hold(ctx)
    ctx.on(APP_INTERRUPT, run.interrupt)
    ctx.spawn(run.main(), "headless run")
