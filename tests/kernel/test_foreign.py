"""What plugins raise beyond `Exception`: a failure like any other, never the end of whoever called them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, Event
from dsh.kernel.foreign import contained
from tests.aio import aio


class Odd(BaseException):
    """An exception of a plugin's own that ordinary handlers do not see."""


ODD = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), Odd("x")]


def raising(error: BaseException) -> Callable[..., Any]:
    def listener(*args: Any) -> Any:
        raise error

    return listener


def raising_later(error: BaseException) -> Callable[..., Any]:
    async def listener(*args: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return listener


@pytest.mark.parametrize("error", ODD)
@aio
async def test_it_reads_as_a_failure_and_keeps_the_original(error: BaseException) -> None:
    failure = contained(error, "a listener")
    assert isinstance(failure, KernelError)
    assert failure.message.startswith(f"a listener raised {type(error).__name__}")
    assert failure.__context__ is error


@aio
async def test_an_ordinary_exception_stays_what_it_is() -> None:
    error = ValueError("x")
    assert contained(error, "a listener") is error


@aio
async def test_the_cancellation_of_the_task_itself_goes_on() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            raise contained(error, "work")  # noqa: B904

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("make", [raising, raising_later])
@aio
async def test_awaited_dispatches_raise_a_failure(
    make: Callable[[BaseException], Callable[..., Any]], error: BaseException
) -> None:
    ctx = Context()
    ctx.on("serial", make(error))
    ctx.on("parallel", make(error))
    with pytest.raises(KernelError):
        await ctx.serial("serial", None)
    with pytest.raises(ExceptionGroup):
        await ctx.parallel("parallel", None)


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("make", [raising, raising_later])
@aio
async def test_a_contained_emit_goes_on_to_the_next_listener(
    make: Callable[[BaseException], Callable[..., Any]], error: BaseException
) -> None:
    ctx = Context()
    told: list[str] = []
    ctx.on("x", make(error))
    ctx.on("x", told.append)
    ctx.emit(Event("x", "emit", contained=True), "payload")
    await asyncio.sleep(0.001)
    assert told == ["payload"]


@pytest.mark.parametrize("error", ODD)
@aio
async def test_synchronous_dispatches_raise_a_failure(error: BaseException) -> None:
    ctx = Context()
    for name in ("emit", "bail", "waterfall"):
        ctx.on(name, raising(error))
    with pytest.raises(KernelError):
        ctx.emit("emit", None)
    with pytest.raises(KernelError):
        ctx.bail("bail", None)
    with pytest.raises(KernelError):
        ctx.waterfall("waterfall", None, lambda: None)


@pytest.mark.parametrize("error", ODD)
@aio
async def test_background_work_that_ends_so_is_reported(error: BaseException) -> None:
    ctx = Context()
    failures: list[BaseException] = []
    ctx.kernel.on_failure = lambda failure, label: failures.append(failure)
    ctx.spawn(raising_later(error)(), "work")
    await asyncio.sleep(0.001)
    assert [failure.__context__ for failure in failures] == [error]


async def cancelling_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@aio
async def test_a_spawned_task_that_cancels_itself_is_reported() -> None:
    ctx = Context()
    failures: list[str] = []
    ctx.kernel.on_failure = lambda failure, label: failures.append(str(failure))
    ctx.spawn(cancelling_itself(), "work")
    await asyncio.sleep(0.001)
    assert failures == ["task work raised CancelledError"]
    assert ctx.fiber.effects == []


@aio
async def test_a_setup_that_cancels_itself_is_undone_and_noted() -> None:
    ctx = Context()
    undone: list[str] = []

    async def setup() -> AsyncIterator[Callable[[], None]]:
        yield lambda: undone.append("undone")
        await cancelling_itself()

    effect = ctx.effect(setup, "thing")
    with pytest.raises(KernelError, match="effect thing raised CancelledError"):
        await effect
    assert [(label, str(error)) for label, error in ctx.fiber.failures] == [
        ("thing", "effect thing raised CancelledError")
    ]
    assert (undone, ctx.fiber.effects) == (["undone"], [])


@aio
async def test_a_task_that_cancels_itself_while_it_is_being_ended_has_not_failed() -> None:
    ctx = Context()
    failures: list[str] = []
    ctx.kernel.on_failure = lambda failure, label: failures.append(str(failure))

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await cancelling_itself()

    ctx.spawn(work(), "work")
    await asyncio.sleep(0)
    await ctx.dispose()
    assert failures == []


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("make", [raising, raising_later])
@aio
async def test_a_disposer_that_raises_it_keeps_no_other_from_running(
    make: Callable[[BaseException], Callable[..., Any]], error: BaseException
) -> None:
    ctx = Context()
    undone = []
    ctx.effect(lambda: lambda: undone.append("first"))
    ctx.effect(lambda: make(error))
    ctx.effect(lambda: lambda: undone.append("last"))
    await ctx.dispose()
    assert undone == ["last", "first"]
