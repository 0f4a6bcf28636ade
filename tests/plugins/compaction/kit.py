"""A loop with the rows that keep histories short, and a model that answers tasks and writes summaries."""

import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any

from dsh.agent.contract import Agent, AgentOptions
from dsh.capabilities.compaction import COMPACTION, Compaction
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.llm.adapter import EffortInfo, LlmAdapter, ModelInfo, ReasoningInfo, RetryPolicy
from dsh.llm.request import LlmRequest
from dsh.plugins import compaction_basic, token_meter, tool_result_pruner
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, UsageChunk
from dsh.session.estimate import log_price
from dsh.session.log import Session
from tests.agent.kit import Item, Loop, Reply, loop, text

ROUTE = "q"
GIST = "the gist"


class TaskModel(LlmAdapter):
    """Plays a reply per request of a turn, and one of `summaries` per request for one; the last for ever."""

    def __init__(self, *replies: Reply, window: int | None = 2000, effort: bool = False) -> None:
        self.replies: list[Reply] = list(replies) or [text("done")]
        self.summaries: list[Reply] = [text(GIST)]
        self.window, self.effort = window, effort
        self.limit: int | None = None
        """The log price from which on it refuses a request, whatever it says of its window."""
        self.requests: list[LlmRequest] = []
        self.asked: list[LlmRequest] = []
        """The requests for summaries."""
        self.refused = 0

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        efforts = ReasoningInfo((EffortInfo("off", "Off"), EffortInfo("high", "High")), "high")
        return ModelInfo(
            provider=provider,
            id=model,
            name=model,
            context_window=self.window,
            default_max_tokens=100_000,
            reasoning=efforts if self.effort else None,
        )

    def retry_policy(self, provider: str) -> RetryPolicy:
        return RetryPolicy(max_retries=2, initial_delay_ms=1, max_delay_ms=1)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        is_summary = request.purpose == "compaction"
        script, seen = (self.summaries, self.asked) if is_summary else (self.replies, self.requests)
        if self.limit is not None and sum(map(log_price, request.messages)) >= self.limit:
            self.refused += 1
            failure = {"message": "too long", "code": "CONTEXT_WINDOW_EXCEEDED"}
            yield Finish({"kind": "error", "failure": failure})
            return
        seen.append(request)
        for item in script[min(len(seen), len(script)) - 1]:
            if callable(item):
                answer = item()
                if answer is not None:
                    await answer
            else:
                yield item


class Compacting:
    """The composition, its model, and short ways to what a test needs."""

    def __init__(self, running: Loop, model: TaskModel) -> None:
        self.loop, self.model = running, model

    @property
    def service(self) -> Compaction:
        return self.loop.ctx.use(COMPACTION)

    def measure(self, session: Session) -> Measurement:
        return self.loop.ctx.use(TOKEN_METER).measure(session)

    async def agent(self, **fields: Any) -> Agent:
        fields.setdefault("options", AgentOptions(provider=ROUTE, model="m"))
        return await self.loop.agent(**fields)

    async def talk(self, agent: Agent, *prompts: str) -> None:
        """Give prompts, one turn each."""
        for prompt in prompts:
            await self.loop.prompt(agent, prompt)


@asynccontextmanager
async def compacting(
    *replies: Reply,
    window: int | None = 2000,
    effort: bool = False,
    config: Mapping[str, Any] | None = None,
    pruner: Mapping[str, Any] | None = None,
    meter: ModuleType = token_meter,
) -> AsyncIterator[Compacting]:
    """A running composition with the model on route `q`; without `pruner` there is no such row."""
    rows: list[Any] = [(meter, {}), (compaction_basic, dict(config or {}))]
    if pruner is not None:
        rows.insert(0, (tool_result_pruner, dict(pruner)))
    async with loop(rows=rows) as running:
        model = TaskModel(*replies, window=window, effort=effort)
        running.llm.register_adapter([ROUTE], model)
        yield Compacting(running, model)


@asynccontextmanager
async def talked() -> AsyncIterator[tuple[Compacting, Agent]]:
    """The same with an idle agent that has had two prompts, and a window that is large enough."""
    async with compacting(text(long(100)), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")
        yield c, agent


def long(words: int, word: str = "lorem") -> str:
    """A text of about that many tokens."""
    return " ".join(itertools.repeat(word, words))


def silent() -> list[Item]:
    """A reply without any block."""
    return [Finish({"kind": "stop"})]


def image() -> list[Item]:
    """A reply of text and an image."""
    picture = {"type": "image", "attachment": {"id": "a", "mimeType": "image/png"}}
    return [
        BlockStart(0, "text"),
        BlockEnd(0, {"type": "text", "text": "see"}),
        BlockStart(1, "image"),
        BlockEnd(1, picture),
        Finish({"kind": "stop"}),
    ]


def beside(words: str) -> list[Item]:
    """A reply of one text block and one tool call."""
    call = {"type": "tool-call", "id": "s1", "name": "bash", "arguments": "{}"}
    return [
        BlockStart(0, "text"),
        BlockEnd(0, {"type": "text", "text": words}),
        BlockStart(1, "tool-call"),
        BlockEnd(1, call),
        Finish({"kind": "tool-calls"}),
    ]


def used(words: str, tokens: int) -> list[Item]:
    """A reply of one text block whose request was that many tokens long."""
    return [
        BlockStart(0, "text"),
        TextDelta(0, words),
        BlockEnd(0, {"type": "text", "text": words}),
        UsageChunk({"inputTokens": tokens, "outputTokens": 1}),
        Finish({"kind": "stop"}),
    ]


def rows_of(session: Session, *kinds: str) -> list[str]:
    """The types of the log's rows among some kinds (beginnings of types), in order."""
    return [event.type for event in session.events() if event.type.startswith(kinds)]


def surface(session: Session) -> list[str]:
    """The messages before the model: the first 24 characters of each, or its calls and results."""
    return [_line(message) for message in session.derive_messages()]


def _line(message: Mapping[str, Any]) -> str:
    if message["source"].get("plugin") == "compact":
        return "checkpoint"
    out = []
    for block in message["content"]:
        match block["type"]:
            case "tool-call":
                out.append(f"call {block['id']}")
            case "tool-result":
                out.append(f"result {block['toolCallId']}")
            case "text":
                out.append(block["text"][:24])
    return " | ".join(out)


def is_paired(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each call is answered once, in order, right after its message, and nothing else is."""
    owed: list[str] = []
    for message in messages:
        results = [b["toolCallId"] for b in message["content"] if b["type"] == "tool-result"]
        if results:
            if not owed or results != owed[:1]:
                return False
            owed.pop(0)
            continue
        if owed:
            return False
        owed = [b["id"] for b in message["content"] if b["type"] == "tool-call"]
    return not owed


@contextmanager
def warnings_of(caplog: Any) -> Iterator[Callable[[], list[str]]]:
    """The warnings that are given meanwhile."""
    with caplog.at_level(logging.WARNING):
        yield lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
