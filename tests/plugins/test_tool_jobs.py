"""Row `tool-jobs`: the three tools, and who is told of the end of a job."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from dsh.agent.contract import AGENT_STATUS, Agent, StatusChanged
from dsh.capabilities.jobs import JOBS_SETTLED, Job, JobOutcome, JobSubject
from dsh.kernel import CancelToken, ScopeTarget
from dsh.plugins import tool_jobs
from dsh.plugins.tool_jobs import Config, notice
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from tests.agent.kit import Loop, calls, data_of, texts_of, until
from tests.agent.kit import text as said
from tests.aio import aio, aio_in_virtual_time
from tests.plugins.job_kit import Stranger, Work, jobs_of, soon, with_jobs
from tests.tools.kit import text, value


async def use(
    running: Loop, agent: Agent | None, name: str, signal: CancelToken | None = None, **arguments: Any
) -> ToolResult:
    call = ToolCall(call_id="c1", name=name, arguments=arguments, agent=agent, signal=signal or CancelToken())
    return await running.tools.run(call)


async def begun(running: Loop, agent: Agent | None = None, **changes: Any) -> Work:
    work = Work()
    await jobs_of(running.ctx).start(work.spec(agent, **changes))
    return work


def notices(agent: Agent) -> list[dict[str, Any]]:
    return [m for m in data_of(agent.session, "user/message") if m["source"].get("plugin") == "tool-jobs"]


# -- job_output ----------------------------------------------------------------------------------


@aio
async def test_output_is_what_is_new_and_how_the_job_stands_in_the_last_line() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        work = await begun(running, agent)
        assert text(await use(running, agent, "job_output", job_id="bash-1")) == (
            "(no new output)\n[status: running]"
        )
        work.printed = "one\n"
        assert text(await use(running, agent, "job_output", job_id="bash-1")) == "one\n[status: running]"
        work.printed += "two"
        work.end(JobOutcome("completed", "exit code: 7"))
        await soon()
        result = await use(running, agent, "job_output", job_id="bash-1")
        assert text(result) == "two\n[status: completed, exit code: 7]"
        job = value(result)["job"]
        assert list(job) == ["id", "kind", "label", "status", "detail", "startedAt", "finishedAt"]
        assert not result.is_error


@pytest.mark.parametrize("timeout_ms", [0, -5])
@aio
async def test_a_time_that_is_none_matters_only_to_who_waits(timeout_ms: float) -> None:
    async with with_jobs() as running:
        await begun(running)
        waiting = await use(running, None, "job_output", job_id="bash-1", wait=True, timeout_ms=timeout_ms)
        assert isinstance(waiting, ToolFailure)
        assert (waiting.code, "timeout_ms must be a positive number" in text(waiting)) == (None, True)
        asked: list[dict[str, Any]] = [{}, {"wait": False}]
        for wait in asked:
            result = await use(running, None, "job_output", job_id="bash-1", timeout_ms=timeout_ms, **wait)
            assert not result.is_error


@aio_in_virtual_time
async def test_a_wait_that_runs_out_is_a_result_and_is_never_longer_than_the_cap() -> None:
    async with with_jobs(tools={"waitTimeoutMs": 1_000, "maxWaitTimeoutMs": 2_000}) as running:
        await begun(running)
        loop = asyncio.get_running_loop()
        for asked, waited in (({}, 1), ({"timeout_ms": 500}, 0.5), ({"timeout_ms": 1e300}, 2)):
            before = loop.time()
            result = await use(running, None, "job_output", job_id="bash-1", wait=True, **asked)
            assert text(result).endswith("[status: running]")
            assert loop.time() - before == pytest.approx(waited, abs=0.1)


@aio
async def test_a_call_that_is_cancelled_while_it_waits_is_aborted() -> None:
    async with with_jobs() as running:
        await begun(running)
        token = CancelToken()
        running.soon(lambda: token.cancel("enough"))
        result = await use(running, None, "job_output", token, job_id="bash-1", wait=True)
        assert isinstance(result, ToolFailure)
        assert result.code == "ABORTED"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1_000, "é" * 50 + "\n[status: completed]"),
        (60, "[earlier output left out]\n" + "é" * 7 + "\n[status: completed]"),
        (120, "é" * 50 + "\n[status: completed]"),
        (119, "[earlier output left out]\n" + "é" * 36 + "\n[status: completed]"),
        (46, "[status: completed]"),
        (1, "[status: completed]"),
    ],
)
@aio
async def test_a_limit_of_the_job_keeps_the_end_and_the_status(limit: int, expected: str) -> None:
    async with with_jobs() as running:
        work = await begun(running, output_limit_bytes=limit)
        work.printed = "é" * 50
        work.end(JobOutcome("completed"))
        await soon()
        assert text(await use(running, None, "job_output", job_id="bash-1")) == expected


@aio
async def test_output_of_a_producer_is_made_valid_text() -> None:
    async with with_jobs() as running:
        work = await begun(running, label="x\ud800", output_limit_bytes=1_000)
        work.printed = "a\ud800b"
        assert text(await use(running, None, "job_output", job_id="bash-1")) == "a\ufffdb\n[status: running]"
        assert "x\ufffd" in text(await use(running, None, "job_list"))


@pytest.mark.parametrize("tool", ["job_output", "job_kill"])
@pytest.mark.parametrize("job_id", ["bash-9", "", " "])
@aio
async def test_a_job_that_is_not_there_is_an_error_without_a_code(tool: str, job_id: str) -> None:
    async with with_jobs() as running:
        agent, other = await running.agent(), await running.agent()
        await begun(running, other)
        for wanted in (job_id, "bash-1"):
            result = await use(running, agent, tool, job_id=wanted)
            assert isinstance(result, ToolFailure)
            assert result.code is None


# -- job_list and job_kill -----------------------------------------------------------------------


@aio
async def test_the_list_has_a_line_for_each_job_also_those_that_are_over() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        assert text(await use(running, agent, "job_list")) == "(no background jobs)"
        first = await begun(running, agent, label="make\n  -j2 " + "x" * 300)
        await begun(running, agent, label="sleep 9")
        first.end(JobOutcome("killed", "signal: SIGTERM"))
        await soon()
        result = await use(running, agent, "job_list")
        lines = text(result).splitlines()
        assert lines[0].startswith("bash-1 [bash] killed — make -j2 xxx")
        assert len(lines[0]) < 240
        assert lines[1] == "bash-2 [bash] running — sleep 9"
        assert value(result)[0]["label"].startswith("make\n  -j2 ")


@aio
async def test_a_kill_returns_before_the_job_has_stopped_and_its_reason_goes_to_the_job() -> None:
    async with with_jobs() as running:
        work = Work(ends_on_cancel=False)
        await jobs_of(running.ctx).start(work.spec())
        result = await use(running, None, "job_kill", job_id="bash-1", reason="enough")
        assert value(result)["outcome"] == "cancellation-requested"
        assert value(result)["job"]["status"] == "stopping"
        assert work.cancels == ["enough"]
        work.end()
        await soon()
        assert value(await use(running, None, "job_kill", job_id="bash-1"))["outcome"] == "already-finished"


@aio
async def test_calls_about_one_job_run_in_turn_and_others_beside_them() -> None:
    async with with_jobs() as running:
        definition = running.tools.get("job_output", None)
        assert definition is not None
        assert definition.resources is not None
        touched = definition.resources(
            {"job_id": "bash-1"}, ToolCall(call_id="c", name="job_output", arguments={})
        )
        assert touched is not None
        assert touched.writes == {"job:bash-1"}
        assert definition.timeout_ms is None
        listing = ToolCall(call_id="c", name="job_list", arguments={})
        assert running.tools.execution_mode(listing) == "parallel"


# -- notices -------------------------------------------------------------------------------------


@aio
async def test_an_idle_agent_is_woken_by_the_end_of_its_job() -> None:
    async with with_jobs(said("first"), said("second")) as running:
        agent = await running.agent()
        await running.prompt(agent, "go")
        work = await begun(running, agent, label="make all")
        work.end(JobOutcome("failed", "it broke"))
        await soon()
        await agent.when_idle()

        [message] = notices(agent)
        assert message["role"] == "user"
        assert message["source"] == {
            "kind": "plugin",
            "plugin": "tool-jobs",
            "form": "notice",
            "summary": "bash make all [status: failed, it broke]",
        }
        assert message["content"][0]["text"] == (
            "Background job bash-1 [bash] is over [status: failed, it broke] — make all\n"
            'Read its output with `job_output` (job_id "bash-1").'
        )
        assert len(running.model.requests) == 2


@aio
async def test_a_working_agent_hears_of_it_at_its_next_step() -> None:
    works: list[Work] = []

    async def end() -> None:
        works[0].end()
        await soon()

    async with with_jobs([end, *said("first")], said("second")) as running:
        agent = await running.agent()
        works.append(await begun(running, agent))
        await running.prompt(agent, "go")
        assert len(running.model.requests) == 2
        assert "Background job bash-1" in texts_of(running.model.requests[1])[-1]
        assert agent.session.last_turn == 1
        assert len(notices(agent)) == 1


@pytest.mark.parametrize("how", ["kill", "wait", "unowned"])
@aio
async def test_nobody_is_told_what_somebody_knows(how: str) -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        work = await begun(running, None if how == "unowned" else agent)
        held = jobs_of(running.ctx)
        if how == "kill":
            held.kill("bash-1", agent.id)
        elif how == "wait":
            running.soon(work.end)
            await held.wait("bash-1", 60_000, agent.id)
        else:
            work.end()
        await soon()
        await agent.when_idle()
        assert running.model.requests == []
        assert not agent.inbox.has_pending


@aio
async def test_another_agent_of_the_same_id_is_not_told() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        job = Job(id="bash-1", kind="bash", label="make", status="completed", started_at=0)
        earlier = Stranger(agent.id, agent.session, agent.ctx)
        running.ctx.emit(JOBS_SETTLED, JobSubject(job, earlier), subject=ScopeTarget(earlier))
        await soon()
        assert not agent.inbox.has_pending
        assert running.model.requests == []


@aio
async def test_a_read_that_comes_after_the_end_takes_the_notice_not_back() -> None:
    async with with_jobs(tools={"completionDelivery": "quiet"}) as running:
        agent = await running.agent()
        work = await begun(running, agent)
        work.end()
        await soon()
        await use(running, agent, "job_output", job_id="bash-1")
        assert len(agent.inbox.next_step) == 1


@aio
async def test_quiet_notices_wait_for_the_next_step() -> None:
    async with with_jobs(tools={"completionDelivery": "quiet"}) as running:
        agent = await running.agent()
        work = await begun(running, agent)
        work.end()
        await soon()
        assert (agent.status, len(agent.inbox.next_step)) == ("idle", 1)
        await running.prompt(agent, "go on")
        assert len(running.model.requests) == 1
        assert len(notices(agent)) == 1


@aio
async def test_jobs_that_wake_their_agent_in_a_chain_stop_after_three_turns_until_a_person_speaks() -> None:
    replies = [calls((f"c{n}", "again", "{}")) if n % 2 == 0 else said("ok") for n in range(40)]
    async with with_jobs(*replies) as running:
        agent = await running.agent()
        works: list[Work] = []

        async def again(args: Any, execution: Any) -> str:
            works.append(await begun(running, agent))
            return "started"

        def end_all(changed: StatusChanged) -> None:
            if changed.status == "idle":
                for work in works:
                    running.soon(work.end)

        running.tool("again", again)
        running.ctx.on(AGENT_STATUS, end_all)

        async def spoken() -> int:
            before = agent.session.last_turn
            await running.prompt(agent, "go")
            while not agent.inbox.has_pending:
                await soon()
                await agent.when_idle()
            return agent.session.last_turn - before

        assert [await spoken(), await spoken()] == [4, 4]


def test_the_summary_of_a_notice_is_120_characters_at_most() -> None:
    job = Job(id="bash-1", kind="bash", label="y" * 500, status="completed", started_at=0)
    summary = tool_jobs._source(job)["summary"]
    assert (len(summary), summary[-1]) == (120, "…")
    assert len(notice(job)) < 400


# -- the row -------------------------------------------------------------------------------------


@aio
async def test_the_prompt_explains_jobs_to_those_who_have_the_tools() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        await running.prompt(agent, "go")
        header = json.dumps(msgspec.to_builtins(agent.session.last("request/header").data))  # type: ignore[union-attr]
        assert "`job_output`" in header
        await until(lambda: agent.status == "idle")


def test_a_default_longer_than_the_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="waitTimeoutMs is at most"):
        Config(wait_timeout_ms=10, max_wait_timeout_ms=5)
    assert Config(wait_timeout_ms=5, max_wait_timeout_ms=5).wait_timeout_ms == 5
