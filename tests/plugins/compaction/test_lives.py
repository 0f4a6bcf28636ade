"""Compaction and what else goes on: snapshots of the runtime context, lives of a session, foreign code."""

import asyncio
from types import ModuleType

import pytest

from dsh.agent.prompt import RUNTIME_CONTEXT_OWNER, SYSTEM_PROMPT
from dsh.capabilities.compaction import CompactionError
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.plugins.compaction_basic import summary
from dsh.session.error import SessionError
from dsh.session.log import Session
from dsh.session.message import assistant_message, user_message
from dsh.session.restore import restore
from tests.agent.kit import calls, data_of, ends, failed, text, types
from tests.aio import aio, aio_in_virtual_time
from tests.plugins.compaction.kit import (
    Compacting,
    compacting,
    is_paired,
    long,
    rows_of,
    surface,
    warnings_of,
)


def snapshots(c: Compacting, request: int) -> int:
    """How many snapshots of the runtime context a request carries."""
    sources = [message["source"] for message in c.model.requests[request].messages]
    return sum(source.get("plugin") == RUNTIME_CONTEXT_OWNER for source in sources)


@aio
async def test_the_request_after_a_pressure_compaction_carries_the_runtime_context() -> None:
    """The snapshot went with the history; the very same step brings a new one."""
    async with compacting(text(long(900)), text("two"), text("three")) as c:
        c.loop.ctx.use(SYSTEM_PROMPT).context("facts", 1, lambda _: "the sky is blue")
        agent = await c.agent()
        await c.talk(agent, long(900), "go on", "and on")

        assert len(c.model.asked) == 1
        assert [snapshots(c, number) for number in range(3)] == [1, 1, 1]


@aio
async def test_a_snapshot_that_stays_is_not_sent_again() -> None:
    async with compacting(
        text(long(100)), failed("CONTEXT_WINDOW_EXCEEDED"), text("two"), window=100_000
    ) as c:
        facts = ["old"]
        c.loop.ctx.use(SYSTEM_PROMPT).context("facts", 1, lambda _: facts[0])
        agent = await c.agent()
        await c.talk(agent, long(200))
        facts[0] = "new"
        await c.talk(agent, "go on")

        assert surface(agent.session)[0] == "checkpoint"
        assert snapshots(c, 2) == 1


def reopened(session: Session, stop: int | None = None) -> Session:
    """The session as another process finds it after this one was killed."""
    return restore(session.header, [event.to_json() for event in session.events(0, stop)]).open()


@aio
async def test_a_life_that_ended_between_start_and_summary_does_not_block_the_next() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")
        [start] = agent.session.select("compaction/start")
        [summarised] = agent.session.select("compaction/summary")

        for stop in (start.seq + 1, summarised.seq + 1):
            session = reopened(agent.session, stop)
            assert "checkpoint" not in surface(session)
            session.append("compaction/start", {"compactionId": "x", "turn": None})
            session.append("compaction/end", {"compactionId": "x", "turn": None})


@aio
async def test_every_cut_of_the_log_derives_what_the_life_before_it_saw() -> None:
    """Before the checkpoint the whole history, from it on the short one; never something between."""
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")
        [put] = [e for e in agent.session.select("user/message") if e.surface != "append"]
        [started] = agent.session.select("compaction/start")

        before = reopened(agent.session, started.seq).derive_messages()
        for stop in range(started.seq + 1, put.seq + 1):
            assert reopened(agent.session, stop).derive_messages() == before
        assert surface(reopened(agent.session, put.seq + 1)) == ["checkpoint", "lorem lorem lorem lorem "]


@aio
async def test_a_compaction_in_a_session_with_lost_results_asks_in_valid_messages() -> None:
    """RF-01 (c): a call deep in the history was never answered; the request for a summary answers it."""
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        append = agent.session.append
        append("turn/start", {"turn": 1})
        append("step/start", {"turn": 1, "step": 1})
        append("user/message", user_message("old task"), surface="append")
        call = {"type": "tool-call", "id": "lost", "name": "t", "arguments": "{}"}
        message = assistant_message([call], "q", "m")
        data = {"turn": 1, "step": 1, "message": message}
        append("assistant/message", data, surface="append", sources=[])
        append("step/end", {"turn": 1, "step": 1})
        append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        agent.session.append("user/message", user_message(long(300)), surface="append")
        agent.session.append("user/message", user_message(long(10)), surface="append")

        assert await c.service.compact_now(agent) is not None
        assert is_paired(c.model.asked[0].messages)


@aio_in_virtual_time
async def test_a_summariser_that_ignores_its_cancellation_is_left_behind() -> None:
    async with compacting(text(long(100)), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        c.model.summaries = [[lambda: agent.cancel({"kind": "user"}), lambda: never], text("gist")]
        started = asyncio.get_running_loop().time()

        with pytest.raises(CompactionError) as refused:
            await c.service.compact_now(agent)

        assert refused.value.code == "cancelled"
        assert asyncio.get_running_loop().time() - started == pytest.approx(summary.GRACE_S, abs=0.5)
        assert await c.service.compact_now(agent) is not None


@aio
async def test_a_compaction_counts_as_no_step_and_no_reply() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert types(agent.session).count("step/start") == 2
        assert types(agent.session).count("assistant/message") == 2


@aio
async def test_two_agents_are_compacted_apart() -> None:
    async with compacting(text(long(900))) as c:
        one, two = await c.agent(), await c.agent()
        await c.talk(one, long(900))
        await c.talk(two, "short")
        await c.talk(one, "go on")

        assert rows_of(two.session, "compaction/") == []
        assert len(data_of(one.session, "compaction/summary")) == 1
        assert ends(one.session)[-1]["kind"] == "completed"


@aio
async def test_tools_that_were_called_before_may_be_called_after() -> None:
    """CO-01: the table of tools is the same before and after."""
    replies = [calls(("c1", "note", "{}")), text(long(900)), calls(("c2", "note", "{}")), text("end")]
    async with compacting(*replies) as c:

        async def note(arguments: object, run: object) -> str:
            return "ok"

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        tables = [request.tools for request in (*c.model.requests, *c.model.asked)]
        assert all(table == tables[0] for table in tables)
        assert ends(agent.session)[-1]["kind"] == "completed"


class BrokenMeter:
    """Stands in for a meter that finds a rule of the log broken whenever it is asked, not always the same."""

    def __init__(self) -> None:
        self.asked = 0

    def measure(self, session: Session) -> Measurement:
        self.asked += 1
        raise SessionError(f"step 3 is {('torn', 'lost')[self.asked % 2]}")


def broken_meter() -> ModuleType:
    """A row that provides it."""
    row = ModuleType("broken_meter")
    vars(row).update(provide=[TOKEN_METER], apply=lambda ctx: ctx.provide(TOKEN_METER, BrokenMeter()))
    return row


@aio
async def test_a_log_that_cannot_be_measured_is_told_once_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with compacting(text("one"), meter=broken_meter()) as c:
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, *"abcdef")

        assert [end["kind"] for end in ends(agent.session)] == ["completed"] * 6
        assert [w.partition("step 3 is ")[2] for w in warnings()] == ["lost", "torn"]
