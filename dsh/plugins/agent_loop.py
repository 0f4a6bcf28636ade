"""Row `agent-loop`: runs the agents. Makes them for the registry, and those that its config names.

It also defines the prompt variables `provider`, `model` and `cwd`, and holds every request of the loop
against the log before it leaves.
"""

import msgspec

from dsh.agent.configured import AgentRow, start_configured
from dsh.agent.contract import RunLimits
from dsh.agent.factory import LoopFactory
from dsh.agent.invariant import guard
from dsh.agent.limits import OnTurnFailure, TurnRules
from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.agent.registry import AGENT_FACTORY, AGENTS
from dsh.agent.services import LoopServices
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.registry import LLM, LLM_STREAM
from dsh.session.store import SESSIONS
from dsh.tools.registry import TOOLS

inject = [AGENTS, SESSIONS, LLM, TOOLS, SYSTEM_PROMPT]
provide = [AGENT_FACTORY]


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
    keep_refused_text: bool = False
    """Keep the text of a reply that the model breaks off (a content filter, a refusal) as an interrupted
    message. The turn ends with the error all the same; the next request shows the model its text."""


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
    keep_refused_text: bool = False
    """Keep the text of a reply that the model itself breaks off, as an interrupted message."""

    def rules(self) -> TurnRules:
        limits = RunLimits(
            steps=self.max_steps_per_turn,
            tokens=self.max_tokens_per_turn,
            duration_ms=self.max_turn_ms,
        )
        return TurnRules(limits=limits, on_failure=self.on_turn_failure)


sections = {"agent-loop": Section}


def apply(ctx: Context, config: Config) -> None:
    sessions, prompt = ctx.use(SESSIONS), ctx.use(SYSTEM_PROMPT)
    entry = Section(
        max_parallel_tool_calls=config.max_parallel_tool_calls,
        max_steps_per_turn=config.max_steps_per_turn,
        max_tokens_per_turn=config.max_tokens_per_turn,
        max_turn_ms=config.max_turn_ms,
        on_turn_failure=config.on_turn_failure,
        keep_refused_text=config.keep_refused_text,
    )
    section = install_settings_section(ctx, "agent-loop", Section, entry)
    services = LoopServices(
        ctx,
        ctx.use(LLM),
        ctx.use(TOOLS),
        prompt,
        ctx.use(AGENTS).initiators,
        max_parallel_tool_calls=lambda: section.get().max_parallel_tool_calls,
        rules=lambda: section.get().rules(),
        keeps_refused_text=lambda: section.get().keep_refused_text,
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
    start_configured(ctx, config.agents)


def _cwd(at: PromptContext) -> str | None:
    return at.session.header.cwd if at.session is not None else None
