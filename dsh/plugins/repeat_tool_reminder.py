"""Row `repeat-tool-reminder`: a model that makes the same call again and again is told, refused, stopped.

Two counts are kept for each agent. Reminders follow the calls that were answered, as their results are
committed; refusal and the end of the turn follow those that were asked for, so that calls made at once
count before any of them has run. A turn is ended only by a call that was made after an equal one was
answered: a model that says one thing many times in a single message has not been told yet that it is of no
use. A person's message begins both counts anew, and so does a resumed session: they are in memory only
(`spec/tools.md` §6).
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from dsh.session.value import MAX_SAFE_INT, encode, json_equal
from dsh.tools.event import (
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    Deny,
    PostDecision,
    PreDecision,
    Settled,
)
from dsh.tools.execution import ToolExecution

provide = ()

OWNER = "repeat-tool-reminder"
LIMIT = "limit:repeat"
"""The reason of a turn that ended here, in its `turn/end`."""
NUDGE = (
    "The same tool call was just made several times in a row with the same arguments. If its result is not "
    "what you need, try something else: other arguments, another tool, or an answer with what you have."
)

Times = Annotated[int, msgspec.Meta(ge=2, le=MAX_SAFE_INT)]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row. Calls are equal when tool and arguments are; the order of keys is free."""

    thresholds: list[Times] = msgspec.field(default_factory=lambda: [3, 5, 8])
    """After so many equal calls in a row the model is reminded; ascending."""
    include: list[NonEmpty] = []
    """Tools to watch, `*` stands for any characters; empty: all."""
    exclude: list[NonEmpty] = []
    """Tools not to watch; their calls neither count nor break a row of equal ones."""
    arguments_preview_chars: Amount = 500
    """How much of the arguments a reminder shows."""
    block_at: Times | None = None
    """From so many equal calls in a row on each is refused; unset: none is."""
    end_turn_at: Times | None = None
    """At so many equal calls in a row the turn is ended with the reason `limit:repeat`; calls of a single
    message are refused instead. Unset: neither."""

    def __post_init__(self) -> None:
        if self.thresholds != sorted(set(self.thresholds)):
            raise ValueError(f"thresholds must ascend without repetition, found {self.thresholds}")


class Row:
    """How often the last call was made in a row."""

    def __init__(self) -> None:
        self._name = ""
        self._arguments: Any = None
        self._count = 0
        self.is_told = False
        """Whether the model has had an answer to one of these calls."""

    def add(self, execution: ToolExecution) -> int:
        """Count a call: 1 if it is not the one before."""
        if execution.name != self._name or not json_equal(execution.arguments, self._arguments):
            self._name, self._arguments = execution.name, execution.arguments
            self._count, self.is_told = 0, False
        self._count += 1
        return self._count


class Rows:
    """What is kept of one agent."""

    def __init__(self) -> None:
        self.asked = Row()
        self.answered = Row()


class Reminder:
    """The listeners. State: the rows of each live agent, by its session."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._config = config
        self._include = _pattern(config.include or ["*"])
        self._exclude = _pattern(config.exclude)
        self._rows: WeakKeyDictionary[Session, Rows] = WeakKeyDictionary()

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """What was asked for is answered. Where a person has spoken, it may now be what they want."""
        if any(message["source"].get("kind") == "user" for message in step.messages):
            self._rows.pop(step.agent.session, None)
        elif rows := self._rows.get(step.agent.session):
            rows.asked.is_told = True
        return await following()

    async def before_call(
        self, execution: ToolExecution, following: Callable[[], Awaitable[PreDecision]]
    ) -> PreDecision:
        """Refuse what was asked for too often; end the turn when that does not help."""
        rows, agent = self._rows_of(execution), execution.agent
        if rows is None or agent is None:
            return await following()
        count, config = rows.asked.add(execution), self._config
        is_over = config.end_turn_at is not None and count >= config.end_turn_at
        if is_over and rows.asked.is_told:
            self._end_turn(agent, execution.name, count)
        elif not is_over and (config.block_at is None or count < config.block_at):
            return await following()
        return Deny(
            f"refused, because this call was made {count} times in a row with the same arguments; its result "
            "will not change, so do something else"
        )

    async def after_call(
        self, call: Settled, following: Callable[[], Awaitable[PostDecision]]
    ) -> PostDecision:
        """Remind the model before whatever else it is told after this call."""
        decision = await following()
        rows, config = self._rows_of(call.execution), self._config
        count = 0 if rows is None else rows.answered.add(call.execution)
        if count not in config.thresholds:
            return decision
        reminder = self._reminder(call.execution, count)
        return msgspec.structs.replace(
            decision, additional_contexts=(reminder, *decision.additional_contexts)
        )

    def _rows_of(self, execution: ToolExecution) -> Rows | None:
        """None where calls are not counted: nobody's, those that a tool makes, those of other tools."""
        session, name = execution.session, execution.name
        if session is None or execution.parent is not None:
            return None
        if not self._include.fullmatch(name) or self._exclude.fullmatch(name):
            return None
        return self._rows.setdefault(session, Rows())

    def _end_turn(self, agent: AgentRef, tool: str, count: int) -> None:
        agents = self._ctx.get(AGENTS)
        live = None if agents is None else agents.get(agent.id)
        if live is None:
            return
        self._rows.pop(agent.session, None)
        self._ctx.logger.warning(
            "agent %s made the same call of %s %d times in a row: its turn is ended", agent.id, tool, count
        )
        live.cancel({"kind": "hook", "reason": LIMIT}, keep_inbox=True)

    def _reminder(self, execution: ToolExecution, count: int) -> Message:
        text = NUDGE
        if count != self._config.thresholds[0]:
            shown = _shortened(_told(execution.arguments), self._config.arguments_preview_chars)
            text = (
                f"`{execution.name}` was called {count} times in a row with the same arguments: {shown}\n"
                "Calling it again will not help. Say what you expected of it, then go another way."
            )
        source = {
            "kind": "plugin",
            "plugin": OWNER,
            "form": "notice",
            "summary": f"{execution.name} × {count}",
        }
        return user_message(text, source)


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Matches what any of the names matches; nothing where there is none."""
    any_of = (
        "".join(".*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", n)) for n in names
    )
    return re.compile("|".join(any_of) or r"(?!)", re.DOTALL)


def _told(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encode(arguments).decode()


def _shortened(text: str, max_chars: int) -> str:
    missing = len(text) - max_chars
    return text if missing <= 0 else f"{text[:max_chars]}… ({missing} more characters)"


def apply(ctx: Context, config: Config) -> None:
    reminder = Reminder(ctx, config)
    ctx.on(AGENT_PRE_STEP, reminder.before_step)
    ctx.on(TOOLS_PRE_EXECUTE, reminder.before_call, prepend=True)
    ctx.on(TOOLS_POST_EXECUTE, reminder.after_call)
