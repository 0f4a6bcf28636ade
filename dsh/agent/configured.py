"""Agents that a composition names in its config: which session each of them has, and how they start.

A row may name a session to go on with, one to resume, or none; a launcher may name the sessions in its place
(`spec/agent-loop.md` §12). One that cannot be started is told, and touches nobody else.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dsh.agent.contract import (
    AGENT_CONFIG_START_FAILED,
    AgentOptions,
    ConfigStartFailed,
    CreateAgent,
    ResumeAgent,
)
from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.errors import CompositionError
from dsh.kernel import Context, ServiceKey
from dsh.persistence.error import SessionNotFound
from dsh.persistence.service import PERSISTENCE


class AgentRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
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


class ConfiguredIdentity(msgspec.Struct, frozen=True):
    """The session that the launcher has chosen for a configured agent."""

    id: str
    resume: bool = False
    """It has to be stored already; otherwise it is made where it is not."""


CONFIGURED_IDENTITIES: ServiceKey[Mapping[str, ConfiguredIdentity]] = ServiceKey("configuredAgentIdentities")
"""By the id of the row: what replaces both its session ids. A launcher provides it before the rows load."""


def start_configured(ctx: Context, rows: Sequence[AgentRow]) -> None:
    """Start the agents of these rows, each once what it needs is there. They belong to `ctx`.

    Raises:
        CompositionError: a row names two sessions, or two rows the same one.
    """
    chosen = ctx.get(CONFIGURED_IDENTITIES) or {}
    identified = [_identified(row, chosen.get(row.id)) for row in rows]
    _check_ids(identified)
    for row in identified:
        needed = [PERSISTENCE] if row.resume_session_id else []
        ctx.inject([AGENTS, AGENT_FACTORY, *needed], _starter(row))


def _identified(row: AgentRow, chosen: ConfiguredIdentity | None) -> AgentRow:
    if chosen is None:
        return row
    session_id, resumed = (None, chosen.id) if chosen.resume else (chosen.id, None)
    return msgspec.structs.replace(row, session_id=session_id, resume_session_id=resumed)


def _check_ids(rows: Sequence[AgentRow]) -> None:
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
    """Start one configured agent. Nothing is told of a failure once the loop itself is going."""
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
    await agents.departed(session_id)
    if row.resume_session_id or (row.session_id and ctx.has(PERSISTENCE)):
        try:
            await agents.resume(ResumeAgent(session_id=session_id, options=options))
            return
        except SessionNotFound:
            if row.resume_session_id:
                raise
    await agents.create(CreateAgent(session_id=session_id, cwd=row.cwd, options=options))
