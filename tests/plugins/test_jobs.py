"""Row `jobs`: who may start, see and end a job, and that its end is settled once."""

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.capabilities.jobs import (
    JOBS_CHANGED,
    JOBS_SETTLED,
    Job,
    JobError,
    JobHooks,
    JobOutcome,
    JobSubject,
)
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.plugins import jobs
from dsh.plugins.jobs import Config, JobRegistry
from tests.agent.kit import loop, settled, until
from tests.aio import aio, aio_in_virtual_time
from tests.plugins.job_kit import DONE, Stranger, Work, jobs_of, soon, with_jobs

NO_JOB = "there is no job {!r}; job_list shows those there are"


@aio
async def test_a_job_goes_from_running_to_its_outcome() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        held, work = jobs_of(running.ctx), Work()
        job = await held.start(work.spec(agent))
        assert (job.id, job.kind, job.label, job.status) == ("bash-1", "bash", "make", "running")
        assert (job.owner_session, job.detail, job.finished_at, job.reported) == (agent.id, None, None, False)
        assert held.running() == (job,)

        work.end(JobOutcome("completed", "exit code: 1"))
        await soon()
        over = held.get("bash-1", agent.id)
        assert (over.status, over.detail, over.is_over) == ("completed", "exit code: 1", True)
        assert over.finished_at is not None
        assert over.finished_at >= over.started_at
        assert held.running() == ()
        assert job.status == "running"


@aio
async def test_numbers_count_for_each_kind_and_the_list_is_in_the_order_of_starts() -> None:
    async with with_jobs() as running:
        held = jobs_of(running.ctx)
        for kind in ("bash", "web-watch", "bash"):
            await held.start(Work().spec(kind=kind))
        assert [job.id for job in held.list(None)] == ["bash-1", "web-watch-1", "bash-2"]


@aio
async def test_without_a_controller_of_its_scope_nothing_starts() -> None:
    async with loop(rows=[(jobs, {})]) as running:
        agent, other = await running.agent(), await running.agent()
        held, work = jobs_of(running.ctx), Work()
        with pytest.raises(JobError, match="mount row tool-jobs"):
            await held.start(work.spec(agent))
        assert work.begun == 0

        attached = jobs_of(agent.ctx).attach()
        assert (await held.start(work.spec(agent))).id == "bash-1"
        with pytest.raises(JobError, match="mount row tool-jobs"):
            await held.start(work.spec(other))
        attached()
        with pytest.raises(JobError, match="mount row tool-jobs"):
            await held.start(work.spec(agent))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": ""}, "no kind of job"),
        ({"kind": "Bash 1"}, "no kind of job"),
        ({"label": " "}, "needs a label"),
        ({"output_limit_bytes": 0}, "positive number of bytes"),
    ],
)
@aio
async def test_a_job_that_makes_no_sense_is_refused_before_it_begins(
    changes: dict[str, Any], problem: str
) -> None:
    async with with_jobs() as running:
        work = Work()
        with pytest.raises(JobError, match=problem) as caught:
            await jobs_of(running.ctx).start(work.spec(**changes))
        assert caught.value.code == ""
        assert work.begun == 0


@aio
async def test_the_eleventh_job_of_an_owner_is_refused_without_beginning() -> None:
    async with with_jobs() as running:
        first, second = await running.agent(), await running.agent()
        held, works = jobs_of(running.ctx), [Work() for _ in range(10)]
        for work in works:
            await held.start(work.spec(first))
        late = Work()
        with pytest.raises(JobError, match="10 background jobs run already"):
            await held.start(late.spec(first))
        assert late.begun == 0

        await held.start(Work().spec(second))
        held.kill("bash-1", first.id)
        assert held.get("bash-1", first.id).status == "stopping"
        with pytest.raises(JobError):
            await held.start(late.spec(first))
        await soon()
        assert (await held.start(late.spec(first))).id == "bash-12"


@aio
async def test_starts_that_are_under_way_count_and_those_of_nobody_are_one_owner_s() -> None:
    async with with_jobs(config={"maxConcurrentJobsPerOwner": 2}) as running:
        held, gate = jobs_of(running.ctx), asyncio.Event()

        async def slowly() -> JobHooks:
            await gate.wait()
            return await Work().run()

        starts = [asyncio.ensure_future(held.start(Work().spec(run=slowly))) for _ in range(2)]
        await soon()
        with pytest.raises(JobError, match="2 background jobs"):
            await held.start(Work().spec())
        gate.set()
        assert [job.id for job in await asyncio.gather(*starts)] == ["bash-1", "bash-2"]


