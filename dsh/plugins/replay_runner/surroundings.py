"""What the surroundings of a run say to the model, as they said it when it was recorded.

System prompt, tool schemas, runtime context and the choice of the model come from the machine, the
composition and the user, not from the loop. A replay is given them; where the composition would say something
else, that is noted and is no difference.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AGENT_TURN_STOPPING,
    EnterStep,
    PreStep,
    PreStepDecision,
    RequestFailed,
    RequestSeed,
    RetryRequest,
    TurnStopping,
)
from dsh.agent.prompt import (
    RUNTIME_CONTEXT_OWNER,
    SYSTEM_PROMPT_ASSEMBLE,
    AssembleRequest,
    PromptAssembly,
    PromptSection,
)
from dsh.capabilities.approval import ApprovalOutcome, ApprovalRequest
from dsh.capabilities.replay import GivenSources
from dsh.kernel import Context
from dsh.llm.request import LlmCallConfig
from dsh.llm.retry import policy_key
from dsh.session.event import SessionEvent
from dsh.session.message import Message, ToolSchema
from dsh.session.replay.cursor import Cursor
from dsh.session.replay.recording import Recording, is_compared
from dsh.session.value import json_equal
from dsh.tools.registry import TOOLS

PROMPT_NOTE = "the system prompt of this composition is not the recorded one, which was used"
TOOLS_NOTE = "the tools of this composition are not described as the recorded ones, which were used"
CONTEXT_NOTE = "the runtime context of this composition is not the recorded one, which was used"
MESSAGES_NOTE = "what rows add to a step is not what was recorded, which was used"
RECORDED = "recorded"
UNKNOWN = "unknown"
"""The model of a session that was cut off before it asked one."""


class Surroundings:
    """Listens around the steps of one agent. State: what is to be noted."""

    def __init__(
        self,
        recording: Recording,
        cursor: Cursor,
        notes: dict[str, None],
        feed: Callable[[], Awaitable[None]],
        *,
        given: GivenSources,
        is_noted: bool,
    ) -> None:
        """`feed` gives what is due at each place where the loop waits."""
        self._recording, self._cursor, self._notes = recording, cursor, notes
        self._feed, self._given = feed, given
        self._is_noted = is_noted
        self._headers = [event for event in recording.marks if event.type == "request/header"]
        self._snapshots = [event for event in recording.marks if _is_snapshot(event)]
        self._policy_changes = frozenset(_policy_changes(recording.marks))
        self._composed_tools: Callable[[], tuple[ToolSchema, ...]] = tuple

    def install(self, ctx: Context) -> None:
        """Take part in the agent whose scope this is."""
        registry = ctx.use(TOOLS)
        self._composed_tools = lambda: registry.schemas(None)
        ctx.on(SYSTEM_PROMPT_ASSEMBLE, self._on_assemble, prepend=True)
        ctx.on(AGENT_PRE_STEP, self._on_pre_step, prepend=True)
        ctx.on(AGENT_REQUEST, self._on_request, prepend=True)
        ctx.on(AGENT_REQUEST_ERROR, self._on_error, prepend=True)
        ctx.on(AGENT_TURN_STOPPING, self._on_stopping, prepend=True)

    async def decide(
        self, request: ApprovalRequest, following: Callable[[], Awaitable[ApprovalOutcome]]
    ) -> ApprovalOutcome:
        """Answer a question as it was answered."""
        for event in self._recording.marks:
            if event.seq >= self._cursor.position and event.type == "approval/decided":
                outcome: ApprovalOutcome = event.data["outcome"]
                return outcome
        return await following()

    async def _on_assemble(
        self, request: AssembleRequest, following: Callable[[], Awaitable[PromptAssembly]]
    ) -> PromptAssembly:
        await self._feed()
        header = self._header()
        config = {} if header is None else header["config"]
        for name in ("provider", "model"):
            request.variables[name] = str(config.get(name, UNKNOWN))
        composed = await following()
        context = self._context()
        if self._is_noted:
            self._note(CONTEXT_NOTE, [s.text for s in composed.context] == [s.text for s in context])
        if header is None:
            return PromptAssembly(composed.sections, composed.tools, context)
        system = str(header.get("system") or "")
        tools = tuple(
            ToolSchema(tool["name"], tool["description"], tool["parameters"])
            for tool in header.get("tools") or ()
        )
        if self._is_noted:
            self._note(PROMPT_NOTE, composed.system == system)
            here = self._composed_tools()
            known = {tool.name for tool in here}
            comparable = tuple(t for t in tools if t.name in known) if self._given.has_tools else tools
            self._note(TOOLS_NOTE, _same_tools(here, comparable))
        sections = (PromptSection(RECORDED, system),) if system else ()
        return PromptAssembly(sections, tools, context)

    async def _on_pre_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        await self._feed()
        decision = await following()
        await self._feed()
        if not self._is_noted or not isinstance(decision, EnterStep):
            return decision
        return EnterStep(self._entering(step, decision.messages))

    async def _on_request(
        self, seed: RequestSeed, following: Callable[[], Awaitable[LlmCallConfig]]
    ) -> LlmCallConfig:
        await self._feed()
        composed = await following()
        header = self._header()
        if header is None:
            return composed
        config, filled = dict(header["config"]), header.get("adapterDefaults") or {}
        for key in filled:
            config.pop(key, None)
        return LlmCallConfig.from_json(config)

    async def _on_error(
        self, failed: RequestFailed, following: Callable[[], Awaitable[RetryRequest | None]]
    ) -> RetryRequest | None:
        """Whether an attempt was repeated is the recording's to say: the policy was the provider's."""
        await self._feed()
        expected = self._cursor.expected_event
        if expected is None or expected.type == "step/end":
            return None
        asks_for_time = failed.failure.provider_retry_after_ms is not None
        if expected.type == "llm/retry" and (asks_for_time or expected.seq in self._policy_changes):
            return await self._repeated(failed, expected)
        return await following()

    async def _repeated(self, failed: RequestFailed, expected: SessionEvent) -> RetryRequest | None:
        """A retry as recorded: what the provider asked for is not waited for, a changed policy is not known.

        It stands under the policy of the replay, so that those that are made again go on counting from it.
        """
        session, policy = failed.agent.session, failed.retry_policy
        key = expected.data["policyKey"] if policy is None else policy_key(policy)
        session.append(expected.type, {**expected.data, "policyKey": key})
        await self._feed()
        started = self._cursor.expected_event
        if started is None or started.type != "llm/retry-started" or failed.signal.cancelled:
            return None
        session.append(started.type, started.data)
        return {"kind": "retry"}

    async def _on_stopping(self, stopping: TurnStopping) -> None:
        await self._feed()

    # -- what was recorded -----------------------------------------------------------------------

    def _entering(self, step: PreStep, composed: Sequence[Message]) -> Sequence[Message]:
        """The messages that enter a step: as composed, where rows add to it what they added, such as a file's
        text; else with what was added then, in the order of then.

        What was claimed from the inbox is not touched, nor is a snapshot that the loop has made.
        """
        recorded = self._entered()
        claimed = {message["id"]: message for message in step.messages}
        ids = {message["id"] for message in recorded}
        if not recorded or any(m["id"] in claimed and m["id"] not in ids for m in composed):
            return composed
        snapshots = [message for message in composed if _is_runtime_context(message)]
        known = [message for message in recorded if _is_runtime_context(message)]
        self._note(CONTEXT_NOTE, json_equal(_texts(snapshots), _texts(known)))
        own = {*claimed, *(message["id"] for message in (*snapshots, *known))}
        here, there = ([m for m in messages if m["id"] not in own] for messages in (composed, recorded))
        composable = [m for m in there if not self._given.covers(m)]
        self._note(MESSAGES_NOTE, json_equal(_added(here), _added(composable)))
        if json_equal(_added(here), _added(there)):
            return composed
        out: list[Message] = []
        for message in recorded:
            if _is_runtime_context(message):
                out += snapshots[:1]
            elif message["id"] in claimed:
                out.append(claimed[message["id"]])
            elif message["source"].get("kind") != "user":
                out.append(message)
        return out or composed

    def _entered(self) -> list[Message]:
        """The messages that entered the step that comes next."""
        out: list[Message] = []
        has_begun = False
        for event in filter(is_compared, self._cursor.following()):
            if has_begun and event.type != "user/message":
                break
            if has_begun:
                out.append(cast(Message, event.data))
            has_begun = has_begun or event.type == "step/start"
        return out

    def _header(self) -> Mapping[str, Any] | None:
        """The head of the request that comes next: its own, else the one in force."""
        for event in self._cursor.following():
            if event.type == "request/header":
                return _content(event)
        found = None
        for event in self._headers:
            if event.seq >= self._cursor.position:
                break
            found = _content(event)
        return found

    def _context(self) -> tuple[PromptSection, ...]:
        """The runtime context of the step that comes next."""
        for event in self._cursor.following():
            if _is_snapshot(event):
                return _sections(event)
        found: tuple[PromptSection, ...] = ()
        for event in self._snapshots:
            if event.seq >= self._cursor.position:
                break
            found = _sections(event)
        return found

    def _note(self, note: str, is_same: bool) -> None:
        if not is_same:
            self._notes[note] = None


def _content(event: SessionEvent) -> Mapping[str, Any]:
    content: Mapping[str, Any] = event.data["header"]
    return content


def _policy_changes(marks: Sequence[SessionEvent]) -> Iterable[int]:
    """The seqs of retries under another policy than the one before in their step and on their route."""
    policies: dict[tuple[int, int, str], str] = {}
    for event in marks:
        if event.type == "llm/retry":
            data = event.data
            place, key = (data["turn"], data["step"], data["provider"]), data["policyKey"]
            if policies.setdefault(place, key) != key:
                policies[place] = key
                yield event.seq


def _is_snapshot(event: SessionEvent) -> bool:
    return event.type == "user/message" and _is_runtime_context(event.data)


def _is_runtime_context(message: Message) -> bool:
    source = message["source"]
    return (source.get("kind"), source.get("plugin")) == ("plugin", RUNTIME_CONTEXT_OWNER)


def _texts(messages: Iterable[Message]) -> list[Any]:
    return [message["content"] for message in messages]


def _added(messages: Iterable[Message]) -> list[Any]:
    """What rows say in these messages."""
    return [[m["content"], m["source"]] for m in messages]


def _sections(event: SessionEvent) -> tuple[PromptSection, ...]:
    told = event.data["source"].get("sections") or ()
    return tuple(PromptSection(one["name"], one["text"], order) for order, one in enumerate(told))


def _same_tools(composed: tuple[ToolSchema, ...], recorded: tuple[ToolSchema, ...]) -> bool:
    here, there = ({tool.name: tool.to_json() for tool in tools} for tools in (composed, recorded))
    return json_equal(here, there)
