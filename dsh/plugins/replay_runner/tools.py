"""Recorded tools: each call gets the result that it got, and nothing is touched.

The policies around a call are part of what came of it, so they are not asked again. A tool need not exist
here: whatever was called is stood in for.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dsh.kernel import Context
from dsh.session.event import SessionEvent
from dsh.session.message import Message
from dsh.session.replay.cursor import Cursor
from dsh.session.replay.recording import Life, Recording, is_compared
from dsh.tools.definition import RESERVED_NAME, Resources, ToolDefinition, ToolOutput
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    Accept,
    Allow,
    PostDecision,
    PreDecision,
    Settled,
)
from dsh.tools.execution import ToolExecution, ToolFailure, ToolResult, ToolSuccess
from dsh.tools.registry import TOOLS

SPLICED = "agent/inbox/spliced"
PATIENCE = 300
"""Turns of the event loop in which nothing comes that a result waits for before its turn."""
CROWDED = 30
"""Turns of the event loop after which a call that has to start is taken to wait for room."""


class Feeder(Protocol):
    """The life that the tools belong to."""

    cursor: Cursor

    def feed(self, *, in_body: bool = False) -> None: ...

    def diverged(self, problem: str) -> None: ...


class RecordedTools:
    """Answers the calls of one life. State: the results to come, by the id of their call."""

    def __init__(self, recording: Recording, life: Life, feeder: Feeder) -> None:
        self._feeder = feeder
        self._results: dict[str, deque[SessionEvent | None]] = defaultdict(deque)
        self._given: dict[object, SessionEvent] = {}
        """The results that were handed out and not reviewed yet, by the token of the execution."""
        self._contexts: dict[int, list[Message]] = {}
        """What was to be told to the model beside a result, by the seq of the result."""
        self._called: dict[str, dict[str, Any]] = {}
        """What is known of each tool, by name."""
        self._concluding: set[int] = set()
        """Seqs of results after which the turn ended although the model had not answered them."""
        self._followers: set[int] = set()
        """Seqs of results that came with the one before them: their tools may have been over long before."""
        self._waiting: set[int] = set()
        """Seqs of the results whose tools are at work."""
        self._read(recording, life)

    def _read(self, recording: Recording, life: Life) -> None:
        open_calls: dict[str, deque[int]] = defaultdict(deque)
        latest: int | None = None
        told: list[Message] | None = None
        for event in filter(is_compared, recording.marks):
            data: Any = event.data
            if event.type == SPLICED and told is not None and data["inserted"]:
                told += [m for m in data["inserted"] if m["source"].get("kind") != "user"]
                continue
            if told is not None and event.type == "tool/result":
                self._followers.add(event.seq)
            told = self._contexts.setdefault(event.seq, []) if event.type == "tool/result" else None
            if event.type == "request/header":
                self._called |= {tool["name"]: dict(tool) for tool in data["header"].get("tools") or ()}
            if not life.start <= event.seq < life.stop:
                continue
            match event.type:
                case "tool/call":
                    call_id = str(data["callId"])
                    self._called.setdefault(str(data["name"]), {"name": str(data["name"])})
                    open_calls[call_id].append(len(self._results[call_id]))
                    self._results[call_id].append(None)
                case "tool/result":
                    call_id = str(data["message"]["source"].get("callId"))
                    if event.surface == "append" and open_calls[call_id]:
                        self._results[call_id][open_calls[call_id].popleft()] = event
                        latest = event.seq
                case "step/start" | "assistant/message":
                    latest = None
                case "turn/end":
                    if latest is not None and data["reason"].get("kind") == "completed":
                        self._concluding.add(latest)

    def install(self, ctx: Context) -> None:
        """Stand in for the tools of the agent whose scope this is."""
        tools = ctx.use(TOOLS)
        for name, known in self._called.items():
            if name and name != RESERVED_NAME:
                tools.register(_stand_in(known, self._feeder))
        ctx.on(TOOLS_PRE_EXECUTE, self._on_pre_execute, prepend=True)
        ctx.on(TOOLS_EXECUTE, self._on_execute, prepend=True)
        ctx.on(TOOLS_POST_EXECUTE, self._on_post_execute, prepend=True)

    async def _on_pre_execute(
        self, execution: ToolExecution, following: Callable[[], Awaitable[PreDecision]]
    ) -> PreDecision:
        self._feeder.feed()
        return Allow()

    async def _on_execute(
        self, execution: ToolExecution, following: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        waiting = self._results.get(execution.call_id)
        if not waiting:
            return ToolFailure.of("this call was not recorded")
        result = waiting.popleft()
        if result is None:
            await self._until(None, execution)
            self._feeder.diverged("a tool is at work that had no result, and the recording goes on")
            return ToolFailure.of("the result of this call was not recorded")
        await self._until(result.seq, execution)
        self._given[execution.token] = result
        if result.seq in self._concluding:
            execution.conclude_turn()
        return _result(result)

    async def _on_post_execute(
        self, settled: Settled, following: Callable[[], Awaitable[PostDecision]]
    ) -> PostDecision:
        """The result is the reviewed one already; what was said beside it is said again.

        A policy that looks into the value of a tool finds none that it knows, and has nothing to say then.
        """
        try:
            contexts = (await following()).additional_contexts
        except Exception:
            contexts = ()
        result = self._given.pop(settled.execution.token, None)
        if not contexts and result is not None:
            contexts = tuple(self._contexts.get(result.seq, ()))
        return Accept(additional_contexts=contexts)

    async def _until(self, seq: int | None, execution: ToolExecution) -> None:
        """Give what came while the tool ran, and let earlier results pass."""
        feeder, cursor = self._feeder, self._feeder.cursor
        position, idle = cursor.position, 0
        if seq is not None:
            self._waiting.add(seq)
        try:
            while idle < PATIENCE:
                feeder.feed(in_body=True)
                is_reached = seq is not None and cursor.position >= seq
                if is_reached or execution.signal.cancelled or cursor.divergence is not None:
                    return
                if idle and idle % CROWDED == 0 and self._makes_room(seq):
                    return
                await asyncio.sleep(0)
                idle = idle + 1 if cursor.position == position else 0
                position = cursor.position
        finally:
            self._waiting.discard(seq or 0)

    def _makes_room(self, seq: int | None) -> bool:
        """Whether this tool was over before earlier ones were, so that another could start in its place."""
        expected = self._feeder.cursor.expected_event
        is_call = expected is not None and expected.type == "tool/call"
        return is_call and seq == min(self._waiting & self._followers, default=None)


def _stand_in(known: dict[str, Any], feeder: Feeder) -> ToolDefinition:
    """A tool that shows whatever it is handed as its value, and overlaps with others as it did then."""

    async def execute(arguments: object, execution: ToolExecution) -> object:
        return {"content": []}

    def resources(arguments: object, call: object) -> Resources | None:
        feeder.feed()
        expected = feeder.cursor.expected_event
        return Resources() if expected is not None and expected.type == "tool/call" else None

    return ToolDefinition(
        name=str(known["name"]),
        description=str(known.get("description", "")),
        parameters=known.get("parameters") or {"type": "object"},
        output=ToolOutput(
            schema={},
            render=lambda args, value: value["content"],
            presentation_meta=lambda args, value: value.get("meta"),
        ),
        execute=execute,
        timeout_ms=None,
        resources=resources,
    )


def _result(event: SessionEvent) -> ToolResult:
    """The result that a `tool/result` tells of."""
    data: Any = event.data
    block = data["message"]["content"][0]
    content = tuple(block["content"])
    if not block.get("isError"):
        value = {"content": list(content)}
        if "meta" in data:
            value["meta"] = data["meta"]
        return ToolSuccess(value=value, content=content)
    error = data.get("error") or {}
    return ToolFailure(message="", content=content, name=error.get("name"), code=error.get("code"))
