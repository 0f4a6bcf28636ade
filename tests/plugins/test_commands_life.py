"""Slash commands over time: cancellation, turns beside them, and the end of their agent."""

import asyncio
from typing import Any

import pytest

from dsh.capabilities.commands import (
    CommandCall,
    CommandError,
    CommandFailure,
    CommandOutcome,
    Commands,
    CommandSuccess,
)
from dsh.kernel import CancelToken, Context
from dsh.plugins.commands import AGENT_ENDED, CANCELLED
from tests.agent.kit import Loop, loop, text, types
from tests.aio import aio, aio_in_virtual_time
from tests.deaf import Deaf
from tests.plugins.command_kit import (
    ROW,
    RUN,
    Handler,
    answering,
    command,
    commands_of,
    logged,
    mounted,
)
from tests.tools.kit import cancelled

# -- cancellation ----------------------------------------------------------------------------------


@aio
async def test_a_command_that_is_cancelled_before_it_begins_is_logged_and_does_nothing() -> None:
    ctx, service, agent = await mounted()
    ran: list[object] = []
    service.register(command(handler=lambda call: ran.append(call)))  # type: ignore[arg-type, return-value]

    outcome = await service.execute(agent, "/c", signal=cancelled())

    assert (outcome, ran) == (CommandFailure(CANCELLED), [])
    assert logged(agent) == [RUN, ("command/done", {"kind": "error", "text": CANCELLED})]
    await ctx.dispose()


@aio
async def test_a_handler_that_hears_the_cancellation_ends_as_an_error() -> None:
    ctx, service, agent = await mounted()
    token, begun = CancelToken(), asyncio.Event()

    async def handler(call: CommandCall) -> CommandOutcome:
        begun.set()
        await call.signal.sleep(3600)
        return CommandSuccess()

    service.register(command(handler=handler))
    task = asyncio.create_task(service.execute(agent, "/c", signal=token))
    await begun.wait()
    token.cancel("user")

    assert await task == CommandFailure(CANCELLED)
    assert logged(agent)[1] == ("command/done", {"kind": "error", "text": CANCELLED})
    await ctx.dispose()


@aio
async def test_what_a_handler_has_done_in_spite_of_a_cancellation_is_told_as_done() -> None:
    ctx, service, agent = await mounted()
    token = CancelToken()

    async def handler(_: CommandCall) -> CommandOutcome:
        token.cancel("user")
        return CommandSuccess("done all the same")

    service.register(command(handler=handler))

    assert await service.execute(agent, "/c", signal=token) == CommandSuccess("done all the same")
    await ctx.dispose()


@aio_in_virtual_time
async def test_a_handler_that_ignores_the_cancellation_is_given_up_and_goes_with_the_row() -> None:
    ctx, service, agent = await mounted()
    token, deaf = CancelToken(), Deaf()

    service.register(command(handler=deaf.wait))
    task = asyncio.create_task(service.execute(agent, "/c", signal=token))
    await deaf.begun.wait()
    token.cancel("user")

    assert await task == CommandFailure(CANCELLED)
    assert not deaf.ended.is_set()
    await ctx.dispose()
    assert deaf.ended.is_set()


@aio
async def test_a_caller_whose_task_goes_down_leaves_a_closed_pair_and_no_handler() -> None:
    ctx, service, agent = await mounted()
    deaf = Deaf()

    service.register(command(handler=deaf.wait))
    task = asyncio.create_task(service.execute(agent, "/c"))
    await deaf.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await deaf.ended.wait()
    assert logged(agent) == [RUN, ("command/done", {"kind": "error", "text": CANCELLED})]
    await ctx.dispose()


# -- with a live agent -----------------------------------------------------------------------------


def offer(run: Loop, handler: Handler, name: str = "c") -> Commands:
    service = commands_of(run.ctx)
    service.register(command(name, handler))
    return service


@aio
async def test_a_command_makes_no_turn_no_message_and_no_request() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()
        await offer(run, answering(CommandSuccess("for the person"))).execute(agent, "/c")

        assert types(agent.session) == ["command/run", "command/done"]
        assert agent.status == "idle" and run.model.requests == []
        await run.prompt(agent, "go")
        assert all("person" not in str(message) for message in run.model.requests[0].messages)


