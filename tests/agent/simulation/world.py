"""Plays a plan through the real rows on a fake clock, and keeps what is to be judged afterwards."""

import asyncio
from typing import Any

import msgspec

from dsh.agent.contract import (
    AGENT_STATUS,
    Agent,
    AgentHandle,
    AgentOptions,
    CreateAgent,
    ResumeAgent,
    RunLimits,
)
from dsh.agent.registry import AGENTS
from dsh.capabilities.approval import APPROVAL_REQUEST
from dsh.capabilities.compaction import COMPACTION, CompactionError
from dsh.capabilities.settings import SETTINGS
from dsh.kernel import CancelToken, Context, Fiber
from dsh.llm.grammar import check_stream
from dsh.llm.registry import LLM, LLM_STREAM, LlmRegistry
from dsh.persistence.service import PERSISTENCE
from dsh.plugins import (
    agent,
    agent_loop,
    approval,
    compaction_basic,
    llm_retry,
    repeat_tool_reminder,
    session,
    system_prompt,
    timeout_policy,
    token_meter,
    tool_result_pruner,
    tools,
)
from dsh.session.fork import fork_of
from dsh.session.message import user_message
from dsh.session.restore import restore
from dsh.session.store import SESSION_EVENT, Appended
from dsh.tools.event import TOOLS_PRE_EXECUTE
from dsh.tools.registry import TOOLS
from tests.agent.kit import settled
from tests.agent.simulation.meddling import meddle
from tests.agent.simulation.model import Model
from tests.agent.simulation.plan import Act, Limits, Part, Plan, Story
from tests.agent.simulation.record import Life, Record
from tests.agent.simulation.toolbox import Toolbox, answerer, policy

LONG_CHARS = 6_000
OPTIONS = AgentOptions(provider="p", model="m")


class Storage:
    """Stands in for a storage: sessions that are cut where somebody says."""

    def __init__(self) -> None:
        self.cuts: dict[str, tuple[Any, list[Any]]] = {}

    async def prepare(self, session_id: str) -> Any:
        header, events = self.cuts[session_id]

        class Prepared:
            session = restore(header, events).open()

            async def release(self) -> None:
                await asyncio.sleep(0)

        return Prepared()


class Cap:
    """Stands in for the settings: one option of the loop can be changed."""

    def __init__(self) -> None:
        self.now: int | None = None

    def register(self, namespace: str, schema: Any, *, base: Any, **_: Any) -> Any:
        cap = self

        class Scope:
            def get(self) -> Any:
                if namespace != "agent-loop" or cap.now is None:
                    return base
                return msgspec.structs.replace(base, max_parallel_tool_calls=cap.now)

            def watch(self, _: Any) -> None:
                return None

        return Scope()


