"""`/compact`: a person has the history of an idle agent summarised at once."""

import asyncio

import pytest

from dsh.capabilities.commands import COMMANDS, CommandFailure, CommandOutcome, CommandSuccess
from dsh.capabilities.compaction import Compacted, CompactionError
from dsh.kernel import CancelToken
from dsh.plugins import command_compact, commands
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_FLUSH
from tests.agent.kit import data_of, failed, settled, text, texts_of
from tests.aio import aio
from tests.plugins.compaction.kit import (
    GIST,
    Compacting,
    compacting,
    is_paired,
    rows_of,
    surface,
    talked,
)


async def code_of(c: Compacting, agent: object) -> str | None:
    with pytest.raises(CompactionError) as refused:
        await c.service.compact_now(agent)  # type: ignore[arg-type]
    return refused.value.code


@aio
async def test_everything_but_the_last_node_becomes_a_summary() -> None:
    async with talked() as (c, agent):
        done = await c.service.compact_now(agent)

        assert isinstance(done, Compacted)
        assert (done.shadowed, agent.session.event(done.seq).type) == (3, "user/message")
        assert done.tokens_after < done.tokens_before
        assert surface(agent.session) == ["checkpoint", "lorem lorem lorem lorem "]
        assert data_of(agent.session, "compaction/start") == [
            {"compactionId": done.compaction_id, "turn": None}
        ]
        assert data_of(agent.session, "compaction/end") == [
            {"compactionId": done.compaction_id, "turn": None}
        ]
        assert c.loop.statuses.count("running") == 2
        await c.talk(agent, "next")
        assert all(is_paired(request.messages) for request in c.model.requests)
        assert texts_of(c.model.requests[-1])[-1] == "user: next"


@aio
async def test_nothing_to_compact_writes_nothing() -> None:
    async with compacting(text("a"), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, "short")
        length = agent.session.length

        assert await c.service.compact_now(agent) is None
        assert (agent.session.length, c.model.asked) == (length, [])


@aio
async def test_a_checkpoint_and_one_message_are_nothing_to_compact() -> None:
    async with talked() as (c, agent):
        await c.service.compact_now(agent)

        assert await c.service.compact_now(agent) is None
        assert len(c.model.asked) == 1


@aio
async def test_an_agent_at_work_is_busy() -> None:
    async with compacting(text("one"), window=100_000) as c:
        agent = await c.agent()
        agent.followup(user_message("hello"))

        assert await code_of(c, agent) == "busy"
        await agent.when_idle()


@aio
async def test_an_agent_that_is_being_compacted_is_busy() -> None:
    async with talked() as (c, agent):
        first = c.service.compact_now(agent)
        task = asyncio.ensure_future(first)
        await c.loop.breath()

        assert await code_of(c, agent) == "busy"
        assert await task is not None


@aio
async def test_a_cancel_ends_it() -> None:
    async with talked() as (c, agent):
        c.model.summaries = [[lambda: agent.cancel({"kind": "user"}), *text(GIST)]]

        assert await code_of(c, agent) == "cancelled"
        assert "checkpoint" not in surface(agent.session)
        assert rows_of(agent.session, "compaction/") == ["compaction/start", "compaction/end"]


@aio
async def test_the_callers_signal_ends_it() -> None:
    async with talked() as (c, agent):
        token = CancelToken()
        c.model.summaries = [[lambda: token.cancel("enough"), *text(GIST)], text(GIST)]

        with pytest.raises(CompactionError) as refused:
            await c.service.compact_now(agent, signal=token)
        assert refused.value.code == "cancelled"
        assert await c.service.compact_now(agent) is not None


@aio
async def test_a_history_that_changed_where_it_was_summarised_stays() -> None:
    async with talked() as (c, agent):
        session = agent.session
        first = session.surface_nodes[0]

        def replace() -> None:
            place = {"op": "replace", "start": first, "end": first}
            session.append("user/message", user_message("other"), surface=place, sources=[first])

        c.model.summaries = [[replace, *text(GIST)]]

        assert await code_of(c, agent) == "changed"
        assert surface(session)[0] == "other"


