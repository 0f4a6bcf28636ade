"""Effects: what may set one up, in which order it is undone, what a failure leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, owner
from dsh.kernel.effect import Disposer
from tests.aio import aio


def noting(log: list[str], word: str) -> Disposer:
    return lambda: log.append(word)


@aio
async def test_disposers_run_last_in_first_out_and_only_once() -> None:
    log: list[str] = []
    ctx = Context()

    def setup() -> Iterator[Disposer]:
        yield noting(log, "first")
        yield noting(log, "second")

    effect = ctx.effect(setup)
    await effect()
    await effect()

    assert log == ["second", "first"]


@aio
async def test_one_raising_disposer_does_not_starve_the_others_of_its_effect() -> None:
    log: list[str] = []
    ctx = Context()

    def boom() -> None:
        raise ValueError("boom")

    effect = ctx.effect(lambda: [noting(log, "a"), boom, noting(log, "c"), boom])
    with pytest.raises(ExceptionGroup) as caught:
        await effect()

    assert log == ["c", "a"]
    assert [str(e) for e in caught.value.exceptions] == ["boom", "boom"]


@aio
async def test_one_raising_disposer_does_not_starve_the_fiber() -> None:
    log: list[str] = []

    def plugin(ctx: Context) -> None:
        def boom() -> None:
            raise ValueError("boom")

        ctx.effect(lambda: noting(log, "a"))
        ctx.effect(lambda: boom)
        ctx.effect(lambda: noting(log, "c"))

    fiber = await Context().plugin(plugin)
    await fiber.dispose()

    assert log == ["c", "a"]


@aio
async def test_asynchronous_disposers_do_not_overlap() -> None:
    log: list[str] = []

    def slow(word: str) -> Disposer:
        async def dispose() -> None:
            log.append(f"{word} begins")
            await asyncio.sleep(0.005)
            log.append(f"{word} ends")

        return dispose

    def plugin(ctx: Context) -> None:
        ctx.effect(lambda: [slow("one"), slow("two")])
        ctx.effect(lambda: slow("three"))

    fiber = await Context().plugin(plugin)
    await fiber.dispose()

    assert log == [f"{word} {what}" for word in ("three", "two", "one") for what in ("begins", "ends")]


@aio
async def test_context_managers_are_effects() -> None:
    log: list[str] = []

    @contextmanager
    def plain() -> Iterator[None]:
        log.append("enter")
        yield
        log.append("exit")

    @asynccontextmanager
    async def later() -> AsyncIterator[None]:
        log.append("aenter")
        yield
        log.append("aexit")

    ctx = Context()
    ctx.effect(plain)
    await ctx.effect(later)
    await ctx.dispose()

    assert log == ["enter", "aenter", "aexit", "exit"]


@aio
async def test_a_synchronous_failure_rolls_back_and_is_raised() -> None:
    log: list[str] = []
    ctx = Context()

    def setup() -> Iterator[Disposer]:
        yield noting(log, "undone")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ctx.effect(setup)

    assert log == ["undone"]
    assert ctx.fiber.effects == []


@aio
async def test_an_asynchronous_failure_rolls_back_is_logged_and_reaches_whoever_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: list[str] = []
    ctx = Context()

    async def setup() -> AsyncIterator[Disposer]:
        yield noting(log, "undone")
        raise ValueError("late")

    effect = ctx.effect(setup, "the link")
    with pytest.raises(ValueError, match="late"):
        await effect

    assert log == ["undone"]
    assert ctx.fiber.effects == []
    assert "the link" in caplog.text


@aio
async def test_a_failed_effect_marks_its_fiber_until_the_next_load() -> None:
    attempts: list[int] = []

    async def setup() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("late")

    fiber = await Context().plugin(lambda ctx: ctx.effect(setup, "the link") and None)
    await asyncio.sleep(0.001)
    assert fiber.is_active
    assert fiber.tree().failures == ("the link: late",)
    await fiber.restart()
    await asyncio.sleep(0.001)

    assert fiber.failures == []


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit(3)])
@aio
async def test_a_disposer_that_fails_in_a_rollback_keeps_no_other_from_running(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    ctx = Context()

    def boom() -> None:
        raise error

    async def setup() -> AsyncIterator[Disposer]:
        yield noting(log, "first")
        yield boom
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        await ctx.effect(setup, "the link")

    assert log == ["first"]
    assert "rolling back the link of " in caplog.text


@aio
async def test_a_setup_that_exits_the_program_has_only_failed() -> None:
    async def setup() -> None:
        raise SystemExit(3)

    with pytest.raises(KernelError, match="effect anonymous raised SystemExit"):
        await Context().effect(setup)


@aio
async def test_none_among_the_disposers_of_an_effect_is_nothing_to_undo() -> None:
    log: list[str] = []
    await Context().effect(lambda: [None, noting(log, "a"), None])()

    assert log == ["a"]


@aio
async def test_a_slow_disposer_is_named_and_still_awaited(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    monkey = owner.SLOW_DISPOSER_S
    owner.SLOW_DISPOSER_S = 0.001

    async def slow() -> None:
        await asyncio.sleep(0.02)
        log.append("done")

    try:
        fiber = await Context().plugin(lambda ctx: ctx.effect(lambda: slow, "the pump") and None, name="well")
        await fiber.dispose()
    finally:
        owner.SLOW_DISPOSER_S = monkey

    assert log == ["done"]
    assert "still disposing the pump of well" in caplog.text


@aio
async def test_disposing_during_an_asynchronous_setup_waits_for_it() -> None:
    log: list[str] = []
    ctx = Context()

    async def setup() -> Disposer:
        await asyncio.sleep(0.005)
        log.append("set up")
        return noting(log, "undone")

    effect = ctx.effect(setup)
    await effect()

    assert log == ["set up", "undone"]


@aio
async def test_a_yielded_effect_moves_into_the_outer_one() -> None:
    log: list[str] = []
    ctx = Context()

    def setup() -> Disposer:
        return ctx.effect(lambda: noting(log, "inner"), "inner")

    outer = ctx.effect(setup, "outer")
    ctx.effect(lambda: noting(log, "beside"), "beside")

    assert [e.label for e in ctx.fiber.effects] == ["outer", "beside"]
    assert [e.label for e in outer.children] == ["inner"]
    await outer()
    assert log == ["inner"]


@pytest.mark.parametrize("answer", [3, "text", object()])
@aio
async def test_anything_else_is_no_effect(answer: object) -> None:
    with pytest.raises(TypeError, match="Invalid effect"):
        Context().effect(lambda: answer)


@pytest.mark.parametrize("setup", [None, 3, "text", {}])
@aio
async def test_what_sets_nothing_up_is_refused_with_what_is_expected(setup: object) -> None:
    ctx = Context()
    with pytest.raises(TypeError) as caught:
        ctx.effect(setup, "nothing")
    assert str(caught.value) == (
        f"Invalid effect: {setup!r} as the setup of nothing, expected a function that sets it up and answers "
        "None or a function that undoes it"
    )
    assert ctx.fiber.effects == []


@aio
async def test_a_disposer_cannot_register_anything() -> None:
    refused: list[str] = []

    def plugin(ctx: Context) -> None:
        def late() -> None:
            for attempt in (
                lambda: ctx.effect(lambda: None),
                lambda: ctx.on("tick", print),
                lambda: ctx.plugin(lambda c: None),
                lambda: ctx.provide("late", 1),
            ):
                with pytest.raises(KernelError) as caught:
                    attempt()
                refused.append(caught.value.code)

        ctx.effect(lambda: late)

    fiber = await Context().plugin(plugin)
    await fiber.dispose()

    assert refused == ["INACTIVE_EFFECT"] * 4


@aio
async def test_a_spawned_task_ends_with_its_plugin_and_a_dead_one_is_reported() -> None:
    ended: list[str] = []
    failures: list[str] = []
    root = Context()
    root.kernel.on_failure = lambda error, label: failures.append(f"{label}: {error}")

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")

    async def dies() -> None:
        raise ValueError("dead")

    def plugin(ctx: Context) -> None:
        ctx.spawn(forever(), "forever")
        ctx.spawn(dies(), "short")

    fiber = await root.plugin(plugin)
    await asyncio.sleep(0.01)
    await fiber.dispose()

    assert ended == ["stopped"]
    assert failures == ["task short of plugin: dead"]


@aio
async def test_an_effect_is_active_until_it_is_undone_has_ended_or_has_failed() -> None:
    ctx = Context()

    async def fails() -> None:
        raise ValueError("late")

    undone, ended, failed = effects = [ctx.effect(lambda: None), ctx.effect(lambda: None), ctx.effect(fails)]
    assert all(effect.active for effect in effects)
    undone()
    ended.release()
    with pytest.raises(ValueError, match="late"):
        await failed
    await ended()

    assert not any(effect.active for effect in effects)
    assert ctx.fiber.effects == []


@aio
async def test_a_setup_that_never_ends_is_cancelled_when_the_whole_tree_goes() -> None:
    log: list[str] = []
    root = Context()

    async def never() -> AsyncIterator[Disposer]:
        yield noting(log, "undone")
        try:
            await asyncio.sleep(3600)
        finally:
            log.append("stopped")

    def plugin(ctx: Context) -> None:
        ctx.effect(lambda: noting(log, "the rest"))
        ctx.effect(never)

    fiber = await root.plugin(plugin)
    await asyncio.sleep(0)
    await asyncio.wait_for(root.dispose(), 5)

    assert log == ["stopped", "undone", "the rest"]
    assert fiber.failures == []


@aio
async def test_what_an_effect_inside_another_fails_with_is_told_by_the_outer_one() -> None:
    ctx = Context()

    def boom() -> None:
        raise ValueError("inner")

    outer = ctx.effect(lambda: [ctx.effect(lambda: boom, "inner"), noting([], "beside")], "outer")
    with pytest.raises(ValueError, match="inner"):
        await outer()


@aio
async def test_awaiting_an_effect_gives_the_effect() -> None:
    async def setup() -> None:
        await asyncio.sleep(0)

    for effect in (Context().effect(setup), Context().effect(lambda: None)):
        assert await effect is effect
