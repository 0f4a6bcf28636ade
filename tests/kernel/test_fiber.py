"""Fibers: states, waiting, restarting, disposing (`spec/kernel.md` §5)."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dsh.errors import KernelError
from dsh.kernel import FIBER_CONFIG, FIBER_CREATED, FIBER_STATUS, Context, Fiber, ValidationError
from dsh.kernel.effect import Disposer
from dsh.kernel.internal import ConfigRequest
from tests.aio import aio


def trace(ctx: Context) -> list[str]:
    """Record every change of state as `name STATE`."""
    seen: list[str] = []
    ctx.on(FIBER_STATUS, lambda change: seen.append(f"{change.fiber.name} {change.fiber.state.name}"))
    return seen


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


@aio
async def test_the_body_never_runs_inside_the_mounting_call() -> None:
    ran: list[str] = []
    ctx = Context()

    fiber = ctx.plugin(lambda c: ran.append("body"))
    assert ran == []
    await fiber

    assert ran == ["body"]
    assert fiber.state.name == "ACTIVE"


@aio
async def test_awaiting_a_pending_fiber_returns_without_an_error() -> None:
    ctx = Context()

    fiber = await ctx.plugin(lambda c: None, inject=["absent"])

    assert fiber.state.name == "PENDING"
    assert fiber.missing == ["absent"]


@aio
async def test_a_failed_load_rolls_back_through_unloading() -> None:
    ctx = Context()
    seen = trace(ctx)
    log: list[str] = []

    def plugin(c: Context) -> None:
        c.effect(lambda: lambda: log.append("rolled back"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await ctx.plugin(plugin)

    assert seen == ["plugin LOADING", "plugin UNLOADING", "plugin FAILED"]
    assert log == ["rolled back"]


@aio
async def test_a_failed_fiber_is_tried_again_when_a_service_it_injects_changes() -> None:
    ctx = Context()
    attempts: list[int] = []

    def consumer(c: Context) -> None:
        attempts.append(c.use_count)
        if c.use_count == 1:
            raise ValueError("first one is bad")

    def provider(number: int) -> Any:
        return lambda c: c.provide("use_count", number)

    first = ctx.plugin(provider(1))
    fiber = ctx.plugin(consumer, inject=["use_count"])
    await first
    await settle()
    assert fiber.state.name == "FAILED"

    await first.dispose()
    await ctx.plugin(provider(2))
    await settle()

    assert attempts == [1, 2]
    assert fiber.state.name == "ACTIVE"
    assert fiber.error is None


@aio
async def test_a_consumer_in_mid_load_runs_again_with_the_new_provider() -> None:
    ctx = Context()
    seen: list[int] = []
    gate = asyncio.Event()

    async def consumer(c: Context) -> None:
        value = c.number
        await gate.wait()
        seen.append(value)

    first = await ctx.plugin(lambda c: c.provide("number", 1))
    fiber = ctx.plugin(consumer, inject=["number"])
    await asyncio.sleep(0.005)
    gone = asyncio.ensure_future(first.dispose())
    await asyncio.sleep(0)
    gate.set()
    await gone
    await ctx.plugin(lambda c: c.provide("number", 2))
    await fiber.quiet()

    assert seen[-1] == 2
    assert fiber.state.name == "ACTIVE"


@aio
async def test_consumers_quiesce_before_the_provider_releases_anything() -> None:
    ctx = Context()
    log: list[str] = []

    def provider(c: Context) -> None:
        c.provide("disk", "disk")
        c.effect(lambda: lambda: log.append("disk closed"))

    def consumer(c: Context) -> None:
        async def slow() -> None:
            await asyncio.sleep(0.005)
            log.append("consumer done")

        c.effect(lambda: slow)

    owner = await ctx.plugin(provider)
    await ctx.plugin(consumer, inject=["disk"])
    await owner.dispose()

    assert log == ["consumer done", "disk closed"]


@aio
async def test_consumers_quiesce_first_also_where_the_body_hands_out_its_provide() -> None:
    ctx = Context()
    log: list[str] = []

    async def provider(c: Context) -> AsyncIterator[Disposer]:
        yield c.provide("disk", "disk")
        c.effect(lambda: lambda: log.append("disk closed"))

    def consumer(c: Context) -> None:
        c.effect(lambda: lambda: log.append(f"consumer done with {c.disk}"))

    owner = await ctx.plugin(provider)
    await ctx.plugin(consumer, inject=["disk"])
    await owner.dispose()

    assert log == ["consumer done with disk", "disk closed"]


@aio
async def test_a_fiber_is_held_until_the_last_holder_lets_go_and_tells_the_first_reason_that_stands() -> None:
    fiber = await Context().plugin(lambda ctx: None)
    assert fiber.held == ""
    first, second, third = fiber.hold("one works"), fiber.hold("two works"), fiber.hold("two works")
    said = [fiber.held]
    for undo in (first, first, second, second, third):
        undo()
        said.append(fiber.held)
    assert said == ["one works", "two works", "two works", "two works", "two works", ""]
    with pytest.raises(KernelError, match="a fiber is held for a reason"):
        fiber.hold("")


@aio
async def test_every_caller_of_dispose_waits_for_the_same_teardown() -> None:
    ctx = Context()
    log: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.005)
        log.append("gone")

    fiber = await ctx.plugin(lambda c: c.effect(lambda: slow))
    await asyncio.gather(fiber.dispose(), fiber.dispose())
    await fiber.dispose()

    assert log == ["gone"]
    assert fiber.state.name == "DISPOSED"
    assert fiber.uid is None


@aio
async def test_disposing_a_loading_fiber_cancels_its_body() -> None:
    ctx = Context()
    log: list[str] = []

    async def stuck(c: Context) -> AsyncIterator[Disposer]:
        try:
            yield lambda: log.append("undone")
            await asyncio.sleep(60)
        finally:
            log.append("finally")

    fiber = ctx.plugin(stuck)
    await asyncio.sleep(0.005)
    assert fiber.state.name == "LOADING"
    await fiber.dispose()

    assert log == ["finally", "undone"]
    assert fiber.error is None


@aio
async def test_disposing_a_pending_fiber_undoes_what_an_observer_attached() -> None:
    ctx = Context()
    log: list[str] = []
    ctx.on(FIBER_CREATED, lambda fiber: fiber.ctx.effect(lambda: lambda: log.append("undone")))

    fiber = ctx.plugin(lambda c: None, inject=["absent"])
    await fiber.dispose()

    assert log == ["undone"]


@aio
async def test_an_observer_of_creation_may_add_to_inject() -> None:
    ctx = Context()
    ctx.on(FIBER_CREATED, lambda fiber: fiber.inject.update(extra=None))

    fiber = await ctx.plugin(lambda c: None)

    assert fiber.state.name == "PENDING"
    assert fiber.missing == ["extra"]


@aio
async def test_an_observer_that_raises_takes_the_new_fiber_down() -> None:
    ctx = Context()

    def veto(fiber: Fiber) -> None:
        raise ValueError("not here")

    hook = ctx.on(FIBER_CREATED, veto)
    with pytest.raises(ValueError, match="not here"):
        ctx.plugin(lambda c: None)
    await settle()
    hook()

    assert ctx.fiber.effects == []
    assert ctx.kernel.runtimes == {}


@aio
async def test_disposing_a_child_leaves_its_parent_alone() -> None:
    ctx = Context()
    children: list[Fiber] = []

    def parent(c: Context) -> None:
        children.extend((c.plugin(lambda x: None), c.plugin(lambda x: None)))

    fiber = await ctx.plugin(parent)
    await children[0].dispose()

    assert fiber.state.name == "ACTIVE"
    assert children[1].state.name == "ACTIVE"
    await fiber.dispose()
    assert children[1].state.name == "DISPOSED"


@aio
async def test_a_late_continuation_cannot_mount_on_a_disposed_fiber() -> None:
    """PK-01: a callback that comes back after the teardown is fenced off."""
    ctx = Context()
    heard: list[str] = []
    refused: list[str] = []
    contexts: list[Context] = []

    fiber = await ctx.plugin(contexts.append)
    await fiber.dispose()
    try:
        contexts[0].plugin(lambda c: c.on("tick", heard.append))
    except KernelError as error:
        refused.append(error.code)
    ctx.emit("tick", "now")

    assert refused == ["INACTIVE_EFFECT"]
    assert heard == []


class SpeakerConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    word: str
    times: int = 1


class Speaker:
    """A plugin object with a schema."""

    name = "speaker"
    Config = SpeakerConfig

    def __init__(self) -> None:
        self.said: list[str] = []

    def apply(self, ctx: Context, config: SpeakerConfig) -> None:
        self.said.append(config.word * config.times)


@aio
async def test_a_config_is_validated_before_the_body_runs() -> None:
    ctx = Context()
    speaker = Speaker()

    with pytest.raises(ValidationError) as caught:
        await ctx.plugin(speaker, {"word": "a", "times": "3"})

    assert caught.value.message == "invalid config:\n  - expected integer but got string (at times)"
    assert speaker.said == []


@aio
async def test_update_validates_first_and_keeps_the_old_config_when_it_fails() -> None:
    ctx = Context()
    speaker = Speaker()
    fiber = await ctx.plugin(speaker, {"word": "a"})
    uid = fiber.uid

    with pytest.raises(ValidationError):
        await fiber.update({"word": 3})
    assert fiber.raw_config == {"word": "a"}
    await fiber.restart()
    await fiber.update({"word": "b", "times": 2})

    assert speaker.said == ["a", "a", "bb"]
    assert fiber.uid == uid


@aio
async def test_config_is_resolved_at_each_activation_with_the_services_there() -> None:
    ctx = Context()
    speaker = Speaker()

    def word(request: ConfigRequest, following: Callable[[], object]) -> object:
        if request.fiber.name != "speaker":
            return following()
        return {"word": str(request.fiber.ctx.number)}

    ctx.on(FIBER_CONFIG, word)
    first = await ctx.plugin(lambda c: c.provide("number", 1))
    fiber = ctx.plugin(speaker, {"word": "raw"}, inject=["number"])
    await fiber
    await first.dispose()
    await ctx.plugin(lambda c: c.provide("number", 2))
    await fiber.quiet()

    assert speaker.said == ["1", "2"]


@aio
async def test_the_root_restarts_when_it_is_disposed() -> None:
    ctx = Context()
    log: list[str] = []

    def plugin(c: Context) -> None:
        c.provide("thing", "first")
        c.effect(lambda: lambda: log.append("gone"))

    await ctx.plugin(plugin)
    await ctx.dispose()

    assert log == ["gone"]
    assert ctx.fiber.state.name == "ACTIVE"
    await ctx.plugin(lambda c: c.provide("thing", "second"))
    assert ctx.get("thing") == "second"


@aio
async def test_a_fiber_tells_what_it_holds() -> None:
    def plugin(ctx: Context) -> None:
        ctx.on("tick", print)
        ctx.provide("thing", 1)
        ctx.plugin(lambda c: None)

    fiber = await Context().plugin(plugin)

    labels = [effect.label for effect in fiber.tree().effects]
    assert labels == ["body", 'ctx.on("tick")', 'ctx.provide("thing")', "ctx.plugin()"]


@aio
async def test_a_fiber_that_disposes_itself_from_its_body_does_not_hang() -> None:
    async def plugin(ctx: Context) -> None:
        await ctx.fiber.dispose()

    ctx = Context()
    fiber = ctx.plugin(plugin)
    await fiber.quiet()
    await settle()

    assert fiber.state.name == "DISPOSED"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
@aio
async def test_a_body_that_raises_what_is_no_exception_fails_and_does_not_hang(error: BaseException) -> None:
    def plugin(ctx: Context) -> None:
        raise error

    with pytest.raises(KernelError, match=f"plugin plugin raised {type(error).__name__}"):
        await Context().plugin(plugin)


class Row:
    """Stands for the loader's record of a row."""

    def __init__(self, row_id: str) -> None:
        self.id = row_id


