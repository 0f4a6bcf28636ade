"""The agent itself: deliveries, the wake latch, cancellation, and the driver that runs turn after turn.

State: the phase, the inbox, the running activity. Everything durable is in the session's log
(`spec/agent-loop.md` §2, §4, §5, §10, §11).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dsh.agent.abandoned import Abandoned
from dsh.agent.contract import (
    AGENT_INBOX_CLAIMED,
    AGENT_INBOX_DISCARDED,
    AGENT_INBOX_INSERTED,
    AGENT_STATUS,
    AgentOptions,
    AgentStatus,
    CancelCause,
    InboxChanged,
    InboxClaimed,
    InboxTarget,
    RunLimits,
    StatusChanged,
)
from dsh.agent.failure import AgentBusyError, AgentError, checked_cause
from dsh.agent.grace import Grace
from dsh.agent.inbox import Inbox
from dsh.agent.limits import Used
from dsh.agent.phase import Idle, Maintenance, Phase, Running, status_of
from dsh.agent.request import RequestBuilder
from dsh.agent.runtime_context import RuntimeContext
from dsh.agent.services import LoopServices
from dsh.agent.turn import Ending, Turn, TurnParts
from dsh.kernel import CancelToken, Context, Event, ScopeTarget
from dsh.kernel.foreign import contained
from dsh.session.log import Session
from dsh.session.message import Message

T = TypeVar("T")
P = TypeVar("P")


class LoopAgent:
    """One live agent. Implements `dsh.agent.contract.Agent`; the factory makes and ends it."""

    def __init__(
        self,
        services: LoopServices,
        session: Session,
        options: AgentOptions,
        limits: RunLimits = RunLimits(),  # noqa: B008 -- frozen
    ) -> None:
        self.id = session.id
        self.session = session
        self.options = options
        self._services = services
        self.ctx: Context = services.ctx
        """The agent's scope, once the factory has made it."""
        self.inbox = Inbox(
            session,
            inserted=lambda m: self._emit(AGENT_INBOX_INSERTED, InboxChanged(self, m)),
            discarded=lambda m: self._emit(AGENT_INBOX_DISCARDED, InboxChanged(self, m)),
            claimed=lambda m, turn: self._emit(AGENT_INBOX_CLAIMED, InboxClaimed(self, m, turn)),
        )
        self._abandoned = Abandoned(self)
        self._parts = TurnParts(
            agent=self,
            services=services,
            inbox=self.inbox,
            snapshots=RuntimeContext(session),
            requests=RequestBuilder(session, options),
            abandoned=self._abandoned,
            run=Used(limits),
        )
        self._phase: Phase = Idle(session.last_turn)
        self._activity: asyncio.Future[object] | None = None
        self._is_published = self._is_closing = False

    def __repr__(self) -> str:
        return f"<Agent {self.id} {self.status}>"

    @property
    def status(self) -> AgentStatus:
        return status_of(self._phase)

    @property
    def degraded(self) -> Sequence[str]:
        return tuple(self._abandoned.names)

    # -- deliveries ------------------------------------------------------------------------------

    def send(self, message: Message, target: InboxTarget, *, wakeup: bool) -> None:
        self._require_published()
        phase = self._phase
        after_abort = wakeup and not isinstance(phase, Idle) and phase.token.cancelled
        self.inbox.append("next-turn" if after_abort else target, message)
        if wakeup:
            self._wake(after_abort=after_abort)

    def followup(self, message: Message) -> None:
        self.send(message, "next-turn", wakeup=True)

    def steer(self, message: Message) -> None:
        self.send(message, "next-step", wakeup=True)

    def inject(self, message: Message) -> None:
        self.send(message, "next-step", wakeup=False)

    def continue_pending(self) -> bool:
        self._require_published()
        if not self.inbox.has_pending:
            return False
        phase = self._phase
        self._wake(after_abort=not isinstance(phase, Idle) and phase.token.cancelled)
        return True

    def _require_published(self) -> None:
        if not self._is_published:
            raise AgentError(
                f"agent {self.id} is not published yet and takes no deliveries",
                code="NOT_PUBLISHED",
                hint="send from `agent/session-start` on; a setup only registers things",
            )

    def _wake(self, *, after_abort: bool) -> None:
        phase = self._phase
        if isinstance(phase, Idle):
            if not self._is_closing:
                self._start_driver(phase)
        elif _is_disposed(phase.token):
            return
        elif isinstance(phase, Maintenance) or (phase.token.cancelled and after_abort):
            phase.wake_requested = True

    # -- driver ----------------------------------------------------------------------------------

    def _start_driver(self, idle: Idle) -> None:
        with self._services.initiators.entered(self):
            phase = Running(CancelToken(), idle.last_turn)
            turn = Turn(self._parts, phase)
            self._set_phase(phase)
            turn.open()
            self._activity = self._services.ctx.kernel.keep(self._drive(phase, turn), f"agent {self.id}")

    async def _drive(self, phase: Running, turn: Turn) -> None:
        try:
            while self._goes_on(await turn.run(), phase, turn.returned):
                phase.next_turn()
                turn = Turn(self._parts, phase)
                turn.open()
        except Exception as error:
            self._services.ctx.logger.debug("a turn of agent %s ended early: %s", self.id, error)
        finally:
            self._set_phase(Idle(phase.turn))
        if phase.wake_requested and self.inbox.has_pending:
            self._wake(after_abort=False)

    def _goes_on(self, ending: Ending, phase: Running, returned: frozenset[str]) -> bool:
        """Whether the driver takes the next prompt up; one that waits again would only fail again."""
        if phase.token.cancelled or not self.inbox.has_pending:
            return False
        if ending == "normal":
            return True
        following = (self.inbox.next_turn or self.inbox.next_step)[0]
        return self._services.rules().on_failure == "continue" and following["id"] not in returned

    def _set_phase(self, phase: Phase) -> None:
        before, self._phase = self.status, phase
        if self.status != before:
            self._emit(AGENT_STATUS, StatusChanged(self, self.status))

    async def when_idle(self) -> None:
        while (activity := self._activity) is not None:
            await asyncio.wait((activity,))
            if self._activity is activity:
                return

    # -- cancellation and maintenance ------------------------------------------------------------

    def cancel(self, cause: CancelCause, *, keep_inbox: bool = False) -> None:
        reason = checked_cause(cause)
        try:
            if not keep_inbox:
                self.inbox.clear()
        finally:
            phase = self._phase
            if not isinstance(phase, Idle):
                if not keep_inbox:
                    phase.drop_queued()
                phase.token.cancel(reason)

    def run_maintenance(self, job: Callable[[CancelToken], Awaitable[T]]) -> Awaitable[T]:
        idle = self._phase
        if not isinstance(idle, Idle):
            raise AgentBusyError(f"agent {self.id} is busy", code="busy")
        phase = Maintenance(CancelToken(), idle.last_turn)
        grace, who = Grace(phase.token, self._abandoned.take), f"a maintenance job of agent {self.id}"
        self._set_phase(phase)
        try:
            started = job(phase.token)
        except BaseException as error:
            self._leave_maintenance(phase)
            raise contained(error, who)  # noqa: B904 -- the same one, or made of it

        async def finish() -> T:
            try:
                return await grace.wait(started, who)
            finally:
                self._leave_maintenance(phase)

        task = self._services.ctx.kernel.keep(finish(), f"maintenance of agent {self.id}")
        self._activity = task
        return asyncio.shield(task)

    def _leave_maintenance(self, phase: Maintenance) -> None:
        self._set_phase(Idle(phase.last_turn))
        if phase.wake_requested and self.inbox.has_pending:
            self._wake(after_abort=False)

    # -- for the factory -------------------------------------------------------------------------

    def recover(self) -> None:
        """What the log lost between claim and entry, when it was cut, waits again."""
        self.inbox.recover()

    def publish(self) -> None:
        """Take deliveries from here on."""
        self._is_published = True

    def close(self, *, keep_inbox: bool) -> None:
        """First part of the agent's end: stop what runs and start nothing any more.

        What waits is dropped, or stays in the log for whoever resumes the session.
        """
        self._is_closing = True
        self.cancel({"kind": "disposed"}, keep_inbox=keep_inbox)

    def _emit(self, event: Event[P, None], payload: P) -> None:
        self._services.ctx.emit(event, payload, subject=ScopeTarget(self))


def _is_disposed(token: CancelToken) -> bool:
    return token.cancelled and token.reason.get("kind") == "disposed"
