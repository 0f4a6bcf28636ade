"""A whole loop to test against: the real kernel, rows and registries, and a model that follows a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from dsh.agent.contract import AGENT_STATUS, Agent, AgentHandle, AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.kernel import Context
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.registry import LLM, LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.plugins import agent, agent_loop, session, system_prompt, tools
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from dsh.session.store import SESSION_EVENT, SESSIONS, Appended, SessionStore
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS, ToolRegistry
from dsh.tools.typed import typed_tool

Item = Chunk | Callable[[], Awaitable[object] | None]
Reply = Sequence[Item]
"""The chunks of one reply; a function among them is called (and awaited) when its turn comes."""


def text(words: str, *, finish: str = "stop", usage: bool = False) -> list[Item]:
    """A reply of one text block."""
    out: list[Item] = [
        BlockStart(0, "text"),
        TextDelta(0, words),
        BlockEnd(0, {"type": "text", "text": words}),
    ]
    if usage:
        out.append(UsageChunk({"inputTokens": 10, "outputTokens": 2}))
    return [*out, Finish({"kind": finish})]


def thought(words: str) -> list[Item]:
    """The open beginning of a reasoning block."""
    return [BlockStart(0, "reasoning"), ReasoningDelta(0, words)]


def calls(*asked: tuple[str, str, str], finish: str = "tool-calls") -> list[Item]:
    """A reply of tool calls, each `(id, name, raw arguments)`."""
    out: list[Item] = []
    for index, (call_id, name, raw) in enumerate(asked):
        block = {"type": "tool-call", "id": call_id, "name": name, "arguments": raw}
        out += [
            BlockStart(index, "tool-call"),
            ToolCallDelta(index, call_id, name, raw),
            BlockEnd(index, block),
        ]
    return [*out, Finish({"kind": finish})]


def failed(code: str, message: str = "it broke", *, kind: str = "error") -> list[Item]:
    """A reply that fails at once."""
    return [Finish({"kind": kind, "failure": {"message": message, "code": code}})]


class ScriptedModel(LlmAdapter):
    """Plays one reply per request, the last one for ever; keeps the requests."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[LlmRequest] = []
        self.closed = 0

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model, context_window=1000, default_max_tokens=100)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        number = len(self.requests)
        self.requests.append(request)
        try:
            for item in self.replies[min(number, len(self.replies) - 1)]:
                if callable(item):
                    answer = item()
                    if answer is not None:
                        await answer
                else:
                    yield item
        finally:
            self.closed += 1


class Loop:
    """One composition, and short ways to what a test needs of it."""

    def __init__(self, ctx: Context, model: ScriptedModel) -> None:
        self.ctx = ctx
        self.model = model
        self.statuses: list[str] = []
        ctx.on(AGENT_STATUS, lambda changed: self.statuses.append(changed.status))

    @property
    def tools(self) -> ToolRegistry:
        return self.ctx.use(TOOLS)

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)

    @property
    def sessions(self) -> SessionStore:
        return self.ctx.use(SESSIONS)

    async def create(self, **fields: Any) -> AgentHandle:
        fields.setdefault("options", AgentOptions(provider="p", model="m"))
        fields.setdefault("cwd", "/ws")
        return await self.ctx.use(AGENTS).create(CreateAgent(**fields))

    async def agent(self, **fields: Any) -> Agent:
        return (await self.create(**fields)).agent

    def tool(self, name: str, body: Callable[..., Awaitable[str]], **options: Any) -> None:
        """Register a tool without parameters, or with those in `parameters`."""
        options.setdefault("parameters", {})
        self.tools.register(
            typed_tool(name=name, description=name, output=TEXT_OUTPUT, execute=body, **options)
        )

    def when(self, wanted: str, action: Callable[[Session], None], *, time: int = 1) -> None:
        """Do something inside the publication of the `time`-th event of a type."""
        seen = 0

        def observe(appended: Appended) -> None:
            nonlocal seen
            if appended.event.type == wanted:
                seen += 1
                if seen == time:
                    action(appended.session)

        self.ctx.on(SESSION_EVENT, observe)

    def soon(self, action: Callable[[], None]) -> None:
        """Do something in the next tick: an observer of a log may not append to it at once."""
        asyncio.get_running_loop().call_soon(action)

    async def breath(self) -> None:
        """Let everything that is ready run once."""
        await asyncio.sleep(0)

    async def prompt(self, agent: Agent, words: str) -> None:
        """Give a prompt and wait until the agent is idle."""
        agent.followup(user_message(words))
        await agent.when_idle()


@asynccontextmanager
async def loop(
    *replies: Reply,
    rows: Sequence[tuple[ModuleType, Mapping[str, Any]]] = (),
    prompt: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    first: Callable[[Context], None] | None = None,
) -> AsyncIterator[Loop]:
    """A running composition with the scripted replies on route `p`; everything is disposed at the end."""
    ctx = Context()
    try:
        if first is not None:
            first(ctx)
        mounted = [ctx.plugin(module, {}) for module in (session, agent, tools)]
        mounted.append(ctx.plugin(LlmRegistry, name="llm"))
        mounted.append(ctx.plugin(system_prompt, {"includeHarnessIdentity": False, **(prompt or {})}))
        mounted.append(ctx.plugin(agent_loop, dict(config or {})))
        mounted.extend(ctx.plugin(module, dict(row)) for module, row in rows)
        for fiber in mounted:
            await settled(fiber)
        model = ScriptedModel(*(replies or (text("done"),)))
        running = Loop(ctx, model)
        running.llm.register_adapter(["p"], model)
        yield running
    finally:
        await ctx.dispose()


async def settled(fiber: Any) -> None:
    """Wait until a mounted row is active; its failure is raised."""
    for _ in range(200):
        await fiber
        if fiber.is_active:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{fiber!r} waits for {fiber.missing}")


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something holds; fails when it never does."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def types(session: Session, start: int = 0) -> list[str]:
    """Types of the log's rows, chunks as one."""
    out: list[str] = []
    for event in session.events(start):
        kind = "chunks" if event.type == "assistant/chunk" else event.type
        if not (kind == "chunks" and out and out[-1] == "chunks"):
            out.append(kind)
    return out


def short(session: Session, start: int = 0) -> str:
    """The same in one line: `spliced turn/start …`."""
    return " ".join(kind.removeprefix("agent/inbox/") for kind in types(session, start))


def data_of(session: Session, kind: str) -> list[Any]:
    """The payloads of all events of a type."""
    return [event.data for event in session.events() if event.type == kind]


def ends(session: Session) -> list[Any]:
    """The reasons of all turn ends."""
    return [data["reason"] for data in data_of(session, "turn/end")]


def texts_of(request: LlmRequest) -> list[str]:
    """One line per message of a request: its text, its calls, or its result."""
    return [_line(message) for message in request.messages]


def _line(message: Message) -> str:
    parts = []
    for block in message["content"]:
        if block["type"] == "tool-call":
            parts.append(f"call {block['id']}")
        elif block["type"] == "tool-result":
            parts.append(f"result {block['toolCallId']}: {block['content'][0]['text']}")  # type: ignore[typeddict-item]
        elif block["type"] in ("text", "reasoning"):
            parts.append(block["text"])
    return f"{message['role']}: {' | '.join(parts)}"