@aio
async def test_a_start_that_fails_leaves_nothing_and_takes_no_number() -> None:
    async with with_jobs(config={"maxConcurrentJobsPerOwner": 1}) as running:
        held = jobs_of(running.ctx)
        with pytest.raises(OSError, match="no bash"):
            await held.start(Work(refusal=OSError("no bash")).spec())
        assert held.list(None) == ()
        assert (await held.start(Work().spec())).id == "bash-1"


@aio
async def test_an_agent_that_has_ended_starts_nothing() -> None:
    async with with_jobs() as running:
        handle = await running.create()
        await handle.dispose()
        work = Work()
        with pytest.raises(JobError, match="has ended"):
            await jobs_of(running.ctx).start(work.spec(handle.agent))
        assert work.begun == 0


@aio
async def test_the_end_of_the_owner_while_its_job_begins_ends_the_job() -> None:
    async with with_jobs() as running:
        handle = await running.create()
        held, work, gate = jobs_of(running.ctx), Work(), asyncio.Event()
        await held.start(Work().spec(handle.agent))

        async def slowly() -> JobHooks:
            await gate.wait()
            return await work.run()

        start = asyncio.ensure_future(held.start(Work().spec(handle.agent, run=slowly)))
        await soon()
        ending = asyncio.ensure_future(handle.dispose())
        await soon()
        gate.set()
        with pytest.raises(JobError, match="its owner has ended"):
            await start
        await ending
        assert work.cancels == ["its owner has ended"]
        assert held.running() == ()


@aio
async def test_jobs_are_there_for_their_own_session_only() -> None:
    async with with_jobs() as running:
        mine, other = await running.agent(), await running.agent()
        held = jobs_of(running.ctx)
        await held.start(Work().spec(mine))
        await held.start(Work().spec())

        assert [job.id for job in held.list(mine.id)] == ["bash-1", "bash-2"]
        assert [job.id for job in held.list(other.id)] == ["bash-2"]
        assert [job.id for job in held.list(None)] == ["bash-2"]
        for use in (held.get, held.read, held.kill):
            with pytest.raises(JobError) as caught:
                use("bash-1", other.id)
            assert str(caught.value) == NO_JOB.format("bash-1")
        with pytest.raises(JobError):
            await held.wait("bash-1", 1, other.id)
        with pytest.raises(JobError, match="blank"):
            held.get("  ", mine.id)


@aio
async def test_each_reader_gets_all_of_the_output_once() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        work.printed = "one\n"
        assert held.read("bash-1", None) == "one\n"
        work.printed += "two\n"
        assert held.read("bash-1", None, reader="display") == "one\ntwo\n"
        assert held.read("bash-1", None) == "two\n"
        assert held.read("bash-1", None) == ""


@aio
async def test_a_job_with_one_text_has_it_at_its_end_and_every_time() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()

        async def run() -> JobHooks:
            return JobHooks(cancel=lambda reason: None, done=work.done, final_output=lambda: "report")

        await held.start(work.spec(run=run))
        assert held.read("bash-1", None) == ""
        work.end()
        await soon()
        assert [held.read("bash-1", None) for _ in range(2)] == ["report", "report"]


@aio
async def test_what_the_model_has_read_of_an_ended_job_is_reported_and_what_a_display_has_is_not() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        held.read("bash-1", None)
        assert not held.get("bash-1", None).reported
        work.end()
        await soon()
        held.read("bash-1", None, reader="display")
        assert not held.get("bash-1", None).reported
        held.read("bash-1", None)
        assert held.get("bash-1", None).reported


@aio
async def test_a_kill_asks_and_the_job_stops_later() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work(ends_on_cancel=False)
        await held.start(work.spec())
        job = held.kill("bash-1", None, "enough")
        assert (job.status, job.reported, work.cancels) == ("stopping", True, ["enough"])
        work.end()
        await soon()
        assert held.get("bash-1", None).status == "completed"
        assert held.kill("bash-1", None).status == "completed"
        assert work.cancels == ["enough"]


