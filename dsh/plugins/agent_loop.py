"""Row `agent-loop`: runs the agents. Makes them for the registry, and those that its config names.

It also defines the prompt variables `provider`, `model` and `cwd`, and holds every request of the loop
against the log before it leaves.
"""

import uuid
from collections.abc import Callable

import msgspec

from dsh.agent.contract import (
    AGENT_CONFIG_START_FAILED,
    AgentOptions,
    ConfigStartFailed,
    CreateAgent,
    ResumeAgent,
    RunLimits,
)
from dsh.agent.factory import LoopFactory
from dsh.agent.invariant import guard
from dsh.agent.limits import OnTurnFailure, TurnRules
from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.agent.services import LoopServices
from dsh.capabilities.bounds import Amount, NonEmpty, TimerMs
from dsh.capabilities.settings_section import install_settings_section
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.llm.registry import LLM, LLM_STREAM
from dsh.persistence.error import SessionNotFound
from dsh.persistence.service import PERSISTENCE
from dsh.session.store import SESSIONS
from dsh.tools.registry import TOOLS

inject = [AGENTS, SESSIONS, LLM, TOOLS, SYSTEM_PROMPT]
provide = [AGENT_FACTORY]


class AgentRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """An agent that lives as long as the row."""

    id: NonEmpty
    """Names the agent within the config; its session is `<id>-session-<uuid4>` unless said otherwise."""
    session_id: NonEmpty | None = None
    """The session to go on with; a new one where nothing is stored under this id."""
    resume_session_id: str | None = None
    """The stored session to resume, without which the agent does not start."""
    provider: str | None = None
    """The route of its model. Without one a request fails, unless a listener of `agent/request` names it."""
    model: str | None = None
    """Its model on that route; the same holds."""
    max_tokens: Amount | None = None
    """Longest reply, in tokens; unset: the model's own limit."""
    cwd: str | None = None
    """The directory it works in; unset: none of its own."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    agents: list[AgentRow] = []
    """Agents to start with the composition."""
    max_parallel_tool_calls: Amount = 10
    """How many tool bodies of one message may run at the same time."""
    max_steps_per_turn: Amount | None = None
    """How many steps one turn may have; unset: any number. Retries of a step do not count."""
    max_tokens_per_turn: Amount | None = None
    """How many tokens the model calls of one turn may report, input and output; looked at between steps."""
    max_turn_ms: TimerMs | None = None
    """How long one turn may take, in milliseconds; it is cancelled where it stands."""
    on_turn_failure: OnTurnFailure = "park"
    """`park` leaves the prompts behind a turn that failed waiting for the next wake; `continue` goes on."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The settings section `agent-loop`."""

    max_parallel_tool_calls: Amount = 10
    """How many tool bodies of one message may run at the same time; read for each message."""
    max_steps_per_turn: Amount | None = None
    """How many steps one turn may have; read, like the rest, when a turn begins."""
    max_tokens_per_turn: Amount | None = None
    """How many tokens the model calls of one turn may report, input and output."""
    max_turn_ms: TimerMs | None = None
    """How long one turn may take, in milliseconds."""
    on_turn_failure: OnTurnFailure = "park"
    """Whether prompts behind a turn that failed wait (`park`) or get their turns (`continue`)."""

    def rules(self) -> TurnRules:
        limits = RunLimits(
            steps=self.max_steps_per_turn,
            tokens=self.max_tokens_per_turn,
            duration_ms=self.max_turn_ms,
        )
        return TurnRules(limits=limits, on_failure=self.on_turn_failure)


sections = {"agent-loop": Section}


def apply(ctx: Context, config: Config) -> None:
    _check_ids(config.agents)
    sessions, prompt = ctx.use(SESSIONS), ctx.use(SYSTEM_PROMPT)
    entry = Section(
        max_parallel_tool_calls=config.max_parallel_tool_calls,
        max_steps_per_turn=config.max_steps_per_turn,
        max_tokens_per_turn=config.max_tokens_per_turn,
        max_turn_ms=config.max_turn_ms,
        on_turn_failure=config.on_turn_failure,
    )
    section = install_settings_section(ctx, "agent-loop", Section, entry)
    services = LoopServices(
        ctx,
        ctx.use(LLM),
        ctx.use(TOOLS),
        prompt,
        max_parallel_tool_calls=lambda: section.get().max_parallel_tool_calls,
        rules=lambda: section.get().rules(),
    )
    ctx.use(AGENTS).set_factory(LoopFactory(services, sessions, ctx.use(AGENTS)))
    ctx.on(
        LLM_STREAM,
        lambda request, following: guard(request, following, sessions.get),
        prepend=True,
        global_=True,
    )
    prompt.variable("provider", lambda at: at.agent.options.provider if at.agent else None)
    prompt.variable("model", lambda at: at.agent.options.model if at.agent else None)
    prompt.variable("cwd", _cwd)
    for row in config.agents:
        needed = [PERSISTENCE] if row.resume_session_id else []
        ctx.inject([AGENTS, AGENT_FACTORY, *needed], _starter(row))


def _cwd(at: PromptContext) -> str | None:
    return at.session.header.cwd if at.session is not None else None


def _check_ids(rows: list[AgentRow]) -> None:
    taken: set[str] = set()
    for row in rows:
        if row.session_id and row.resume_session_id:
            raise CompositionError(f"agent {row.id!r}: sessionId and resumeSessionId exclude each other")
        for wanted in filter(None, (row.session_id, row.resume_session_id)):
            if wanted in taken:
                raise CompositionError(f"agent {row.id!r}: another agent has session {wanted!r} already")
            taken.add(wanted)


def _starter(row: AgentRow) -> Callable[[Context], None]:
    def start(ctx: Context) -> None:
        ctx.spawn(_start(ctx, row), f"start of agent {row.id}")

    return start


async def _start(ctx: Context, row: AgentRow) -> None:
    """Start one configured agent; a failure is told, and touches nobody else."""
    session_id = row.resume_session_id or row.session_id or f"{row.id}-session-{uuid.uuid4()}"
    try:
        await _resume_or_create(ctx, row, session_id)
    except Exception as error:
        if not ctx.fiber.accepts_effects:
            return
        ctx.logger.error("agent %s could not be started: %s", row.id, error)
        ctx.emit(AGENT_CONFIG_START_FAILED, ConfigStartFailed(session_id, error))


async def _resume_or_create(ctx: Context, row: AgentRow, session_id: str) -> None:
    agents = ctx.use(AGENTS)
    options = AgentOptions(provider=row.provider, model=row.model, max_tokens=row.max_tokens)
    may_be_stored = row.session_id is not None and ctx.has(PERSISTENCE)
    if row.resume_session_id or may_be_stored:
        try:
            await agents.resume(ResumeAgent(session_id=session_id, options=options))
            return
        except SessionNotFound:
            if row.resume_session_id:
                raise
    await agents.create(CreateAgent(session_id=session_id, cwd=row.cwd, options=options))