@aio
async def test_a_command_runs_beside_a_turn() -> None:
    done: list[CommandOutcome] = []
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()
        service = offer(run, answering(CommandSuccess("beside")))

        async def execute() -> None:
            done.append(await service.execute(agent, "/c"))

        run.model.replies[0] = [execute, *text("bye")]
        await run.prompt(agent, "go")

        assert done == [CommandSuccess("beside")]
        assert types(agent.session)[-1] == "turn/end"


@aio
async def test_the_end_of_the_agent_closes_the_pair_and_stops_the_handler() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        handle = await run.create()
        begun = asyncio.Event()
        reasons: list[Any] = []

        async def handler(call: CommandCall) -> CommandOutcome:
            begun.set()
            try:
                await call.signal.sleep(3600)
            finally:
                reasons.append(call.signal.reason)
            return CommandSuccess()

        service = offer(run, handler)
        task = asyncio.create_task(service.execute(handle.agent, "/c"))
        await begun.wait()
        await handle.dispose()

        assert logged(handle.agent)[1] == ("command/done", {"kind": "error", "text": AGENT_ENDED})
        assert await task == CommandFailure(CANCELLED)
        assert reasons == [{"kind": "disposed"}]
        assert len(logged(handle.agent)) == 2


@aio
async def test_a_command_that_is_over_leaves_nothing_with_its_agent_its_row_and_its_caller() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent, signal = await run.agent(), CancelToken()
        service = offer(run, answering(CommandSuccess()))
        before = len(agent.ctx.fiber.effects)
        await service.execute(agent, "/c", signal=signal)
        assert len(agent.ctx.fiber.effects) == before
        assert signal._callbacks == []


@aio
async def test_a_command_may_end_its_own_agent() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        handle = await run.create()

        async def leave(_: CommandCall) -> CommandOutcome:
            await handle.dispose()
            return CommandSuccess("left")

        assert await offer(run, leave).execute(handle.agent, "/c") == CommandSuccess("left")
        assert [kind for kind, _ in logged(handle.agent)] == ["command/run", "command/done"]


@aio
async def test_an_agent_that_has_ended_runs_no_command() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        handle = await run.create()
        service = offer(run, answering(CommandSuccess()))
        await handle.dispose()

        with pytest.raises(CommandError) as caught:
            await service.execute(handle.agent, "/c")

        assert caught.value.code == "CALLER_NOT_LIVE"
        assert logged(handle.agent) == []


@aio
async def test_an_agent_whose_scope_is_being_undone_runs_no_command() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        handle = await run.create()
        service, refused = offer(run, answering(CommandSuccess())), list[str]()
        token = CancelToken()

        async def late() -> None:
            with pytest.raises(CommandError) as caught:
                await service.execute(handle.agent, "/c", signal=token)
            refused.append(caught.value.code)

        handle.agent.ctx.effect(lambda: late)
        await handle.dispose()

        assert refused == ["CALLER_NOT_LIVE"]
        assert logged(handle.agent) == []


@aio
async def test_what_cannot_be_logged_does_not_run() -> None:
    ctx, service, agent = await mounted()
    ran: list[object] = []
    service.register(command(handler=lambda call: ran.append(call)))  # type: ignore[arg-type, return-value]

    def full(seq: int, event: object) -> None:
        raise OSError("disk full")

    agent.session.on_append = full
    with pytest.raises(OSError, match="disk full"):
        await service.execute(agent, "/c")

    assert ran == []
    await ctx.dispose()


@aio
async def test_the_row_of_a_command_is_held_while_it_runs() -> None:
    ctx, service, agent = await mounted()
    held: list[str] = []

    def plugin(inner: Context) -> None:
        async def handler(_: CommandCall) -> CommandOutcome:
            held.append(inner.fiber.held)
            return CommandSuccess()

        commands_of(inner).register(command(handler=handler))
        held.append(inner.fiber.held)

    fiber = ctx.plugin(plugin, name="plugin")
    await fiber
    await service.execute(agent, "/c")

    assert held == ["", "command /c is running"]
    assert fiber.held == ""
    await ctx.dispose()