@aio
async def test_a_cancel_that_raises_changes_nothing() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        work.cancel_failure = ValueError("not now")
        with pytest.raises(ValueError, match="not now"):
            held.kill("bash-1", None)
        job = held.get("bash-1", None)
        assert (job.status, job.reported) == ("running", False)
        work.cancel_failure = None


@pytest.mark.parametrize("error", [RuntimeError("it broke"), SystemExit(3), asyncio.CancelledError()])
@aio
async def test_a_producer_that_fails_in_any_way_is_a_failed_job(error: BaseException) -> None:
    async with with_jobs() as running:

        async def fail() -> JobOutcome:
            raise error

        async def run() -> JobHooks:
            return JobHooks(cancel=lambda reason: None, done=fail())

        held = jobs_of(running.ctx)
        await held.start(Work().spec(run=run))
        await until(lambda: held.get("bash-1", None).is_over)
        job = held.get("bash-1", None)
        assert job.status == "failed"
        assert job.detail


@aio
async def test_an_outcome_that_is_none_is_a_failed_job() -> None:
    async with with_jobs() as running:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result("fine")

        async def run() -> JobHooks:
            return JobHooks(cancel=lambda reason: None, done=done)

        held = jobs_of(running.ctx)
        await held.start(Work().spec(run=run))
        await soon()
        assert held.get("bash-1", None).detail == "its producer answered str for an outcome"


# -- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ms", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("is_over", [False, True])
@aio
async def test_the_time_to_wait_is_positive_also_for_a_job_that_is_over(ms: float, is_over: bool) -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        if is_over:
            work.end()
            await soon()
        with pytest.raises(JobError, match="positive number of milliseconds"):
            await held.wait("bash-1", ms, None)


@aio_in_virtual_time
async def test_a_wait_ends_with_the_job_or_with_the_time() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        assert (await held.wait("bash-1", 600_000, None)).status == "running"
        asyncio.get_running_loop().call_later(1, work.end)
        begun = asyncio.get_running_loop().time()
        assert (await held.wait("bash-1", 600_000, None)).status == "completed"
        assert asyncio.get_running_loop().time() - begun < 2
        assert (await held.wait("bash-1", 1, None)).status == "completed"


@aio
async def test_whoever_waits_learns_of_the_end_so_it_counts_as_reported() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        waits = [asyncio.ensure_future(held.wait("bash-1", 60_000, None)) for _ in range(2)]
        await soon()
        work.end()
        assert [job.reported for job in await asyncio.gather(*waits)] == [True, True]


@aio
async def test_a_caller_who_gives_up_is_no_waiter_and_one_of_an_ended_job_gets_it() -> None:
    async with with_jobs() as running:
        held, work, token = jobs_of(running.ctx), Work(), CancelToken()
        await held.start(work.spec())
        wait = asyncio.ensure_future(held.wait("bash-1", 60_000, None, signal=token))
        await soon()
        token.cancel("enough")
        with pytest.raises(Cancelled):
            await wait
        with pytest.raises(Cancelled):
            await held.wait("bash-1", 60_000, None, signal=token)
        work.end()
        await soon()
        assert not held.get("bash-1", None).reported
        assert (await held.wait("bash-1", 60_000, None, signal=token)).status == "completed"


@aio
async def test_waiters_go_first_then_those_who_watch_then_those_who_listen_for_the_end() -> None:
    async with with_jobs() as running:
        held, work, order = jobs_of(running.ctx), Work(), list[str]()
        await held.start(work.spec())
        wait = asyncio.ensure_future(held.wait("bash-1", 60_000, None))
        await soon()

        def changed(subject: JobSubject) -> None:
            order.append(f"changed {subject.job.status} {subject.job.reported}")

        running.ctx.on(JOBS_CHANGED, changed)
        running.ctx.on(JOBS_SETTLED, lambda subject: order.append(f"settled {subject.job.status}"))
        work.end()
        await wait
        assert order == ["changed completed True", "settled completed"]


# -- the end of an owner, and of the registry ----------------------------------------------------


