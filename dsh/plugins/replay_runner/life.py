"""The replay of one life of a session: an agent is made as it was, and driven to the end of the recording."""

import asyncio

import msgspec

from dsh.agent.contract import (
    AGENT_ERROR,
    Agent,
    AgentFailed,
    AgentHandle,
    AgentOptions,
    CreateAgent,
)
from dsh.agent.registry import AGENTS
from dsh.capabilities.approval import APPROVAL_REQUEST
from dsh.capabilities.replay import ReplayTask
from dsh.kernel import Context
from dsh.plugins.replay_runner.model import UNNAMED, RecordedModel
from dsh.plugins.replay_runner.outside import Outside
from dsh.plugins.replay_runner.places import masks, moves
from dsh.plugins.replay_runner.surroundings import Surroundings
from dsh.plugins.replay_runner.tools import RecordedTools
from dsh.session.event import SessionEvent
from dsh.session.replay.cursor import Counts, Cursor, Divergence
from dsh.session.replay.recording import Life
from dsh.session.store import SESSION_DELTA, SESSION_EVENT, Appended, DeltaAppended

TICKS = 30
"""Turns of the event loop after which nothing that is ready is left undone."""
STALL_S = 30.0
"""How long recorded tools and a recorded model may be silent."""


class LifeRun:
    """State: the place in the recording, what came from outside, how much was seen."""

    def __init__(
        self, ctx: Context, task: ReplayTask, life: Life, counts: Counts, notes: dict[str, None]
    ) -> None:
        self._ctx, self._task, self._life = ctx, task, life
        self._recording = task.recording
        self._is_live = task.tools == "live"
        directory = task.directory if self._is_live else None
        self.cursor = Cursor(task.recording, life, counts, masks(task.recording.header.cwd, directory))
        self._move = moves(task.recording.header.cwd, directory)
        self._outside = Outside(ctx, task.recording, life, self.cursor, is_live=self._is_live)
        self._surroundings = Surroundings(
            task.recording,
            self.cursor,
            notes,
            self._outside.catch_up,
            given=task.given,
            is_noted=not self._is_live,
        )
        self._seen = 0
        self._error: BaseException | None = None
        """Why the loop gave the turn up, told before it ends."""

    # -- from outside ----------------------------------------------------------------------------

    async def run(self, model: RecordedModel) -> Divergence | None:
        """Live this life; answers the first difference, None for none.

        Raises:
            DshError: the agent cannot be made.
        """
        model.begin(self._life, self._outside, self._move)
        undo = [
            self._ctx.on(SESSION_EVENT, self._on_event, global_=True),
            self._ctx.on(SESSION_DELTA, self._on_delta, global_=True),
        ]
        handle: AgentHandle | None = None
        try:
            handle = await self._create()
            self._outside.agent = handle.agent
            await self._drive(handle.agent)
        finally:
            self._outside.close()
            for effect in undo:
                await effect()
            if handle is not None:
                await handle.dispose()
        divergence = self.cursor.divergence
        if divergence is not None and self._error is not None:
            problem = f"{divergence.problem}; the turn failed: {' '.join(str(self._error).split())}"
            divergence = msgspec.structs.replace(divergence, problem=problem)
        return divergence

    def give_up(self) -> None:
        """Nothing follows that could be compared."""
        self._outside.over.set()

    # -- the agent -------------------------------------------------------------------------------

    async def _create(self) -> AgentHandle:
        header, given = self._recording.header, self._life.given
        first = next((e for e in self._recording.marks if e.type == "request/header"), None)
        config = first.data["header"]["config"] if first is not None else {}
        seed = self._recording.before(given) if given else None
        is_resumed = given > 0 and self._life.start > given
        return await self._ctx.use(AGENTS).create(
            CreateAgent(
                session_id=header.id,
                cwd=self._task.directory if self._is_live else header.cwd,
                parent_session=header.parent_session,
                origin=header.origin,
                delegation_depth=header.delegation_depth,
                agent_preset=header.agent_preset,
                seed=[] if seed is None and is_resumed else seed,
                seed_length=header.seed_length,
                options=AgentOptions(
                    provider=config.get("provider", UNNAMED), model=config.get("model", UNNAMED)
                ),
                setup=self._set_up,
            )
        )

    def _set_up(self, ctx: Context) -> None:
        self._surroundings.install(ctx)
        self._outside.install(ctx)
        ctx.on(AGENT_ERROR, self._on_error)
        if self._is_live:
            ctx.on(APPROVAL_REQUEST, self._surroundings.decide, prepend=True)
        else:
            RecordedTools(self._recording, self._life, self._outside).install(ctx)

    async def _drive(self, agent: Agent) -> None:
        """Until the recording is at its end, or the replay parts from it."""
        while not self._outside.over.is_set():
            await self._outside.catch_up()
            seen = self._seen
            await self._settled(agent)
            if self._outside.over.is_set() or self._seen != seen:
                continue
            if self.cursor.is_at_end:
                return
            if agent.status == "idle" and self._outside.command is None:
                expected = self.cursor.expected_event
                if expected is None or expected.type != "turn/start":
                    self._outside.diverged("the replay has come to rest where the recording goes on")
                elif not agent.continue_pending():
                    self._outside.diverged("a turn begins, and the recording does not tell what came in")

    async def _settled(self, agent: Agent) -> None:
        """Wait until nothing moves any more."""
        over = asyncio.ensure_future(self._outside.over.wait())
        idle = asyncio.ensure_future(agent.when_idle())
        waiting = {over, idle} if self._outside.command is None else {over, self._outside.command}
        try:
            seen = self._seen
            limit = None if self._is_live else STALL_S
            done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done and self._seen == seen:
                self._outside.diverged("the replay stands still where the recording goes on")
            for _ in range(TICKS):
                await asyncio.sleep(0)
        finally:
            for future in (over, idle):
                future.cancel()

    # -- what comes ------------------------------------------------------------------------------

    def _on_event(self, appended: Appended) -> None:
        if appended.session.id != self._recording.header.id or self._outside.over.is_set():
            return
        event = appended.event
        self._seen += 1
        if event.type == "turn/start":
            self._error = None
        self.cursor.see(event)
        self._after(event)

    def _on_delta(self, appended: DeltaAppended) -> None:
        if appended.session.id == self._recording.header.id and not self._outside.over.is_set():
            self._seen += 1
            self.cursor.see_delta(appended.seq)
            self._after(None)

    def _after(self, event: SessionEvent | None) -> None:
        cursor = self.cursor
        if cursor.divergence is not None or (cursor.is_at_end and self._life.is_cut):
            self.give_up()
        else:
            self._outside.seen(event)

    def _on_error(self, failed: AgentFailed) -> None:
        self._error = failed.error
