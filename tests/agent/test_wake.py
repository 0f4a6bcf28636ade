"""Deliveries: what `send` does at once, and every row of the wake table."""

import asyncio
from typing import Any

import pytest

from dsh.agent.contract import AGENT_INBOX_CLAIMED, AGENT_STATUS, CancelCause
from dsh.agent.failure import AgentBusyError
from dsh.agent.grace import NoOutcome
from dsh.errors import DshError
from dsh.kernel import CancelToken
from dsh.session.message import user_message
from tests.agent.kit import data_of, ends, loop, short, text, texts_of, until
from tests.aio import aio, aio_in_virtual_time

USER: CancelCause = {"kind": "user"}


@aio
async def test_a_waking_send_opens_the_turn_and_claims_before_it_returns() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        assert short(agent.session) == "spliced turn/start spliced"
        assert agent.status == "running"
        agent.followup(user_message("b"))
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["b"]  # type: ignore[typeddict-item]
        await agent.when_idle()


@aio
async def test_cancel_right_after_a_waking_send_leaves_a_balanced_turn_without_a_step() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        agent.cancel(USER)
        await agent.when_idle()
        assert short(agent.session) == "spliced turn/start spliced turn/end"
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert not agent.inbox.has_pending, "what was claimed is dropped like what was queued"


@aio
async def test_the_same_cancel_that_keeps_the_inbox_gives_the_claimed_message_back() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        agent.cancel(USER, keep_inbox=True)
        await agent.when_idle()
        assert short(agent.session) == "spliced turn/start spliced spliced spliced turn/end"
        assert it.statuses == ["running", "idle"], "nobody woke it"
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["a", "b"]  # type: ignore[typeddict-item]


@aio
async def test_cancel_from_a_running_listener_prevents_even_turn_start() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.ctx.on(
            AGENT_STATUS,
            lambda changed: agent.cancel(USER, keep_inbox=True) if changed.status == "running" else None,
        )
        agent.followup(user_message("a"))
        await agent.when_idle()
        assert short(agent.session) == "spliced"
        assert agent.inbox.has_pending
        assert it.statuses == ["running", "idle"]


@aio
async def test_idle_a_wake_starts_a_driver_even_when_the_message_is_gone_again() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        message = user_message("a")
        from dsh.agent.contract import AGENT_INBOX_INSERTED

        it.ctx.on(AGENT_INBOX_INSERTED, lambda changed: agent.inbox.remove(message["id"]) and None)
        agent.followup(message)
        await agent.when_idle()
        assert short(agent.session) == "spliced spliced turn/start turn/end"
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_an_injected_message_wakes_nobody() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.inject(user_message("a"))
        await agent.when_idle()
        assert short(agent.session) == "spliced"
        assert it.statuses == []


@aio
async def test_running_and_live_a_wake_only_queues() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")], text("two")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        await until(lambda: it.model.requests)
        agent.followup(user_message("b"))
        gate.set()
        await agent.when_idle()
        assert it.statuses == ["running", "idle"], "the same driver took the second prompt"
        assert [d["turn"] for d in data_of(agent.session, "turn/start")] == [1, 2]


@aio
async def test_running_and_cancelled_a_wake_is_latched_and_goes_to_the_next_turn() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")], text("two")) as it:
        agent = await it.agent()
        agent.followup(user_message("parked is lost"))
        await until(lambda: it.model.requests)
        agent.cancel(USER)
        agent.steer(user_message("after"))
        assert len(agent.inbox.next_turn) == 1, "steering after a cancel becomes a prompt"
        gate.set()
        await agent.when_idle()
        assert it.statuses == ["running", "idle", "running", "idle"]
        assert [end["kind"] for end in ends(agent.session)] == ["aborted", "completed"]
        assert texts_of(it.model.requests[-1])[-1] == "user: after"


@aio
async def test_kept_prompts_run_first_when_a_wake_after_the_cancel_restarts_the_agent() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")], text("two")) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        agent.followup(user_message("parked"))
        await until(lambda: it.model.requests)
        agent.cancel(USER, keep_inbox=True)
        agent.followup(user_message("after"))
        gate.set()
        await agent.when_idle()
        assert [texts_of(request)[-1] for request in it.model.requests[1:]] == ["user: parked", "user: after"]


@aio
async def test_kept_prompts_stay_parked_without_a_later_wake() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")]) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        agent.followup(user_message("parked"))
        await until(lambda: it.model.requests)
        agent.cancel(USER, keep_inbox=True)
        gate.set()
        await agent.when_idle()
        assert len(it.model.requests) == 1
        assert len(agent.inbox.next_turn) == 1


@aio
async def test_a_latched_wake_whose_message_is_gone_starts_nothing() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")]) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        await until(lambda: it.model.requests)
        agent.cancel(USER)
        message = user_message("after")
        agent.followup(message)
        agent.inbox.remove(message["id"])
        gate.set()
        await agent.when_idle()
        assert it.statuses == ["running", "idle"]


