"""What came from outside in a recorded life: prompts, cancellations, commands, facts, given where they came.

An event of the recording that the loop cannot make by itself is given as soon as it is the next one to come:
at each place where the loop waits for somebody, and between turns. Everything else has to come by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from dsh.agent.contract import AGENT_INBOX_CLAIMED, Agent, InboxClaimed
from dsh.capabilities.commands import COMMANDS
from dsh.capabilities.jobs import Job
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.kernel.foreign import contained
from dsh.plugins.replay_runner.cancellations import Cancellations
from dsh.plugins.replay_runner.live_jobs import LiveJobs
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.message import Message
from dsh.session.replay.cursor import Cursor
from dsh.session.replay.recording import SPLICED, Life, Recording
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolResult

STOP_AFTER_S = 0.5
"""How long a live tool works that was stopped when it was recorded."""
_MADE_LIVE = frozenset({"agent-instructions", "hooks-claude-code", "hooks-codex"})
"""By kind or plugin: messages that rows of a live replay put into the inbox again by themselves."""
_MADE = ("turn/", "step/", "assistant/", "tool/", "request/", "llm/", "compaction/", "command/", "session/")
"""What the loop and its rows make by themselves; other events are facts, which are put into the log."""


class Outside:
    """State: the live agent once there is one, what was claimed, a command under way, whether all is over."""

    def __init__(
        self, ctx: Context, recording: Recording, life: Life, cursor: Cursor, *, is_live: bool
    ) -> None:
        self._ctx, self._is_live = ctx, is_live
        self.cursor = cursor
        self.agent: Agent | None = None
        self.command: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        """Nothing follows that could be compared."""
        self._cancellations = Cancellations(recording, life, cursor)
        self._jobs = LiveJobs(ctx)
        self._claimed: set[str] = set()
        self._is_feeding = False

    def install(self, ctx: Context) -> None:
        """Listen in the scope of the agent."""
        ctx.on(AGENT_INBOX_CLAIMED, self._on_claim)
        if self._is_live:
            self._jobs.install(ctx)
            ctx.on(TOOLS_EXECUTE, self._on_live_tool, prepend=True)

    def close(self) -> None:
        self.over.set()
        self._jobs.close()
        if self.command is not None:
            self.command.cancel()

    def diverged(self, problem: str) -> None:
        """The run cannot go on as the recording does. Once it is over, nothing counts any more."""
        if not self.over.is_set():
            self.cursor.stopped(problem)
            self.over.set()

    def seen(self, event: SessionEvent | None) -> None:
        """The log of the run has one more event, None for a packed piece of a reply."""
        if event is not None and event.type == "user/message":
            self._claimed.discard(event.data["id"])
        if self.agent is not None:
            self._cancellations.cancel_at_once(self.agent)
        if not isinstance(self.cursor.expected, ChunkRun) and not self._is_feeding:
            asyncio.get_running_loop().call_soon(self.feed)

    def feed(self, *, in_body: bool = False) -> None:
        """Give whatever is due. Called where the loop waits for somebody, never during an append."""
        if self._is_feeding or self.over.is_set() or self.agent is None:
            return
        self._is_feeding = True
        try:
            while not self.over.is_set() and self._give(self.agent, in_body):
                pass
        except DshError as error:
            self.diverged(f"what was recorded cannot be given to the agent: {error}")
        finally:
            self._is_feeding = False

    async def catch_up(self) -> None:
        """The same, and wait for the background job whose end is due."""
        self.feed()
        while (ending := self._ending_job()) is not None and not self.over.is_set():
            over = asyncio.ensure_future(self.over.wait())
            try:
                await asyncio.wait((ending, over), return_when=asyncio.FIRST_COMPLETED)
            finally:
                over.cancel()
            self.feed()

    def _give(self, agent: Agent, in_body: bool) -> bool:
        """Give what is due next; answers whether anything was."""
        if self._cancellations.cancel(agent, in_body=in_body):
            return True
        event = self.cursor.expected_event
        if event is None or self.command is not None or self._cancellations.is_due(agent):
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
        if self._is_live and not all(map(self._jobs.is_over, inserted)):
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
                self.command = None

        self.command = asyncio.ensure_future(execute())

    def _ending_job(self) -> asyncio.Task[Job] | None:
        event = self.cursor.expected_event
        if not self._is_live or event is None or event.type != SPLICED:
            return None
        endings = map(self._jobs.ending, event.data["inserted"])
        return next((ending for ending in endings if ending is not None), None)

    async def _on_live_tool(
        self, execution: ToolExecution, following: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """A live tool that was stopped is stopped again, a little after it has begun."""
        agent = self.agent
        if agent is None or not self._cancellations.is_in_tool:
            result = await following()
        else:
            stop = partial(self._cancellations.cancel, agent, in_body=True)
            later = asyncio.get_running_loop().call_later(STOP_AFTER_S, stop)
            try:
                result = await following()
            finally:
                later.cancel()
        await self.catch_up()
        return result

    def _on_claim(self, claimed: InboxClaimed) -> None:
        self._claimed.add(claimed.message["id"])


def _is_made_live(message: Message) -> bool:
    source = message["source"]
    return bool({source.get("kind"), source.get("plugin")} & _MADE_LIVE)
