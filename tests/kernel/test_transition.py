"""Every change of a fiber's state, as a table of traces (`spec/kernel.md` §5.2 to §5.6)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import FIBER_CREATED, FIBER_STATUS, Context, Fiber, FiberState
from dsh.kernel.internal import StatusChange
from tests.aio import aio

LOADED = ["LOADING", "ACTIVE"]
GONE = ["UNLOADING", "DISPOSED"]


class Stage:
    """A root, a provider of `a` that comes and goes, and the fiber that is watched."""

    def __init__(self) -> None:
        self.root = Context()
        self.trace: list[str] = []
        self.gate = asyncio.Event()
        self.failures = 0
        self.bodies = 0
        self.root.on(FIBER_STATUS, self._changed)

    def _changed(self, change: StatusChange) -> None:
        if change.fiber.name == "watched":
            self.trace.append(change.fiber.state.name)

    def mount(self, *inject: str, failures: int = 0, gated: bool = False) -> Fiber:
        self.failures = failures

        async def body(ctx: Context) -> None:
            self.bodies += 1
            if gated:
                await self.gate.wait()
            if self.failures:
                self.failures -= 1
                raise ValueError("on purpose")

        return self.root.plugin(body, name="watched", inject=list(inject))

    async def provider(self) -> Fiber:
        return await self.root.plugin(lambda ctx: ctx.provide("a", object()), name="provider")


async def rest(root: Context) -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def loads(it: Stage) -> None:
    await it.mount()


async def waits_and_loads(it: Stage) -> None:
    it.mount("a")
    await rest(it.root)
    assert it.trace == []
    await it.provider()


async def loses_its_provider(it: Stage) -> None:
    provider = await it.provider()
    await it.mount("a")
    await provider.dispose()


async def gets_another_provider(it: Stage) -> None:
    provider = await it.provider()
    await it.mount("a")
    await provider.dispose()
    await it.provider()


async def provider_restarts(it: Stage) -> None:
    provider = await it.provider()
    await it.mount("a")
    await provider.restart()


async def fails(it: Stage) -> None:
    it.mount(failures=1)


async def fails_and_is_restarted(it: Stage) -> None:
    fiber = it.mount(failures=1)
    await fiber.quiet()
    await fiber.restart()


async def fails_and_is_updated(it: Stage) -> None:
    fiber = it.mount(failures=1)
    await fiber.quiet()
    assert await fiber.update({"k": 1}) is None
    await fiber


async def fails_and_its_provider_changes(it: Stage) -> None:
    provider = await it.provider()
    it.mount("a", failures=1)
    await rest(it.root)
    await provider.dispose()
    await it.provider()


async def fails_and_is_updated_while_its_service_is_away(it: Stage) -> None:
    provider = await it.provider()
    fiber = it.mount("a", failures=1)
    await fiber.quiet()
    await provider.dispose()
    assert fiber.state is FiberState.FAILED
    await fiber.update(None)


async def is_disposed(it: Stage) -> None:
    fiber = await it.mount()
    await fiber.dispose()


async def is_disposed_while_pending(it: Stage) -> None:
    await it.mount("a").dispose()


async def is_disposed_before_its_body_began(it: Stage) -> None:
    await it.mount().dispose()
    assert it.bodies == 0


async def is_disposed_while_loading(it: Stage) -> None:
    fiber = it.mount(gated=True)
    await rest(it.root)
    await fiber.dispose()


async def is_disposed_after_it_failed(it: Stage) -> None:
    fiber = it.mount(failures=1)
    await fiber.quiet()
    await fiber.dispose()


async def is_restarted(it: Stage) -> None:
    await (await it.mount()).restart()


async def is_updated_while_loading(it: Stage) -> None:
    fiber = it.mount(gated=True)
    await rest(it.root)
    it.gate.set()
    await fiber.update({"k": 2})
    await fiber
    assert fiber.config == {"k": 2}


async def changes_collapse(it: Stage) -> None:
    """Whatever happens during one transition is followed by one other."""
    fiber = await it.mount()
    await asyncio.gather(*(fiber.restart() for _ in range(5)))


async def is_invalidated_before_the_first_step(it: Stage) -> None:
    provider = await it.provider()
    it.mount("a")
    gone = asyncio.ensure_future(provider.dispose())
    await rest(it.root)
    await gone
    assert it.bodies == 0


async def loses_its_provider_before_the_transition_began(it: Stage) -> None:
    provider = await it.provider()
    it.mount("a")
    await provider.dispose()
    assert it.bodies == 0


async def never_ends_to_load_and_loses_its_provider(it: Stage) -> None:
    provider = await it.provider()
    it.mount("a", gated=True)
    await rest(it.root)
    await provider.dispose()


TRACES: list[tuple[Callable[[Stage], Awaitable[None]], list[str]]] = [
    (loads, LOADED),
    (waits_and_loads, LOADED),
    (loses_its_provider, [*LOADED, "UNLOADING", "PENDING"]),
    (gets_another_provider, [*LOADED, "UNLOADING", "PENDING", *LOADED]),
    (provider_restarts, [*LOADED, "UNLOADING", "PENDING", *LOADED]),
    (fails, ["LOADING", "UNLOADING", "FAILED"]),
    (fails_and_is_restarted, ["LOADING", "UNLOADING", "FAILED", *LOADED]),
    (fails_and_is_updated, ["LOADING", "UNLOADING", "FAILED", *LOADED]),
    (fails_and_its_provider_changes, ["LOADING", "UNLOADING", "FAILED", *LOADED]),
    (fails_and_is_updated_while_its_service_is_away, ["LOADING", "UNLOADING", "FAILED", "PENDING"]),
    (is_disposed, [*LOADED, *GONE]),
    (is_disposed_while_pending, GONE),
    (is_disposed_before_its_body_began, ["LOADING", *GONE]),
    (is_disposed_while_loading, ["LOADING", *GONE]),
    (is_disposed_after_it_failed, ["LOADING", "UNLOADING", "FAILED", *GONE]),
    (is_restarted, [*LOADED, "UNLOADING", *LOADED]),
    (is_updated_while_loading, ["LOADING", "UNLOADING", *LOADED]),
    (changes_collapse, [*LOADED, "UNLOADING", *LOADED]),
    (is_invalidated_before_the_first_step, ["LOADING", "UNLOADING", "PENDING"]),
    (loses_its_provider_before_the_transition_began, ["LOADING", "UNLOADING", "PENDING"]),
    (never_ends_to_load_and_loses_its_provider, ["LOADING", "UNLOADING", "PENDING"]),
]


@pytest.mark.parametrize(("story", "expected"), TRACES, ids=[story.__name__ for story, _ in TRACES])
@aio
async def test_a_fiber_goes_through_these_states(
    story: Callable[[Stage], Awaitable[None]], expected: list[str]
) -> None:
    it = Stage()
    await story(it)
    await rest(it.root)

    assert it.trace == expected
    await it.root.dispose()
    assert it.root.statistics().fibers == 0


def test_the_numbers_of_the_states_are_the_specified_ones() -> None:
    assert [state.value for state in FiberState] == [0, 1, 2, 3, 4, 5]
    assert [state.name for state in FiberState] == [
        "PENDING", "LOADING", "ACTIVE", "FAILED", "DISPOSED", "UNLOADING",
    ]  # fmt: skip


@aio
async def test_an_observer_of_states_that_raises_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = Context()

    def observer(change: StatusChange) -> None:
        raise ValueError("curious")

    root.on(FIBER_STATUS, observer)
    fiber = await root.plugin(lambda ctx: None)

    assert fiber.is_active
    assert "curious" in caplog.text


@aio
async def test_an_observer_may_refresh_the_fiber_from_inside_the_announcement() -> None:
    root = Context()
    restarts: list[asyncio.Future[None]] = []

    def observer(change: StatusChange) -> None:
        if change.fiber.is_active and not restarts:
            restarts.append(asyncio.ensure_future(change.fiber.restart()))

    root.on(FIBER_STATUS, observer)
    fiber = await root.plugin(lambda ctx: None)
    await restarts[0]

    assert fiber.is_active


@aio
async def test_the_end_of_a_fiber_is_told_by_the_event_of_its_birth() -> None:
    root = Context()
    told: list[int | None] = []
    root.on(FIBER_CREATED, lambda fiber: told.append(fiber.uid))
    fiber = await root.plugin(lambda ctx: None)
    uid = fiber.uid
    await fiber.dispose()

    assert told == [uid, None]


@aio
async def test_an_observer_of_the_end_that_raises_keeps_nothing_alive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = Context()
    undone: list[str] = []

    def observer(fiber: Fiber) -> None:
        if fiber.uid is None:
            raise ValueError("no")

    root.on(FIBER_CREATED, observer)
    fiber = await root.plugin(lambda ctx: ctx.effect(lambda: lambda: undone.append("x")))
    await fiber.dispose()

    assert undone == ["x"]
    assert "no" in caplog.text


@aio
async def test_an_observer_of_the_birth_may_dispose_the_parent() -> None:
    root = Context()
    ran: list[str] = []
    gone: list[asyncio.Future[None]] = []

    def observer(fiber: Fiber) -> None:
        if fiber.name == "child" and fiber.uid is not None and fiber.parent is not None:
            gone.append(asyncio.ensure_future(fiber.parent.fiber.dispose()))

    root.on(FIBER_CREATED, observer)
    parent = await root.plugin(lambda ctx: None, name="parent")
    child = parent.ctx.plugin(lambda ctx: ran.append("child"), name="child")
    await rest(root)
    await gone[0]

    assert child.state is FiberState.DISPOSED
    assert root.statistics().fibers == 0


@aio
async def test_an_error_says_by_its_notes_which_plugins_were_around() -> None:
    root = Context()
    children: list[Fiber] = []

    def inner(ctx: Context) -> None:
        raise ValueError("no")

    fiber = await root.plugin(lambda ctx: children.append(ctx.plugin(inner)), name="outer")
    await children[0].quiet()

    error = children[0].error
    assert error is not None
    assert error.__notes__ == ["while loading inner in outer"]
    assert fiber.is_active


@aio
async def test_a_root_has_nothing_to_restart() -> None:
    with pytest.raises(KernelError, match="a root has no body"):
        await Context().fiber.restart()


def disposing(fiber: list[Fiber]) -> Callable[[], Any]:
    async def disposer() -> None:
        await fiber[0].dispose()

    return disposer


@pytest.mark.parametrize("restart", [True, False])
@aio
async def test_a_disposer_that_disposes_its_own_fiber_does_not_wait_for_itself(restart: bool) -> None:
    root = Context()
    fibers: list[Fiber] = []
    fibers.append(await root.plugin(lambda ctx: ctx.effect(lambda: [lambda: None, disposing(fibers)])))
    await asyncio.wait_for(fibers[0].restart() if restart else fibers[0].dispose(), 5)
    await asyncio.wait_for(fibers[0].dispose(), 5)

    assert fibers[0].state is FiberState.DISPOSED


@aio
async def test_a_consumer_whose_disposer_disposes_its_provider_does_not_wait_for_itself() -> None:
    root = Context()
    providers = [await root.plugin(lambda ctx: ctx.provide("a", 1))]
    await root.plugin(lambda ctx: ctx.effect(lambda: disposing(providers)), inject=["a"])
    await asyncio.wait_for(providers[0].dispose(), 5)

    assert root.statistics().services == 0
    await root.dispose()


@aio
async def test_everybody_else_waits_for_the_teardown_also_when_it_began_in_a_disposer() -> None:
    root = Context()
    fibers: list[Fiber] = []
    log: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.005)
        log.append("gone")

    def body(ctx: Context) -> None:
        ctx.effect(lambda: slow)
        ctx.effect(lambda: disposing(fibers))

    fibers.append(await root.plugin(body))
    restart = asyncio.ensure_future(fibers[0].restart())
    await asyncio.sleep(0)
    await fibers[0].dispose()
    await restart

    assert log == ["gone"]


@aio
async def test_a_fiber_that_has_waited_for_another_is_waited_for_by_that_one_afterwards() -> None:
    root = Context()
    log: list[str] = []
    fibers: dict[str, Fiber] = {}

    async def waits(ctx: Context) -> None:
        async def slow() -> None:
            await asyncio.sleep(0.001)
            log.append("gone")

        ctx.effect(lambda: slow)
        await fibers["other"]

    async def other(ctx: Context) -> None:
        async def undo() -> None:
            await fibers["waits"].dispose()
            log.append("waited")

        ctx.effect(lambda: undo)
        await asyncio.sleep(0.001)

    fibers["other"] = root.plugin(other)
    fibers["waits"] = await root.plugin(waits)
    await fibers["other"].dispose()

    assert log == ["gone", "waited"]


@pytest.mark.parametrize("first", ["waiting", "child", "between", "root"])
@aio
async def test_fibers_that_need_each_other_in_a_circle_still_end(first: str) -> None:
    """What is mounted under a waiting fiber may be what it waits for: then somebody has to go first."""
    root = Context()
    log: list[str] = []

    def noting(name: str, *provides: str) -> Callable[[Context], None]:
        def body(ctx: Context) -> None:
            async def undo() -> None:
                await asyncio.sleep(0)
                log.append(name)

            ctx.effect(lambda: undo)
            for service in provides:
                ctx.provide(service, name)

        return body

    fibers = {"waiting": root.plugin(noting("waiting"), inject=["a"])}
    fibers["child"] = fibers["waiting"].ctx.plugin(noting("child", "b"))
    fibers["between"] = root.plugin(noting("between", "a"), inject=["b"])
    fibers["root"] = root.fiber
    await rest(root)
    assert all(fiber.is_active for fiber in fibers.values())

    await asyncio.wait_for(fibers[first].dispose(), 5)
    await asyncio.wait_for(root.dispose(), 5)

    assert sorted(log) == ["between", "child", "waiting"]
    assert root.statistics().fibers == 0


@aio
async def test_disposing_a_provider_does_not_wait_for_what_its_consumer_does_next() -> None:
    """The consumer loads again with another provider, and its body does not end."""
    root = Context()
    gate = asyncio.Event()
    loads: list[int] = []

    async def body(ctx: Context) -> None:
        loads.append(ctx.a)
        ctx.effect(lambda: lambda: asyncio.sleep(0.001))
        if len(loads) == 2:
            await gate.wait()

    first = await root.plugin(lambda ctx: ctx.provide("a", 1))
    consumer = await root.plugin(body, inject=["a"])
    [effect] = [provider for effect in first.effects for provider in effect.providers()]
    gone = effect()
    root.provide("a", 2)
    await asyncio.wait_for(first.dispose(), 5)
    await asyncio.wait_for(gone, 5)

    assert (loads, consumer.state.name) == ([1, 2], "LOADING")
    await root.dispose()


@aio
async def test_unloading_joins_an_undo_that_is_under_way() -> None:
    root = Context()
    log: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.005)
        log.append("undone")

    fiber = await root.plugin(lambda ctx: None)
    effect = fiber.ctx.effect(lambda: slow)
    effect()
    await fiber.dispose()

    assert log == ["undone"]
    assert effect() is effect()


@aio
async def test_a_fiber_whose_state_stays_the_same_tells_nothing() -> None:
    it = Stage()
    fiber = it.mount("a")
    await fiber.restart()
    await rest(it.root)

    assert fiber.state is FiberState.PENDING
    assert it.trace == []


@aio
async def test_a_body_that_is_stopped_is_run_again_when_what_it_missed_is_back_before_it_ends() -> None:
    """The epoch is the same as before; the body has been cancelled all the same."""
    root = Context()
    is_open, ended = {"a": True}, 0
    await root.plugin(lambda ctx: ctx.provide("a", 1, check=lambda consumer: is_open["a"]))
    gate = asyncio.Event()

    async def body(ctx: Context) -> None:
        nonlocal ended
        await gate.wait()
        ended += 1

    fiber = root.plugin(body, inject=["a"])
    await rest(root)
    for is_open["a"] in (False, True):
        root.kernel.notify([("a", root.realm_of("a"))])
    gate.set()
    await rest(root)

    assert (fiber.state.name, ended) == ("ACTIVE", 1)


@aio
async def test_what_a_stopped_body_raises_on_its_way_out_is_no_failure_of_the_fiber() -> None:
    it = Stage()
    provider = await it.provider()

    async def body(ctx: Context) -> None:
        try:
            await it.gate.wait()
        finally:
            raise ValueError("while being stopped")

    fiber = it.root.plugin(body, inject=["a"])
    await rest(it.root)
    await provider.dispose()

    assert (fiber.state.name, fiber.error) == ("PENDING", None)


@aio
async def test_a_body_that_cancels_itself_has_failed_and_is_not_loaded_again_and_again() -> None:
    root = Context()
    loads: list[int] = []

    async def body(ctx: Context) -> None:
        loads.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(KernelError, match="plugin body raised CancelledError"):
        await root.plugin(body)

    assert loads == [1]
    await root.dispose()


@aio
async def test_a_task_that_outlives_the_transition_that_began_it_waits_for_the_next_like_anybody() -> None:
    root = Context()
    log: list[str] = []
    later: list[asyncio.Task[None]] = []
    gate = asyncio.Event()

    async def slow() -> None:
        await asyncio.sleep(0.005)
        log.append("gone")

    async def ends(fiber: Fiber) -> None:
        await gate.wait()
        await fiber.dispose()
        log.append("waited")

    def body(ctx: Context) -> None:
        ctx.effect(lambda: slow)
        later.append(asyncio.create_task(ends(ctx.fiber)))

    await root.plugin(body)
    gate.set()
    await later[0]

    assert log == ["gone", "waited"]


@aio
async def test_an_error_that_comes_again_is_given_its_note_once() -> None:
    error = ValueError("no")

    def body(ctx: Context) -> None:
        raise error

    fiber = Context().plugin(body)
    for _ in range(2):
        await fiber.quiet()
        with pytest.raises(ValueError, match="no"):
            await fiber.restart()

    assert error.__notes__ == ["while loading body"]


@aio
async def test_a_root_is_number_zero_and_its_fibers_count_from_one() -> None:
    root = Context()

    assert [root.fiber.uid, root.plugin(lambda ctx: None).uid] == [0, 1]
    await root.dispose()