@aio
async def test_a_second_cancel_clears_the_latch_and_keeps_the_first_cause() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")]) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        await until(lambda: it.model.requests)
        agent.cancel({"kind": "hook", "reason": "limit:steps"})
        agent.followup(user_message("after"))
        agent.cancel(USER)
        agent.inject(user_message("waits, and wakes nobody"))
        gate.set()
        await agent.when_idle()
        assert it.statuses == ["running", "idle"]
        cause = {"kind": "hook", "reason": "limit:steps"}
        assert ends(agent.session) == [{"kind": "aborted", "reason": cause}]


@aio
async def test_a_cancel_that_comes_during_the_insert_is_no_wake_after_it() -> None:
    from dsh.agent.contract import AGENT_INBOX_INSERTED

    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")]) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        await until(lambda: it.model.requests)
        it.ctx.on(AGENT_INBOX_INSERTED, lambda changed: agent.cancel(USER, keep_inbox=True))
        agent.followup(user_message("during"))
        gate.set()
        await agent.when_idle()
        assert it.statuses == ["running", "idle"]
        assert len(agent.inbox.next_turn) == 1


@aio
async def test_cancelling_an_idle_agent_arms_nothing() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.inject(user_message("dropped"))
        agent.cancel(USER)
        assert data_of(agent.session, "agent/inbox/spliced")[-1]["outcome"] == "canceled"
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_a_disposed_cancel_never_latches_a_wake() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")]) as it:
        handle = await it.create()
        agent = handle.agent
        agent.followup(user_message("first"))
        await until(lambda: it.model.requests)
        ending = asyncio.ensure_future(handle.dispose())
        await asyncio.sleep(0)
        agent.followup(user_message("late"))
        gate.set()
        await ending
        assert it.statuses == ["running", "idle"]
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "disposed"}}]


@pytest.mark.parametrize("cause", [{"kind": "disposed"}, USER])
@aio
async def test_a_wake_after_a_cancel_is_kept_unless_the_cancel_says_that_the_agent_goes(cause: Any) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("first"))
        agent.cancel(cause)
        agent.followup(user_message("after"))
        await agent.when_idle()
        assert it.statuses == ["running", "idle"] * (2 if cause == USER else 1)
        assert len(agent.inbox.next_turn) == (0 if cause == USER else 1)


@aio
async def test_claims_are_told_in_the_order_in_which_they_enter() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        told: list[Any] = []
        it.ctx.on(AGENT_INBOX_CLAIMED, lambda c: told.append((c.message["content"][0]["text"], c.turn)))
        agent.inject(user_message("context"))
        await it.prompt(agent, "prompt")
        assert told == [("context", 1), ("prompt", 1)]


@aio
async def test_when_idle_of_a_run_that_fails_returns() -> None:
    async with loop([]) as it:
        agent = await it.agent()
        it.ctx.on("agent/pre-step", lambda *_: 1 / 0)
        agent.followup(user_message("go"))
        await agent.when_idle()
        assert agent.status == "idle"


@aio
async def test_an_observer_of_the_log_cannot_send_at_once() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.when("turn/start", lambda s: agent.inject(user_message("refused")))
        it.when("step/start", lambda s: it.soon(lambda: agent.inject(user_message("deferred"))))
        await it.prompt(agent, "go")
        inserted = [m for d in data_of(agent.session, "agent/inbox/spliced") for m in d["inserted"]]
        assert [m["content"][0]["text"] for m in inserted] == ["go", "deferred"]
        assert ends(agent.session) == [{"kind": "completed"}]


# -- maintenance -----------------------------------------------------------------------------------


@aio
async def test_maintenance_is_publicly_idle_and_holds_wakes_back() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        gate = asyncio.Event()

        async def job(token: CancelToken) -> int:
            await gate.wait()
            return 7

        result = agent.run_maintenance(job)
        agent.followup(user_message("go"))
        assert (agent.status, short(agent.session)) == ("idle", "spliced")
        waiting = asyncio.ensure_future(agent.when_idle())
        gate.set()
        assert await result == 7
        await waiting
        assert it.statuses == ["running", "idle"]
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_maintenance_is_refused_at_once_while_the_agent_runs() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("go"))

        async def job(token: CancelToken) -> None:
            raise AssertionError("never")

        with pytest.raises(AgentBusyError):
            agent.run_maintenance(job)
        await agent.when_idle()


@aio
async def test_cancelling_maintenance_cancels_its_token_and_the_wakes_it_held() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def job(token: CancelToken) -> None:
            await token.sleep(60)

        result = agent.run_maintenance(job)
        await asyncio.sleep(0)
        agent.followup(user_message("go"))
        agent.cancel(USER)
        agent.inject(user_message("waits, and wakes nobody"))
        with pytest.raises(Exception, match="cancelled"):
            await result
        await agent.when_idle()
        assert it.statuses == []