@aio
async def test_the_end_of_an_agent_ends_its_jobs_without_a_notice() -> None:
    async with with_jobs() as running:
        handle, other = await running.create(), await running.agent()
        held, mine, theirs = jobs_of(running.ctx), Work(), Work()
        await held.start(mine.spec(handle.agent))
        await held.start(theirs.spec(other))
        told: list[Job] = []
        running.ctx.on(JOBS_SETTLED, lambda subject: told.append(subject.job))
        await handle.dispose()

        assert mine.cancels == ["its owner has ended"]
        assert [(job.status, job.reported) for job in told] == [("killed", True)]
        assert held.list(handle.agent.id) == ()
        assert theirs.cancels == []
        assert [job.id for job in held.running()] == ["bash-2"]


@aio
async def test_the_end_of_the_row_ends_all_jobs_and_the_agents_live_on() -> None:
    async with loop() as running:
        agent = await running.agent()
        before = running.ctx.statistics()
        row = running.ctx.plugin(jobs, {})
        await settled(row)
        held, works = jobs_of(running.ctx), [Work(), Work()]
        attached = held.attach()
        await held.start(works[0].spec(agent))
        await held.start(works[1].spec())
        await row.dispose()
        attached()
        assert [work.cancels for work in works] == [["its owner has ended"]] * 2
        assert running.ctx.statistics().effects == before.effects
        await running.prompt(agent, "still there?")


@aio
async def test_a_cancel_that_fails_at_the_end_may_leave_an_orphan_whose_outcome_is_not_heard() -> None:
    async with with_jobs() as running:
        handle = await running.create()
        held, work, told = jobs_of(running.ctx), Work(), list[Job]()
        work.cancel_failure = RuntimeError("gone")
        await held.start(work.spec(handle.agent))
        running.ctx.on(JOBS_SETTLED, lambda subject: told.append(subject.job))
        await handle.dispose()
        work.end(DONE)
        await soon()
        assert [(job.status, job.detail) for job in told] == [
            ("failed", "it could not be ended (RuntimeError: gone); it may be orphaned")
        ]


@aio_in_virtual_time
async def test_a_job_that_does_not_end_is_given_up_after_a_bound() -> None:
    ctx = Context()
    held = JobRegistry(ctx, Config(), end_s=3)
    held.attach()
    work, told = Work(ends_on_cancel=False), list[Job]()
    await held.start(work.spec())
    ctx.on(JOBS_SETTLED, lambda subject: told.append(subject.job), global_=True)
    begun = asyncio.get_running_loop().time()
    await held._close_all()
    assert asyncio.get_running_loop().time() - begun < 4
    assert [job.detail for job in told] == ["it did not end within 3 s; it may be orphaned"]
    work.end()
    await ctx.dispose()


@aio
async def test_only_so_many_ended_jobs_stay_readable() -> None:
    async with with_jobs(config={"maxFinishedJobsPerOwner": 2}) as running:
        held = jobs_of(running.ctx)
        lasting = await held.start(Work().spec())
        for _ in range(4):
            work = Work()
            await held.start(work.spec())
            work.end()
            await soon()
        assert [job.id for job in held.list(None)] == [lasting.id, "bash-4", "bash-5"]


@aio
async def test_the_job_that_has_just_ended_is_readable_however_long_ago_it_began() -> None:
    async with with_jobs(config={"maxFinishedJobsPerOwner": 2}) as running:
        held, lasting = jobs_of(running.ctx), Work()
        await held.start(lasting.spec())
        for work in (Work(), Work()):
            await held.start(work.spec())
            work.end()
            await soon()
        wait = asyncio.ensure_future(held.wait("bash-1", 60_000, None))
        await soon()
        lasting.printed = "built"
        lasting.end()
        await wait
        assert held.read("bash-1", None) == "built"
        assert [job.id for job in held.list(None)] == ["bash-1", "bash-3"]


