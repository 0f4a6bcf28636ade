"""Rows have no order: what an agent logs as the tree goes down is stored wherever the storage row stands."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from dsh.agent.contract import AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.kernel import Context, Fiber, ServiceKey
from dsh.llm.registry import LLM, LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.view import build_view
from dsh.plugins import (
    agent,
    agent_loop,
    session,
    session_checkpoint_policy,
    session_persistence_jsonl,
    system_prompt,
    tools,
)
from dsh.session.chunk import Chunk
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSIONS
from tests.agent.kit import ScriptedModel, settled, thought, until
from tests.aio import aio

ROWS = (session, session_persistence_jsonl, agent, agent_loop)
FRONT: ServiceKey[Context] = ServiceKey("front")
ORDERS = list(itertools.permutations(ROWS))


class Thinker(ScriptedModel):
    """A model that never ends its first thought, unless it is told to."""

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        for chunk in thought("hm"):
            assert not callable(chunk)
            yield chunk
        told = asyncio.Event()
        assert request.signal is not None
        request.signal.on_cancel(lambda reason: told.set())
        await told.wait()
        request.signal.raise_if_cancelled()


def name(row: ModuleType) -> str:
    return row.__name__.rpartition(".")[2]


async def front(ctx: Context) -> None:
    """A front end: agents are made for it and end with it."""
    ctx.provide(FRONT, ctx)


async def mounted(root: Path, rows: Sequence[ModuleType]) -> tuple[Context, dict[str, Fiber]]:
    """A tree with these rows in this order, behind all that would take the agent loop down before them."""
    ctx = Context()
    configs = {
        "session_persistence_jsonl": {"root": str(root), "writeBatchMaxDelayMs": 60_000},
        "system_prompt": {"includeHarnessIdentity": False},
    }
    fibers = {"llm": ctx.plugin(LlmRegistry, name="llm"), "front": ctx.plugin(front, inject=[AGENTS])}
    for row in (tools, system_prompt, session_checkpoint_policy, *rows):
        fibers[name(row)] = ctx.plugin(row, configs.get(name(row), {}))
    for fiber in fibers.values():
        await settled(fiber)
    ctx.use(LLM).register_adapter(["p"], Thinker())
    return ctx, fibers


async def thinking(ctx: Context, session_id: str = "one") -> Session:
    """The session of an agent in the middle of a reply."""
    options = AgentOptions(provider="p", model="m")
    request = CreateAgent(session_id=session_id, cwd="/ws", options=options)
    handle = await ctx.use(FRONT).use(AGENTS).create(request)
    handle.agent.followup(user_message("think"))
    log = handle.agent.session
    await until(lambda: log.last("assistant/chunk") is not None and log.event(log.length - 1).seq > 2)
    return log


def stored(root: Path, session_id: str = "one") -> list[str]:
    view = build_view(read_log(root / "--ws--" / session_id / "session.jsonl.zstd"))
    return [event.type for event in view.events(0, view.stored_length)]


@pytest.mark.parametrize(
    "rows", list(itertools.permutations(ROWS)), ids=lambda rows: "-".join(map(name, rows))
)
def test_the_last_events_of_an_agent_are_stored_in_every_order(
    tmp_path: Path, rows: Sequence[ModuleType]
) -> None:
    @aio
    async def run() -> None:
        ctx, _ = await mounted(tmp_path, rows)
        log = await thinking(ctx)

        await ctx.dispose()

        assert stored(tmp_path) == [event.type for event in log.events()]
        assert log.event(log.length - 1).type == "turn/end"

    run()


@aio
async def test_a_row_that_goes_alone_follows_its_sessions_to_their_end_and_no_others(
    tmp_path: Path,
) -> None:
    ctx, fibers = await mounted(tmp_path, ROWS)
    log = await thinking(ctx)

    await fibers["session_persistence_jsonl"].dispose()

    assert not ctx.has(PERSISTENCE)
    assert stored(tmp_path) == [event.type for event in log.events()]
    other = await thinking(ctx, "two")
    await ctx.dispose()
    assert stored(tmp_path)[-1] == "turn/end"
    assert other.event(other.length - 1).type == "turn/end"
    assert not (tmp_path / "--ws--" / "two").exists()


@aio
async def test_a_row_that_is_mounted_again_takes_over_from_the_one_before(tmp_path: Path) -> None:
    ctx, fibers = await mounted(tmp_path, ROWS)
    log = await thinking(ctx)
    for _ in range(2):
        await fibers["session_persistence_jsonl"].restart()
        log.append("feedback/record", {"text": "on and on"})
        await ctx.use(SESSIONS).flush(log)
        assert stored(tmp_path) == [event.type for event in log.events()]

    await ctx.dispose()

    assert stored(tmp_path)[-1] == "turn/end"