@aio
async def test_the_result_and_the_failure_of_a_maintenance_job_are_its_callers() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def fail(token: CancelToken) -> None:
            raise ValueError("no")

        def refuse(token: CancelToken) -> Any:
            raise KeyError("at once")

        with pytest.raises(ValueError, match="no"):
            await agent.run_maintenance(fail)
        with pytest.raises(KeyError):
            agent.run_maintenance(refuse)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


async def _exits(token: CancelToken) -> None:
    raise SystemExit(7)


async def _interrupts(token: CancelToken) -> None:
    raise KeyboardInterrupt


async def _leaks_a_cancellation(token: CancelToken) -> None:
    leaked = asyncio.get_running_loop().create_future()
    leaked.cancel()
    await leaked


async def _cancels_itself(token: CancelToken) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def _exits_at_once(token: CancelToken) -> Any:
    raise SystemExit(7)


@pytest.mark.parametrize("job", [_exits, _interrupts, _leaks_a_cancellation, _cancels_itself, _exits_at_once])
@aio
async def test_whatever_a_maintenance_job_ends_with_is_an_error_of_its_caller(job: Any) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        with pytest.raises(DshError, match=f"a maintenance job of agent {agent.id}"):
            await agent.run_maintenance(job)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio_in_virtual_time
async def test_a_maintenance_job_that_ignores_its_cancellation_is_given_up() -> None:
    async with loop(text("done")) as it:
        handle = await it.create()
        agent, ended = handle.agent, list[str]()

        async def job(token: CancelToken) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("with its agent")

        result = asyncio.ensure_future(agent.run_maintenance(job))
        await asyncio.sleep(0)
        agent.cancel(USER)
        agent.followup(user_message("go"))
        with pytest.raises(NoOutcome, match="did not end"):
            await result
        await agent.when_idle()
        assert ends(agent.session) == [{"kind": "completed"}], "the wake that it held back is let go"
        assert list(agent.degraded) == [f"a maintenance job of agent {agent.id}"]
        assert ended == []
        await handle.dispose()
        assert ended == ["with its agent"]


@aio
async def test_a_wake_that_was_kept_during_maintenance_starts_nothing_when_its_message_is_gone() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        gate = asyncio.Event()
        result = agent.run_maintenance(lambda token: gate.wait())
        message = user_message("go")
        agent.followup(message)
        agent.inbox.remove(message["id"])
        gate.set()
        await result
        await agent.when_idle()
        assert it.statuses == []


@aio
async def test_an_agent_that_is_ended_during_maintenance_keeps_no_wake() -> None:
    async with loop(text("done")) as it:
        handle = await it.create()
        agent = handle.agent

        async def job(token: CancelToken) -> str:
            try:
                await token.sleep(60)
            finally:
                agent.followup(user_message("late"))
            return "never"

        result = agent.run_maintenance(job)
        await asyncio.sleep(0)
        await handle.dispose()
        with pytest.raises(Exception, match="cancelled"):
            await result
        assert it.statuses == []


@aio
async def test_who_waits_for_maintenance_may_leave_without_ending_it() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        gate = asyncio.Event()
        ran: list[str] = []

        async def job(token: CancelToken) -> None:
            await gate.wait()
            ran.append("to its end")

        waiting = asyncio.ensure_future(agent.run_maintenance(job))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        with pytest.raises(AgentBusyError):
            agent.run_maintenance(job)
        gate.set()
        await agent.when_idle()
        assert ran == ["to its end"]


# -- what waits, without a message -----------------------------------------------------------------


@aio
async def test_going_on_with_what_waits_wakes_an_idle_agent_once() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        assert not agent.continue_pending()
        assert it.statuses == []
        agent.inject(user_message("note"))
        assert agent.continue_pending()
        assert not agent.continue_pending(), "it is claimed"
        await agent.when_idle()
        assert it.statuses == ["running", "idle"]
        assert texts_of(it.model.requests[0]) == ["user: note"]


@pytest.mark.parametrize("is_cancelled", [False, True])
@aio
async def test_going_on_while_a_turn_runs_takes_up_what_a_cancel_has_parked(is_cancelled: bool) -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("one")], text("two")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await until(lambda: it.model.requests)
        if is_cancelled:
            agent.cancel(USER, keep_inbox=True)
        assert agent.continue_pending()
        gate.set()
        await agent.when_idle()
        assert [end["kind"] for end in ends(agent.session)][1:] == ["completed"]
        assert len(it.statuses) == (4 if is_cancelled else 2)


@aio
async def test_going_on_during_maintenance_waits_for_its_end() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        gate = asyncio.Event()
        result = agent.run_maintenance(lambda token: gate.wait())
        agent.inject(user_message("note"))
        assert agent.continue_pending()
        assert it.statuses == []
        gate.set()
        await result
        await agent.when_idle()
        assert ends(agent.session) == [{"kind": "completed"}]
