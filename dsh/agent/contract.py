"""What other rows know of agents: the agent, the registry's requests and answers, and every `agent/*` event.

All `agent/*` events are dispatched with the agent as their scope, so a listener of one agent's context
hears that agent only (`spec/agent-loop.md` §8).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NotRequired, Protocol, TypedDict, TypeVar

import msgspec

from dsh.kernel import CancelToken, Context, Event
from dsh.llm.adapter import RetryPolicy
from dsh.llm.failure import LlmFailure
from dsh.llm.request import LlmCallConfig
from dsh.session.chunk_run import Entry
from dsh.session.log import Session
from dsh.session.message import Message
from dsh.session.value import JsonObject

T = TypeVar("T")

AgentStatus = Literal["idle", "running"]
InboxTarget = Literal["next-turn", "next-step"]
SessionStartSource = Literal["startup", "resume", "clear", "compact"]


class CancelCause(TypedDict):
    """Why a turn was cancelled: the token's reason, and the durable `turn/end.reason.reason`."""

    kind: Literal["user", "parent", "hook", "disposed"]
    reason: NotRequired[str]
    """Only with `hook`, and always there: `signal:SIGTERM`, `limit:steps`, …"""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The route an agent starts with. Never changes; a later switch shows in the request header only."""

    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    """A positive integer up to 2^53-1."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much an agent may do from its creation or resumption on. What is None has no limit.

    Limits of steps and tokens act before the next `step/start`, that of time at once; each ends the turn as
    `aborted` with `{kind: "hook", reason: "limit:steps|tokens|timeout"}` (`design.md` §10.2, §10.6).
    """

    steps: int | None = None
    """Steps, retries not counted."""
    tokens: int | None = None
    """Tokens that providers reported, input and output of every attempt."""
    duration_ms: int | None = None
    """Wall time of its turns, each from its beginning to its end, in all."""


class InboxView(Protocol):
    """What is waiting for an agent: prompts, one per turn, and input for the next step."""

    @property
    def next_turn(self) -> tuple[Message, ...]: ...

    @property
    def next_step(self) -> tuple[Message, ...]: ...

    @property
    def has_pending(self) -> bool: ...

    def append(self, target: InboxTarget, message: Message) -> None: ...

    def prepend(self, target: InboxTarget, message: Message) -> None: ...

    def replace(self, message_id: str, message: Message) -> bool: ...

    def remove(self, message_id: str) -> bool: ...

    def splice(
        self, target: InboxTarget, start: float, delete: float, inserted: Sequence[Message] = ()
    ) -> tuple[Message, ...]: ...

    def clear(self) -> None: ...


class Agent(Protocol):
    """A live agent: one session, one inbox, one driver. It is the key of its own scope."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def session(self) -> Session: ...

    @property
    def ctx(self) -> Context:
        """The agent's own context: what is registered through it ends with the agent."""

    @property
    def inbox(self) -> InboxView: ...

    @property
    def options(self) -> AgentOptions: ...

    @property
    def status(self) -> AgentStatus: ...

    @property
    def degraded(self) -> Sequence[str]:
        """Names of code that was given up after a cancellation, such as `tool x`: it may still be at work."""

    def send(self, message: Message, target: InboxTarget, *, wakeup: bool) -> None:
        """Deliver a message. Synchronous: a waking send may have opened a turn and claimed the message."""

    def followup(self, message: Message) -> None:
        """A prompt of its own: `next-turn`, wakes."""

    def steer(self, message: Message) -> None:
        """Input for the running turn's next step: `next-step`, wakes."""

    def inject(self, message: Message) -> None:
        """Context for whenever the next step comes: `next-step`, does not wake."""

    def continue_pending(self) -> bool:
        """Wake the agent if something waits for it, as after a resume; answers whether something does."""

    def cancel(self, cause: CancelCause, *, keep_inbox: bool = False) -> None:
        """Stop the running turn, and drop what is queued unless `keep_inbox`. The first cause wins.

        Raises:
            AgentError: the log could not hold the cause (code INVALID_CAUSE); nothing has happened then.
        """

    async def when_idle(self) -> None:
        """Return once the agent does nothing, wakes that were latched meanwhile included. Never raises."""

    def run_maintenance(self, job: Callable[[CancelToken], Awaitable[T]]) -> Awaitable[T]:
        """Run `job` while no turn can run. The public status stays `idle`; wakes wait for its end.

        A job that does not end after its cancellation is given up like any foreign code.

        Raises:
            AgentBusyError: at once, unless the agent is idle.
            NoOutcome: to whoever awaits the answer, if the job was given up.
            Exception: what the job raised, whatever that was.
        """


class AgentHandle(msgspec.Struct, frozen=True):
    """A created agent and the way to end it."""

    agent: Agent
    dispose: Callable[[], Awaitable[None]]
    """Cancel, drop what waits, wait for idle, undo the scope, leave both registries; all wait for one end.

    An agent that ends with its owner or with the loop goes the same way but keeps what waits, in its log.
    """


class AgentSetup(Protocol):
    """What a setup may answer: `commit` runs synchronously, right before the agent is published."""

    def commit(self) -> None: ...


Setup = Callable[[Context], AgentSetup | Awaitable[AgentSetup | None] | None]


class CreateAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A new session with an agent on it."""

    session_id: str | None = None
    """`session-<uuid4>` when absent."""
    cwd: str | None = None
    """Absolute working directory, kept in the session's header."""
    parent_session: str | None = None
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None
    seed: Sequence[JsonObject | Entry] | None = None
    """Events to begin with: a prefix of a log that leaves no turn open."""
    seed_length: int | None = None
    """How many of them are another session's: what waited in its inbox is not taken over."""
    options: AgentOptions = AgentOptions()
    limits: RunLimits = RunLimits()
    setup: Setup | None = None
    """Registers things through the agent's context before anybody can see the agent. Sends nothing."""
    signal: CancelToken | None = None
    """Aborts the creation; of no effect once the handle is there."""


class ResumeAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session, repaired where it was cut, with an agent on it again. Starts nothing by itself."""

    session_id: str
    options: AgentOptions = AgentOptions()
    limits: RunLimits = RunLimits()
    setup: Setup | None = None
    signal: CancelToken | None = None


class AgentSubject(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/created` and `agent/disposed`."""

    agent: Agent


class StatusChanged(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/status`."""

    agent: Agent
    status: AgentStatus


class InboxChanged(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/inbox/inserted` and `agent/inbox/discarded`."""

    agent: Agent
    message: Message


class InboxClaimed(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/inbox/claimed`: the loop took this message for a step of `turn`."""

    agent: Agent
    message: Message
    turn: int


class SessionStarted(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/session-start`: the agent takes deliveries from here on."""

    agent: Agent
    source: SessionStartSource


class PreStep(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/pre-step`: the messages claimed for a step that has not begun."""

    agent: Agent
    messages: tuple[Message, ...]
    turn: int
    step: int
    signal: CancelToken


class EnterStep(msgspec.Struct, frozen=True):
    """A pre-step decision: go on with exactly these messages. What is left out is gone."""

    messages: Sequence[Message]


class RejectStep(msgspec.Struct, frozen=True):
    """A pre-step decision: end the turn as `blocked`."""


PreStepDecision = EnterStep | RejectStep


class RequestSeed(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/request`: listeners answer the call config, `next()` gives the one so far."""

    agent: Agent
    turn: int
    step: int
    signal: CancelToken


class RequestFailed(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Payload of `agent/request-error`: an attempt ended `error` or `aborted`; its step is still open.

    The last row of the log is the failed attempt's terminal `finish` chunk.
    """

    agent: Agent
    turn: int
    step: int
    provider: str
    failure: LlmFailure
    retry_policy: RetryPolicy | None = None
    """The policy of the prepared call; absent when no adapter prepared it."""
    signal: CancelToken


class RetryRequest(TypedDict):
    """The one answer to `agent/request-error` that goes on: the same step tries again."""

    kind: Literal["retry"]


class TurnStopping(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/turn-stopping`. A listener objects by steering the agent; it answers nothing."""

    agent: Agent
    turn: int
    signal: CancelToken


class AgentFailed(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent/error`: told before the turn's `turn/end`, never for a cancellation."""

    agent: Agent
    turn: int
    step: int
    error: BaseException


class ConfigStartFailed(msgspec.Struct, frozen=True, eq=False):
    """Payload of `agent-loop/config-start-failed`: an agent of the row's config could not be started."""

    session_id: str
    error: BaseException


class _About(Protocol):
    """A payload of an `agent/*` event: the agent is its scope."""

    @property
    def agent(self) -> Agent: ...


def _agent(payload: _About) -> Agent:
    return payload.agent


AGENT_CREATED: Event[AgentSubject, None] = Event("agent/created", "emit", scoped=_agent)
"""A raise vetoes the publication."""
AGENT_DISPOSED: Event[AgentSubject, None] = Event("agent/disposed", "emit", contained=True, scoped=_agent)
"""The agent has left the registry; its scope is undone."""
AGENT_STATUS: Event[StatusChanged, None] = Event("agent/status", "emit", contained=True, scoped=_agent)
"""The agent began or ended to work."""
AGENT_INBOX_INSERTED: Event[InboxChanged, None] = Event(
    "agent/inbox/inserted", "emit", contained=True, scoped=_agent
)
"""A message waits for a turn or step."""
AGENT_INBOX_DISCARDED: Event[InboxChanged, None] = Event(
    "agent/inbox/discarded", "emit", contained=True, scoped=_agent
)
"""A waiting message was dropped and will reach no step."""
AGENT_INBOX_CLAIMED: Event[InboxClaimed, None] = Event(
    "agent/inbox/claimed", "emit", contained=True, scoped=_agent
)
AGENT_SESSION_START: Event[SessionStarted, None] = Event(
    "agent/session-start", "emit", contained=True, scoped=_agent
)
AGENT_PRE_STEP: Event[PreStep, Awaitable[PreStepDecision]] = Event(
    "agent/pre-step", "waterfall", scoped=_agent
)
AGENT_REQUEST: Event[RequestSeed, Awaitable[LlmCallConfig]] = Event(
    "agent/request", "waterfall", scoped=_agent
)
AGENT_REQUEST_ERROR: Event[RequestFailed, Awaitable[RetryRequest | None]] = Event(
    "agent/request-error", "waterfall", scoped=_agent
)
AGENT_TURN_STOPPING: Event[TurnStopping, None] = Event("agent/turn-stopping", "serial", scoped=_agent)
"""The turn has nothing left to do. A listener objects by steering the agent."""
AGENT_ERROR: Event[AgentFailed, None] = Event("agent/error", "emit", contained=True, scoped=_agent)
AGENT_CONFIG_START_FAILED: Event[ConfigStartFailed, None] = Event(
    "agent-loop/config-start-failed", "emit", contained=True
)
