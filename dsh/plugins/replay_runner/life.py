"""The replay of one life of a session: what came from outside comes again, where it came.

An event of the recording that the loop cannot make by itself is given as soon as it is the next one to come:
at each place where the loop waits for somebody, and between turns. Everything else has to come by itself.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from dsh.agent.contract import (
    AGENT_ERROR,
    AGENT_INBOX_CLAIMED,
    Agent,
    AgentFailed,
    AgentHandle,
    AgentOptions,
    CancelCause,
    CreateAgent,
    InboxClaimed,
)
from dsh.agent.registry import AGENTS
from dsh.capabilities.approval import APPROVAL_REQUEST
from dsh.capabilities.commands import COMMANDS
from dsh.capabilities.replay import ReplayTask
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.kernel.foreign import contained
from dsh.plugins.replay_runner.model import UNNAMED, RecordedModel
from dsh.plugins.replay_runner.places import masks, moves
from dsh.plugins.replay_runner.surroundings import Surroundings
from dsh.plugins.replay_runner.tools import RecordedTools
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.message import Message
from dsh.session.replay.cursor import Counts, Cursor, Divergence
from dsh.session.replay.recording import Life
from dsh.session.store import SESSION_DELTA, SESSION_EVENT, Appended, DeltaAppended
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolResult

TICKS = 30
"""Turns of the event loop after which nothing that is ready is left undone."""
STALL_S = 30.0
"""How long recorded tools and a recorded model may be silent."""
STOP_AFTER_S = 0.5
"""How long a live tool works that was stopped when it was recorded."""
SPLICED = "agent/inbox/spliced"
_MADE_LIVE = frozenset({"agent-instructions", "hooks-claude-code", "hooks-codex"})
"""By kind or plugin: messages that rows of a live replay put into the inbox again by themselves."""
_MADE = ("turn/", "step/", "assistant/", "tool/", "request/", "llm/", "compaction/", "command/", "session/")
"""What the loop and its rows make by themselves; other events are facts, which are put into the log."""


class LifeRun:
    """State: the place in the recording, the live agent, a command under way, whether the replay is over."""

    def __init__(
        self, ctx: Context, task: ReplayTask, life: Life, counts: Counts, notes: dict[str, None]
    ) -> None:
        self._ctx, self._task, self._life = ctx, task, life
        self._recording = task.recording
        self._is_live = task.tools == "live"
        directory = task.directory if self._is_live else None
        self.cursor = Cursor(task.recording, life, counts, masks(task.recording.header.cwd, directory))
        self._move = moves(task.recording.header.cwd, directory)
        self._cancellations = deque(
            c for c in task.recording.cancellations if life.start <= c.seq < life.stop
        )
        self._surroundings = Surroundings(
            task.recording, self.cursor, notes, given=task.given, is_noted=not self._is_live
        )
        self._agent: Agent | None = None
        self._claimed: set[str] = set()
        self._command: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._is_feeding = False
        self._seen = 0
        self._error: BaseException | None = None
        """Why the loop gave the turn up, told before it ends."""

    # -- from outside ----------------------------------------------------------------------------

    async def run(self, model: RecordedModel) -> Divergence | None:
        """Live this life; answers the first difference, None for none.

        Raises:
            DshError: the agent cannot be made.
        """
        model.begin(self._life, self, self._move)
        undo = [
            self._ctx.on(SESSION_EVENT, self._on_event, global_=True),
            self._ctx.on(SESSION_DELTA, self._on_delta, global_=True),
        ]
        handle: AgentHandle | None = None
        try:
            handle = await self._create()
            self._agent = handle.agent
            await self._drive(handle.agent)
        finally:
            self._over.set()
            for effect in undo:
                await effect()
            if self._command is not None:
                self._command.cancel()
            if handle is not None:
                await handle.dispose()
        divergence = self.cursor.divergence
        if divergence is not None and self._error is not None:
            problem = f"{divergence.problem}; the turn failed: {' '.join(str(self._error).split())}"
            divergence = msgspec.structs.replace(divergence, problem=problem)
        return divergence

    def give_up(self) -> None:
        """Nothing follows that could be compared."""
        self._over.set()

    def diverged(self, problem: str) -> None:
        """The run cannot go on as the recording does. Once it is over, nothing counts any more."""
        if not self._over.is_set():
            self.cursor.stopped(problem)
            self._over.set()

    def feed(self, *, in_body: bool = False) -> None:
        """Give whatever is due. Called where the loop waits for somebody, never during an append."""
        if self._is_feeding or self._over.is_set() or self._agent is None:
            return
        self._is_feeding = True
        try:
            while not self._over.is_set() and self._give(self._agent, in_body):
                pass
        except DshError as error:
            self.diverged(f"what was recorded cannot be given to the agent: {error}")
        finally:
            self._is_feeding = False

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
        self._surroundings.install(ctx, self.feed)
        ctx.on(AGENT_INBOX_CLAIMED, self._on_claim)
        ctx.on(AGENT_ERROR, self._on_error)
        if self._is_live:
            ctx.on(APPROVAL_REQUEST, self._surroundings.decide, prepend=True)
            ctx.on(TOOLS_EXECUTE, self._on_live_tool, prepend=True)
        else:
            RecordedTools(self._recording, self._life, self).install(ctx)

    async def _on_live_tool(
        self, execution: ToolExecution, following: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """A live tool that was stopped is stopped again, a little after it has begun."""
        waiting, agent = self._cancellations, self._agent
        if agent is None or not waiting or not waiting[0].is_in_tool:
            return await following()
        later = asyncio.get_running_loop().call_later(STOP_AFTER_S, self._cancel, agent, True)
        try:
            return await following()
        finally:
            later.cancel()

    async def _drive(self, agent: Agent) -> None:
        """Until the recording is at its end, or the replay parts from it."""
        while not self._over.is_set():
            self.feed()
            seen = self._seen
            await self._settled(agent)
            if self._over.is_set() or self._seen != seen:
                continue
            if self.cursor.is_at_end:
                return
            if agent.status == "idle" and self._command is None:
                expected = self.cursor.expected_event
                if expected is None or expected.type != "turn/start":
                    self.diverged("the replay has come to rest where the recording goes on")
                elif not agent.continue_pending():
                    self.diverged("a turn begins, and the recording does not tell what came in")

    async def _settled(self, agent: Agent) -> None:
        """Wait until nothing moves any more."""
        over = asyncio.ensure_future(self._over.wait())
        idle = asyncio.ensure_future(agent.when_idle())
        waiting = {over, idle} if self._command is None else {over, self._command}
        try:
            seen = self._seen
            limit = None if self._is_live else STALL_S
            done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done and self._seen == seen:
                self.diverged("the replay stands still where the recording goes on")
            for _ in range(TICKS):
                await asyncio.sleep(0)
        finally:
            for future in (over, idle):
                future.cancel()

    # -- what is given ---------------------------------------------------------------------------

    def _give(self, agent: Agent, in_body: bool) -> bool:
        """Give what is due next; answers whether anything was."""
        if self._cancel(agent, in_body):
            return True
        event = self.cursor.expected_event
        if event is None or self._command is not None or self._is_to_be_cancelled(agent):
            return False
        if event.type == SPLICED:
            return self._splice(agent, event)
        if event.type == "command/run":
            self._run_command(agent, event)
            return False
        is_fact = not event.type.startswith((*_MADE, "approval/asked", "approval/decided", "user/"))
        if in_body:
            is_fact = is_fact or event.type.startswith(("approval/", "tool/code-dispatch"))
        elif self._is_live and agent.session.open_step is not None:
            is_fact = False
        if is_fact:
            agent.session.append(event.type, event.data)
        return is_fact

    def _cancel(self, agent: Agent, in_body: bool) -> bool:
        """Stop the turn where it was stopped; one that a limit of its own has stopped meanwhile is over."""
        waiting, position = self._cancellations, self.cursor.position
        while waiting and agent.session.open_turn != waiting[0].turn and position > waiting[0].seq:
            waiting.popleft()
        if not waiting or position < waiting[0].seq or agent.session.open_turn != waiting[0].turn:
            return False
        if waiting[0].is_in_tool and not in_body:
            return False
        cancellation = waiting.popleft()
        agent.cancel(cast(CancelCause, dict(cancellation.cause)), keep_inbox=cancellation.keeps_inbox)
        return True

    def _is_to_be_cancelled(self, agent: Agent) -> bool:
        """What comes next is there because of a cancellation, which waits for its tool."""
        waiting = self._cancellations
        is_due = bool(waiting) and self.cursor.position >= waiting[0].seq
        return is_due and agent.session.open_turn == waiting[0].turn

    def _cancel_at_once(self, agent: Agent) -> None:
        """The same right behind the last event before, where the loop does not wait for anybody.

        An append is being told of, so nothing may be dropped from the inbox here.
        """
        waiting = self._cancellations
        if not waiting or self.cursor.position != waiting[0].seq or waiting[0].is_in_tool:
            return
        if waiting[0].keeps_inbox or not agent.inbox.has_pending:
            self._cancel(agent, False)

    def _splice(self, agent: Agent, event: SessionEvent) -> bool:
        """A change of the inbox from outside; claims are the loop's, and so is what it puts back."""
        data: Any = event.data
        inserted, removed = data["inserted"], data.get("removedCount", 0)
        if not inserted and data.get("outcome") != "canceled":
            return False
        waiting = agent.inbox.next_step if data["target"] == "next-step" else agent.inbox.next_turn
        taken = waiting[data["start"] : data["start"] + removed]
        if self._is_live and any(map(_is_made_live, (*inserted, *taken))):
            return False
        is_put_back = inserted and all(message["id"] in self._claimed for message in inserted)
        if is_put_back and agent.session.open_turn is not None:
            return False
        agent.inbox.splice(data["target"], data["start"], removed, inserted)
        return True

    def _run_command(self, agent: Agent, event: SessionEvent) -> None:
        commands = self._ctx.get(COMMANDS)
        if commands is None:
            self.diverged(f"the command /{event.data['name']} was run, and nobody runs commands here")
            return
        line = f"/{event.data['name']}{event.data.get('args', '')}"

        async def execute() -> None:
            try:
                await commands.execute(agent, line)
            except BaseException as raised:
                self.diverged(f"{line.split()[0]} cannot be run: {contained(raised, 'a command')}")
            finally:
                self._command = None

        self._command = asyncio.ensure_future(execute())

    # -- what comes ------------------------------------------------------------------------------

    def _on_event(self, appended: Appended) -> None:
        if appended.session.id != self._recording.header.id or self._over.is_set():
            return
        event = appended.event
        self._seen += 1
        if event.type == "turn/start":
            self._error = None
        if event.type == "user/message":
            self._claimed.discard(event.data["id"])
        self.cursor.see(event)
        self._after()

    def _on_delta(self, appended: DeltaAppended) -> None:
        if appended.session.id == self._recording.header.id and not self._over.is_set():
            self._seen += 1
            self.cursor.see_delta(appended.seq)
            self._after()

    def _after(self) -> None:
        cursor = self.cursor
        if cursor.divergence is not None or (cursor.is_at_end and self._life.is_cut):
            self._over.set()
            return
        if self._agent is not None:
            self._cancel_at_once(self._agent)
        if not isinstance(cursor.expected, ChunkRun) and not self._is_feeding:
            asyncio.get_running_loop().call_soon(self.feed)

    def _on_error(self, failed: AgentFailed) -> None:
        self._error = failed.error

    def _on_claim(self, claimed: InboxClaimed) -> None:
        self._claimed.add(claimed.message["id"])


def _is_made_live(message: Message) -> bool:
    source = message["source"]
    return bool({source.get("kind"), source.get("plugin")} & _MADE_LIVE)
