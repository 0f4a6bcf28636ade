"""Row `tool-skill`: tells the model which skills there are, and gives it those that it or a person asks for.

The list enters a step where it has changed; the tool `skill` loads one by name; `/name` in what a person says
brings it along with the message (`spec/capabilities-more.md` §3).
"""

import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.agent.step_context import is_entered, with_context
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.recorded import is_given
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.capabilities.skills import SKILL_NAME, SKILLS, SkillError, SkillLookup
from dsh.kernel import CancelToken, Context
from dsh.plugins.tool_skill.catalogue import KIND, Told, catalogue_of, due
from dsh.plugins.tool_skill.gesture import called_up, has_any
from dsh.plugins.tool_skill.render import rendered, value_of
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from dsh.session.value import MAX_SAFE_INT
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.presentation import GenericCall
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [SKILLS, TOOLS]
provide = ()

NAME = "skill"
INVOCATION = "skill-invocation"
SHOWN_NAMES = 20
"""How many names of skills an error lists."""

_TEXT = {"type": "string", "required": True}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "provider": _TEXT,
        "resourceBase": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "kind": {"type": "string", "enum": ["directory", "url", "opaque"], "required": True},
                "path": {"type": "string"},
                "url": {"type": "string"},
                "description": {"type": "string"},
            },
        },
        "content": _TEXT,
    },
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    catalog_description_max_length: Annotated[int, msgspec.Meta(ge=3, le=MAX_SAFE_INT)] = 500
    """How much of a skill's description the list shows, in characters."""
    catalog_max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INT)] = 32_768
    """How long the list may get, in bytes: descriptions are cut shorter first, then skills are left out."""


class SkillTool:
    """The tool and what enters a step. State: what each session's model was told."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx, self._config = ctx, config
        self._skills, self._tools = ctx.use(SKILLS), ctx.use(TOOLS)
        self._told: WeakKeyDictionary[Session, Told] = WeakKeyDictionary()

    def definition(self) -> ToolDefinition:
        return typed_tool(
            name=NAME,
            description=(
                "Load the instructions of a skill by its exact name, as the list of available skills has it. "
                "Do it before you begin with what the skill is for, then follow them."
            ),
            parameters={
                "name": {"type": "string", "required": True, "description": "The exact name of the skill."}
            },
            output=ToolOutput(_VALUE, lambda args, value: rendered(value)),
            execute=self.load,
            present_call=lambda args: GenericCall(title=f"Skill {args['name']}", kind="read"),
        )

    async def load(self, args: Args, execution: ToolExecution) -> dict[str, Any]:
        name = args["name"]
        if not SKILL_NAME.fullmatch(name):
            raise ToolError(f"{name!r:.80} is no name of a skill: it takes a-z, 0-9 and single dashes")
        session = execution.session
        lookup = self._lookup(execution.agent, session, execution.signal)
        loaded = await self._skills.get(name, lookup)
        if loaded is None:
            known = (await self._skills.snapshot(lookup)).skills
            names = [skill.name for skill in known if skill.for_model]
            raise ToolError(f'there is no skill "{name}"; {_listed(names)}')
        if not loaded.skill.for_model:
            raise ToolError(f'skill "{name}" is not for you to load; a person can call it up by /{name}')
        return value_of(loaded)

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """Add the list where it is due, and the skills that the person calls up."""
        decision = await following()
        if not is_entered(decision, step):
            return decision
        is_visible = self._tools.get(NAME, step.agent) is not None
        if not is_visible and not has_any(decision.messages):
            return decision
        lookup = self._lookup(step.agent, step.agent.session, step.signal)
        snapshot = await self._skills.snapshot(lookup, is_fresh=True)
        added: list[Message] = []
        if is_visible and snapshot.is_complete:
            config = self._config
            now = catalogue_of(
                snapshot.skills,
                max_description=config.catalog_description_max_length,
                max_bytes=config.catalog_max_bytes,
            )
            if (message := due(self._told_to(step.agent.session), now)) is not None:
                added.append(message)
        for name in called_up(decision.messages, snapshot.skills, os.path.lexists):
            if (called := await self._called(name, lookup)) is not None:
                added.append(called)
        return with_context(step, decision, *added)

    async def _called(self, name: str, lookup: SkillLookup) -> Message | None:
        """The message that brings a skill; None, with a warning, where it cannot be used."""
        try:
            loaded = await self._skills.get(name, lookup)
        except SkillError as error:
            self._ctx.logger.warning("/%s: %s", name, error.message)
            return None
        if loaded is None or not loaded.skill.for_user:
            return None
        source = {"kind": INVOCATION, "name": name, "form": "instructions"}
        return user_message(rendered(value_of(loaded)), source)

    def _told_to(self, session: Session) -> Told:
        told = self._told.get(session)
        if told is None:
            told = self._told[session] = Told(session)
        return told

    def _lookup(self, agent: AgentRef | None, session: Session | None, signal: CancelToken) -> SkillLookup:
        policies = self._ctx.get(SANDBOX_POLICY)
        return SkillLookup(
            cwd=None if session is None else session.header.cwd,
            agent=agent,
            sandbox_policy=None if policies is None or session is None else policies.resolve(session),
            signal=signal,
        )


def _listed(names: list[str]) -> str:
    if not names:
        return "there are no skills"
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"there are {', '.join(names[:SHOWN_NAMES])}{more}"


def apply(ctx: Context, config: Config) -> None:
    tool = SkillTool(ctx, config)
    ctx.use(TOOLS).register(tool.definition())
    if is_given(ctx, kind=KIND) and is_given(ctx, kind=INVOCATION):
        return
    ctx.on(AGENT_PRE_STEP, tool.before_step)