@aio
async def test_messages_name_a_fiber_by_the_plugins_up_to_its_row_and_the_rows_around_it() -> None:
    root = Context()
    outer = await root.plugin(lambda ctx: None, name="tools")
    row = await outer.ctx.plugin(lambda ctx: None, name="bash-local")
    inner = await row.ctx.plugin(lambda ctx: None, name="helper")
    assert inner.row_chain == "helper in bash-local in tools"
    outer.entry, row.entry = Row("include"), Row("shell")

    assert inner.row_chain == "helper in shell (bash-local) in include (tools)"
    assert root.fiber.row_chain == "root"
    await root.dispose()


def test_outside_of_a_running_loop_nothing_is_mounted_and_the_next_step_is_said() -> None:
    root = Context()

    with pytest.raises(KernelError, match="inside a running event loop only") as caught:
        root.plugin(lambda ctx: None)

    assert "call_soon_threadsafe" in caught.value.hint
    assert (root.statistics().fibers, root.registry) == (0, {})


def test_without_a_loop_a_task_is_refused_and_its_coroutine_closed() -> None:
    async def work() -> None:
        raise AssertionError

    coro = work()
    with pytest.raises(KernelError, match="inside a running event loop only"):
        Context().spawn(coro, "work")

    assert inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED


class Nameless:
    def apply(self, ctx: Context) -> None: ...


@aio
async def test_a_plugin_without_a_name_is_called_like_the_nearest_named_one_around_it() -> None:
    root = Context()
    outer = await root.plugin(lambda ctx: None, name="outer")
    between = await outer.ctx.plugin(Nameless())
    inner = await between.ctx.plugin(Nameless())

    assert (inner.name, root.plugin(Nameless()).name) == ("outer", "root")
    await root.dispose()