@aio
async def test_a_second_kill_asks_again_and_is_no_news() -> None:
    async with with_jobs() as running:
        held, work, told = jobs_of(running.ctx), Work(ends_on_cancel=False), list[str]()
        await held.start(work.spec())
        running.ctx.on(JOBS_CHANGED, lambda subject: told.append(subject.job.status))
        await held.start(Work().spec())
        for reason in ("enough", "really"):
            assert held.kill("bash-1", None, reason).status == "stopping"
        assert (work.cancels, told) == (["enough", "really"], ["running", "stopping"])
        work.end()


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
@aio_in_virtual_time
async def test_a_start_whose_owner_has_gone_is_refused_whatever_its_cancel_does(error: BaseException) -> None:
    async with with_jobs() as running:
        handle = await running.create()
        held, work, gate = jobs_of(running.ctx), Work(), asyncio.Event()
        work.cancel_failure = error

        async def slowly() -> JobHooks:
            await gate.wait()
            return await work.run()

        start = asyncio.ensure_future(held.start(work.spec(handle.agent, run=slowly)))
        await soon()
        ending = asyncio.ensure_future(handle.dispose())
        await soon()
        with pytest.raises(JobError, match="has ended"):
            await held.start(Work().spec(handle.agent))
        gate.set()
        with pytest.raises(JobError, match="its owner has ended"):
            await start
        await ending
        assert held.running() == ()
        work.end()


@aio
async def test_nothing_of_nobody_s_starts_while_the_row_ends() -> None:
    async with loop() as running:
        row = running.ctx.plugin(jobs, {})
        await settled(row)
        held, work, late = jobs_of(running.ctx), Work(ends_on_cancel=False), Work()
        held.attach()
        await held.start(work.spec())
        ending = asyncio.ensure_future(row.dispose())
        await soon()
        with pytest.raises(JobError, match="row jobs has ended"):
            await held.start(late.spec())
        work.end()
        await ending
        assert late.begun == 0


@aio
async def test_only_an_agent_that_is_registered_owns_jobs() -> None:
    async with with_jobs() as running:
        agent, work = await running.agent(), Work()
        stranger = Stranger(agent.id, agent.session, agent.ctx)
        with pytest.raises(JobError, match="has ended"):
            await jobs_of(running.ctx).start(work.spec(stranger))
        assert work.begun == 0


@aio
async def test_the_end_of_an_owner_waits_for_all_that_begins_and_for_its_end() -> None:
    async with with_jobs() as running:
        handle = await running.create()
        held, works = jobs_of(running.ctx), [Work(ends_on_cancel=False) for _ in range(2)]
        gates = [asyncio.Event() for _ in works]

        def slowly(number: int) -> Callable[[], Awaitable[JobHooks]]:
            async def run() -> JobHooks:
                await gates[number].wait()
                return await works[number].run()

            return run

        specs = [work.spec(handle.agent, run=slowly(number)) for number, work in enumerate(works)]
        starts = [asyncio.ensure_future(held.start(spec)) for spec in specs]
        await soon()
        ending = asyncio.ensure_future(handle.dispose())
        for number, work in enumerate(works):
            await soon()
            gates[number].set()
            await soon()
            assert (work.cancels, starts[number].done(), ending.done()) == (
                ["its owner has ended"],
                False,
                False,
            )
            work.end()
        await ending
        assert [str(one) for one in await asyncio.gather(*starts, return_exceptions=True)] == [
            "the bash job was ended at once: its owner has ended"
        ] * 2


@aio_in_virtual_time
async def test_who_has_stopped_waiting_learns_nothing() -> None:
    async with with_jobs() as running:
        held, work, token = jobs_of(running.ctx), Work(), CancelToken()
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await held.start(work.spec())
        assert (await held.wait("bash-1", 5, None, signal=token)).status == "running"
        wait = asyncio.ensure_future(held.wait("bash-1", 60_000, None, signal=token))
        await soon()
        token.cancel("enough")
        work.end()
        with pytest.raises(Cancelled):
            await wait
        await soon()
        gc.collect()
        assert not held.get("bash-1", None).reported
        assert complaints == []


@aio_in_virtual_time
async def test_a_wait_that_ran_out_is_none_any_more() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        await held.start(work.spec())
        await held.wait("bash-1", 5, None)
        work.end()
        await soon()
        assert not held.get("bash-1", None).reported


@aio
async def test_what_a_producer_says_is_bounded_and_valid_text() -> None:
    async with with_jobs() as running:
        held, work = jobs_of(running.ctx), Work()
        assert (await held.start(work.spec(label="x\ud800"))).label == "x\ufffd"
        work.end(JobOutcome("failed", "\ud800" + "y" * 100_000))
        await soon()
        detail = held.get("bash-1", None).detail
        assert detail is not None
        assert (detail[0], len(detail) < 20_000) == ("\ufffd", True)