@aio
async def test_what_joins_the_end_meanwhile_does_not_matter() -> None:
    async with talked() as (c, agent):

        def join() -> None:
            agent.session.append("user/message", user_message("late"), surface="append")

        c.model.summaries = [[join, *text(GIST)]]

        assert await c.service.compact_now(agent) is not None
        assert surface(agent.session) == ["checkpoint", "lorem lorem lorem lorem ", "late"]


@aio
async def test_a_summary_that_fails_is_told_with_its_code() -> None:
    async with talked() as (c, agent):
        c.model.summaries = [failed("AUTH", "boom")]

        assert await code_of(c, agent) == "summary"


@aio
async def test_a_log_that_refuses_the_summary_is_told_with_its_code() -> None:
    """Somebody closes the bracket: the log takes no summary outside one."""
    async with talked() as (c, agent):

        def close() -> None:
            [started] = agent.session.select("compaction/start")
            agent.session.append("compaction/end", started.data)

        c.model.summaries = [[close, *text(GIST)], text(GIST)]

        assert await code_of(c, agent) == "commit"
        assert "checkpoint" not in surface(agent.session)
        assert await c.service.compact_now(agent) is not None


@aio
async def test_a_log_that_cannot_be_stored_is_told_though_the_summary_is_in_it() -> None:
    async with talked() as (c, agent):

        async def full(session: Session) -> None:
            if "checkpoint" in surface(session):
                raise OSError("disk full")

        c.loop.ctx.on(SESSION_FLUSH, full)

        assert await code_of(c, agent) == "persistence"
        assert surface(agent.session)[0] == "checkpoint"


@aio
async def test_input_that_arrives_meanwhile_waits_for_its_end() -> None:
    async with talked() as (c, agent):
        c.model.summaries = [[lambda: agent.followup(user_message("next")), *text(GIST)]]
        await c.service.compact_now(agent)
        await agent.when_idle()

        assert surface(agent.session)[:3] == ["checkpoint", "lorem lorem lorem lorem ", "next"]
        assert rows_of(agent.session, "compaction/end", "turn/start")[-2:] == ["compaction/end", "turn/start"]


async def slash(c: Compacting, agent: object, line: str, signal: CancelToken | None = None) -> CommandOutcome:
    for module in (commands, command_compact):
        await settled(c.loop.ctx.plugin(module, {}))
    return await c.loop.ctx.use(COMMANDS).execute(agent, line, signal=signal)  # type: ignore[arg-type]


@aio
async def test_the_command_names_itself_in_every_row_of_the_compaction() -> None:
    async with talked() as (c, agent):
        done = await slash(c, agent, "/compact")

        assert isinstance(done, CommandSuccess)
        assert done.text is not None and done.text.startswith("3 messages were compacted")
        [ran] = data_of(agent.session, "command/run")
        named = [data_of(agent.session, f"compaction/{kind}")[0] for kind in ("start", "summary", "end")]
        named.append(agent.session.derive_messages()[0]["source"])
        assert {data["sourceCommandId"] for data in named} == {ran["commandId"]}
        assert data_of(agent.session, "command/done")[0]["sourceEventSeq"] == done.source_event_seq


@aio
async def test_the_command_takes_no_arguments() -> None:
    async with compacting(text("a")) as c:
        agent = await c.agent()
        assert await slash(c, agent, "/compact now") == CommandFailure("/compact takes no arguments.")


@aio
async def test_the_command_says_that_there_is_nothing_to_do() -> None:
    async with compacting(text("a")) as c:
        agent = await c.agent()
        await c.talk(agent, "short")
        assert await slash(c, agent, "/compact") == CommandSuccess("There is nothing to compact.")


@aio
async def test_the_command_says_why_nothing_was_done() -> None:
    async with talked() as (c, agent):
        c.model.summaries = [failed("AUTH", "boom")]
        done = await slash(c, agent, "/compact")

        assert isinstance(done, CommandFailure)
        assert done.text == "Nothing was compacted: no summary was made: boom. [summary]"


@aio
async def test_who_cancels_the_command_ends_the_summary() -> None:
    async with talked() as (c, agent):
        token = CancelToken()
        c.model.summaries = [[lambda: token.cancel("enough"), *text(GIST)]]
        done = await slash(c, agent, "/compact", token)
        await agent.when_idle()

        assert isinstance(done, CommandFailure)
        assert done.text.endswith("[cancelled]")
        assert "checkpoint" not in surface(agent.session)