class World:
    """One composition, and the lives in it."""

    def __init__(self, ctx: Context, record: Record, limits: Limits) -> None:
        self._ctx, self._record, self._limits = ctx, record, limits
        self._lives: dict[str, Life] = {}
        self._model = Model(self._lives.__getitem__)
        self._toolbox = Toolbox(self._lives.__getitem__, self._send)
        self._tools: Fiber
        self._tools_change = asyncio.Lock()
        self._storage, self._cap = Storage(), Cap()

    async def build(self, plan: Plan) -> None:
        ctx, limits = self._ctx, self._limits
        ctx.provide(PERSISTENCE, self._storage)  # type: ignore[misc]
        ctx.provide(SETTINGS, self._cap)  # type: ignore[misc]
        loop_config: dict[str, Any] = {"maxParallelToolCalls": limits.cap, "onTurnFailure": limits.on_failure}
        if limits.steps is not None:
            loop_config["maxStepsPerTurn"] = limits.steps
        if limits.turn_ms is not None:
            loop_config["maxTurnMs"] = limits.turn_ms
        rows: list[tuple[Any, dict[str, Any]]] = [
            (session, {}),
            (agent, {}),
            (tools, {}),
            (system_prompt, {}),
            (llm_retry, {}),
            (approval, {}),
            (token_meter, {}),
            (tool_result_pruner, {"thresholdChars": 2_000, "headChars": 200, "tailChars": 100}),
            (compaction_basic, {"maxTokens": 200}),
            (timeout_policy, {"defaultTimeoutMs": limits.default_timeout_ms}),
            (repeat_tool_reminder, {"thresholds": [2, 3], "blockAt": 4, "endTurnAt": 5}),
            (agent_loop, loop_config),
        ]
        mounted = [ctx.plugin(LlmRegistry, name="llm")]
        mounted += [ctx.plugin(module, config) for module, config in rows]
        for fiber in mounted:
            await settled(fiber)
        ctx.use(LLM).register_adapter(["p"], self._model)
        ctx.on(LLM_STREAM, check_stream, prepend=True, global_=True)
        ctx.on(AGENT_STATUS, lambda changed: self._lives[changed.agent.id].statuses.append(changed.status))
        ctx.on(SESSION_EVENT, self._note_cap)
        ctx.on(TOOLS_PRE_EXECUTE, policy)
        ctx.on(APPROVAL_REQUEST, answerer)
        for meddler in plan.meddlers:
            meddle(ctx, meddler, self._send)
        await self._mount_tools()

    async def _mount_tools(self) -> None:
        self._tools = self._ctx.plugin(self._toolbox.register, name="toolbox", inject=[TOOLS])
        await settled(self._tools)

    def _note_cap(self, appended: Appended) -> None:
        if appended.event.type == "assistant/message":
            self._lives[appended.session.id].cap = self._cap.now or self._limits.cap

    def _send(self, to: Agent, how: str, *, long: bool = False) -> None:
        message = user_message("word " * (LONG_CHARS // 5) if long else "a message")
        self._lives[to.id].sent.append(message["id"])
        {"followup": to.followup, "steer": to.steer, "inject": to.inject}[how](message)

    # -- stories ---------------------------------------------------------------------------------

    async def tell(self, name: str, story: Story) -> None:
        """One session from its beginning to the end of its last agent."""
        life = Life(name)
        await self._live(life, story.part, CreateAgent(session_id=name, cwd="/ws", **self._options()))
        if story.sequel is None:
            return
        events = [event.to_json() for event in life.session.events()]
        events = events[: len(events) * story.sequel.at_permille // 1000]
        request = self._resumed(life, events) if story.sequel.way == "resume" else self._forked(life, events)
        if request is not None:
            await self._live(Life(request.session_id or name, story.sequel.way), story.sequel.part, request)

    def _options(self) -> dict[str, Any]:
        return {"options": OPTIONS, "limits": RunLimits(steps=self._limits.run_steps)}

    def _resumed(self, life: Life, events: list[Any]) -> ResumeAgent:
        self._storage.cuts[life.name] = (life.session.header, events)
        return ResumeAgent(session_id=life.name, **self._options())

    def _forked(self, life: Life, events: list[Any]) -> CreateAgent | None:
        ends = [event["seq"] for event in events if event["type"] == "turn/end"]
        if not ends:
            return None
        seed = fork_of(life.session, ends[-1])
        return CreateAgent(
            session_id=f"{life.name}-fork",
            parent_session=life.name,
            seed=list(seed.entries),
            seed_length=seed.seed_length,
            **self._options(),
        )

    async def _live(self, life: Life, part: Part, request: CreateAgent | ResumeAgent) -> None:
        self._record.lives.append(life)
        self._lives[life.name] = life
        self._model.replies[life.name] = list(part.replies)
        self._model.summaries[life.name] = part.summaries
        owner = self._ctx.inject([AGENTS], lambda ctx: None)
        await settled(owner)
        agents = owner.ctx.use(AGENTS)
        made = agents.create(request) if isinstance(request, CreateAgent) else agents.resume(request)
        handle = await made
        life.session, life.inherited = handle.agent.session, handle.agent.session.first_live_seq
        await asyncio.gather(*(self._act(handle, owner, act) for act in part.acts))
        await handle.agent.when_idle()
        await handle.dispose()
        await owner.dispose()

    async def _act(self, handle: AgentHandle, owner: Fiber, act: Act) -> None:
        await asyncio.sleep(act.at_ms / 1000)
        match act.what:
            case "followup" | "steer" | "inject":
                self._send(handle.agent, act.what, long=act.long)
            case "cancel" | "cancel keeping":
                handle.agent.cancel({"kind": "user"}, keep_inbox=act.what == "cancel keeping")
            case "continue":
                handle.agent.continue_pending()
            case "maintain":
                await self._maintain(handle.agent)
            case "compact":
                await self._compact(handle.agent)
            case "cap":
                self._cap.now = 1 if act.long else 3
            case "tools again":
                async with self._tools_change:
                    await self._tools.dispose()
                    await self._mount_tools()
                for life in self._record.lives:
                    life.tools_changed = True
            case "dispose":
                await handle.dispose()
            case "end owner":
                await owner.dispose()

    async def _maintain(self, subject: Agent) -> None:
        async def job(token: CancelToken) -> None:
            await asyncio.sleep(0.05)

        if subject.status == "idle":
            try:
                await subject.run_maintenance(job)
            except Exception as error:
                if getattr(error, "code", None) != "busy":
                    raise

    async def _compact(self, subject: Agent) -> None:
        try:
            await self._ctx.use(COMPACTION).compact_now(subject)
        except CompactionError:
            return

    async def end(self) -> None:
        await self._toolbox.strays_end()


async def play(plan: Plan) -> Record:
    """Run a plan to its end, and dispose of everything."""
    record = Record()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, told: record.errors.append(str(told.get("exception") or told["message"]))
    )
    ctx = Context()
    try:
        world = World(ctx, record, plan.limits)
        await world.build(plan)
        await asyncio.gather(*(world.tell(f"s{n}", story) for n, story in enumerate(plan.stories)))
        await world.end()
    finally:
        await ctx.dispose()
    for _ in range(5):
        await asyncio.sleep(0)
    record.left = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    record.listeners_left = ctx.kernel.events.count()
    return record
