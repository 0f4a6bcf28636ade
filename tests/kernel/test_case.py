"""Plug-ins that went wrong in other programs: PK-01 and PK-03, with everything counted."""

import asyncio

import pytest

from dsh.capabilities.timer import TIMER
from dsh.errors import KernelError
from dsh.kernel import Context, Fiber
from dsh.plugins import timer
from tests.aio import aio, aio_in_virtual_time


@aio_in_virtual_time
async def test_a_body_that_resumes_during_its_unload_mounts_nothing() -> None:
    """PK-01: a late await registers a child that nobody would dispose of."""
    root = Context()
    await root.plugin(timer)
    heard: list[object] = []
    tools: list[str] = []

    def child(ctx: Context) -> None:
        ctx.on("tick", heard.append)
        tools.append("t2")
        ctx.effect(lambda: lambda: tools.remove("t2"))

    async def late(ctx: Context) -> None:
        await ctx.timeout(50)
        ctx.plugin(child)

    async def stubborn(ctx: Context) -> None:
        """The same, and it does not let itself be cancelled."""
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        ctx.plugin(child)

    for plugin in (late, stubborn):
        before = root.statistics()
        fiber = root.plugin(plugin, inject=[TIMER])
        await asyncio.sleep(0.01)
        await fiber.dispose()
        await asyncio.sleep(0.2)
        root.emit("tick", 1)

        assert (heard, tools) == ([], [])
        assert root.statistics() == before
    await root.dispose()


@aio
async def test_a_disposer_that_registers_an_effect_each_time_is_refused_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PK-01, the variant that would run away."""
    root = Context()
    runs: list[str] = []

    def plugin(ctx: Context) -> None:
        def disposer() -> None:
            runs.append("x")
            ctx.effect(lambda: disposer)

        ctx.effect(lambda: disposer, "runaway")

    fiber = await root.plugin(plugin)
    await fiber.dispose()

    assert runs == ["x"]
    assert (
        caplog.text.count("disposing runaway of plugin failed: cannot create effect on inactive context") == 1
    )


class Log:
    """Stands for a session: what is appended to it after the plugin's end would be an error."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.refused: list[str] = []


def careless(log: Log, response: "asyncio.Future[str]", ticks: list[str]) -> object:
    """PK-03: two children of which one goes at once, a raising disposer, an interval, a request in flight."""

    def plugin(ctx: Context) -> None:
        first = ctx.plugin(lambda c: c.on("tick", lambda _: None), name="first")
        ctx.plugin(lambda c: c.on("tick", lambda _: None), name="second")
        ctx.provide("thing", object())
        ctx.accessor("computed", lambda c: 1)
        ctx.export_logs(lambda entry: None)
        ctx.interval(lambda: ticks.append("tick"), 1000)

        def boom() -> None:
            raise ValueError("boom")

        ctx.effect(lambda: lambda: log.lines.append("a"))
        ctx.effect(lambda: boom, "the bad one")
        ctx.effect(lambda: lambda: log.lines.append("c"))
        ctx.spawn(asyncio.sleep(3600), "sleep")
        first_gone = ctx.effect(first.dispose, "dispose the first")
        assert first_gone.active

        def arrived(answer: "asyncio.Future[str]") -> None:
            try:
                ctx.effect(lambda: log.lines.append(answer.result()))
            except KernelError as error:
                log.refused.append(error.code)

        response.add_done_callback(arrived)

    return plugin


@aio_in_virtual_time
async def test_ten_cycles_leave_what_one_leaves(caplog: pytest.LogCaptureFixture) -> None:
    root = Context()
    await root.plugin(timer)
    counts = []
    for _ in range(10):
        caplog.clear()
        log, ticks = Log(), list[str]()
        response: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        fiber: Fiber = await root.plugin(careless(log, response, ticks), inject=[TIMER], name="careless")
        await asyncio.sleep(2.5)
        assert fiber.is_active
        assert [child.name for child in fiber.children] == ["second"]
        await fiber.dispose()
        response.set_result("late")
        await asyncio.sleep(5)

        assert log.lines == ["c", "a"]
        assert log.refused == ["INACTIVE_EFFECT"]
        assert ticks == ["tick", "tick"]
        assert caplog.text.count("disposing the bad one of ") == 1
        counts.append(root.statistics())

    assert counts == [counts[0]] * 10
    await root.dispose()
    assert sum(count for name, count in root_counts(root) if name != "tasks") == 0


def root_counts(root: Context) -> list[tuple[str, int]]:
    counts = root.statistics()
    return [(name, getattr(counts, name)) for name in counts.__struct_fields__]


@aio
async def test_nothing_can_be_mounted_on_a_root_that_is_being_disposed() -> None:
    root = Context()
    refused: list[str] = []

    async def slow() -> None:
        try:
            root.plugin(lambda ctx: None)
        except KernelError as error:
            refused.append(error.code)

    await root.plugin(lambda ctx: ctx.effect(lambda: slow) and None)
    before = root.closed
    await root.dispose()

    assert not before
    assert refused == ["INACTIVE_EFFECT"]
    assert (root.closed, root.statistics().fibers) == (True, 0)


@aio
async def test_a_root_is_closed_from_its_disposal_until_it_is_used_again() -> None:
    root = Context()
    seen: list[bool] = []
    fiber = await root.plugin(lambda ctx: ctx.effect(lambda: lambda: seen.append(ctx.closed)) and None)
    await asyncio.gather(root.dispose(), root.dispose())
    assert seen == [True]
    assert (fiber.ctx.closed, root.fiber.state.name) == (True, "ACTIVE")

    await root.plugin(lambda ctx: None)
    assert not root.closed
    await root.dispose()


@aio
async def test_the_tree_of_a_fiber_names_all_that_it_is_and_holds() -> None:
    root = Context()

    class Row:
        id = "tools:shell"

    def plugin(ctx: Context) -> None:
        ctx.on("tick", print)
        ctx.provide("thing", 1)
        ctx.plugin(lambda c: None, name="child", inject=["thing", "absent"])
        ctx.effect(lambda: [ctx.effect(lambda: None, "inner")], "outer")

    root.provide("base", 1)
    fiber = await root.plugin(plugin, name="shell", inject=["base"])
    fiber.entry = Row()
    tree = fiber.tree()
    child = tree.children[0]

    assert (tree.uid, tree.name, tree.row, tree.state) == (fiber.uid, "shell", "tools:shell", "ACTIVE")
    assert (tree.waits_for, tree.injects, tree.provides, tree.error) == ((), ("base",), ("thing",), "")
    assert [effect.label for effect in tree.effects] == [
        "body", 'ctx.on("tick")', 'ctx.provide("thing")', "ctx.plugin()", "outer",
    ]  # fmt: skip
    assert [effect.label for effect in tree.effects[-1].children] == ["inner"]
    assert (child.name, child.state, child.waits_for) == ("child", "PENDING", ("absent",))
    counts = root.statistics()
    assert (counts.fibers, counts.active, counts.pending, counts.moving) == (2, 1, 1, 0)
    assert (counts.services, counts.listeners, counts.consumers, counts.plugins) == (2, 1, 3, 2)
    await root.dispose()
