"""What can be mounted (`spec/kernel.md` §4)."""

import asyncio
import types
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, ServiceKey, when
from dsh.kernel.effect import Disposer
from tests.aio import aio

log: list[str] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    log.clear()


def plain(ctx: Context) -> Disposer:
    log.append("plain")
    return lambda: log.append("plain undone")


async def coroutine(ctx: Context, config: object) -> Disposer:
    log.append("coroutine")
    return lambda: log.append("coroutine undone")


def generator(ctx: Context) -> Iterator[Disposer]:
    log.append("generator")
    yield lambda: log.append("generator undone")


class WithInit:
    inject = ("base",)

    def __init__(self, ctx: Context) -> None:
        log.append("made")

    def init(self) -> Disposer:
        log.append("init")
        return lambda: log.append("init undone")


class Derived(WithInit):
    inject = ("derived",)


class Single:
    inject = "base"

    def __init__(self, ctx: Context) -> None:
        log.append("made")


@pytest.mark.parametrize("services", ["base", ServiceKey[int]("base"), ["base"], {"base": None}])
@aio
async def test_one_service_is_injected_by_its_key_or_name_alone(services: object) -> None:
    ctx = Context()
    module = types.SimpleNamespace(inject=services, apply=lambda ctx: log.append("module"))
    fibers = [
        ctx.plugin(module),
        ctx.plugin(plain, inject=services),
        ctx.inject(services, lambda ctx: log.append("callback")),
        ctx.plugin(Single),
    ]
    assert [list(fiber.inject) for fiber in fibers] == [["base"]] * 4
    ctx.provide("base", 1)
    await asyncio.gather(*(fiber.wait() for fiber in fibers))
    assert sorted(log) == ["callback", "made", "module", "plain"]


@pytest.mark.parametrize("plugin", [plain, coroutine, generator])
@aio
async def test_functions_mount_and_what_they_return_is_undone(plugin: object) -> None:
    fiber = await Context().plugin(plugin)
    await fiber.dispose()

    name = fiber.runtime.name if fiber.runtime else ""
    assert log == [name, f"{name} undone"]


@aio
async def test_a_class_is_constructed_and_its_init_hook_is_the_effect() -> None:
    ctx = Context()
    await ctx.plugin(lambda c: (c.provide("base", 1), c.provide("derived", 2)))
    fiber = await ctx.plugin(Derived)
    await fiber.dispose()

    assert list(fiber.inject) == ["base", "derived"]
    assert log == ["made", "init", "init undone"]


@aio
async def test_a_module_with_apply_mounts_under_its_name() -> None:
    module = types.ModuleType("some.package.tool_thing")
    module.apply = lambda ctx: log.append("applied")  # type: ignore[attr-defined]

    fiber = await Context().plugin(module)

    assert log == ["applied"]
    assert fiber.name == "tool-thing"


@pytest.mark.parametrize("thing", [3, "text", None, object()])
@aio
async def test_anything_else_is_refused_by_type(thing: object) -> None:
    with pytest.raises(KernelError, match=f"received {type(thing).__name__}"):
        Context().plugin(thing)


@pytest.mark.parametrize("plugin", [plain, Derived])
@aio
async def test_the_same_plugin_mounted_twice_is_two_fibers_of_one_runtime(plugin: object) -> None:
    ctx = Context()
    one, two = ctx.plugin(plugin), ctx.plugin(plugin, name="ignored")

    assert one.runtime is two.runtime
    assert one.uid != two.uid
    await one.dispose()
    assert len(ctx.kernel.runtimes) == 1
    await two.dispose()
    assert ctx.kernel.runtimes == {}


class Waiting:
    """A class plugin with methods that wait for services of their own."""

    def __init__(self, ctx: Context) -> None:
        log.append("made")

    @when("one")
    def first(self, ctx: Context) -> Disposer:
        log.append(f"first {ctx.one}")
        return lambda: log.append("first undone")

    @when("one", "two")
    def both(self, ctx: Context) -> None:
        log.append(f"both {ctx.one} {ctx.two}")


class WaitingLess(Waiting):
    def both(self, ctx: Context) -> None:
        """Overridden without the mark: an ordinary method."""
        log.append("never")


@aio
async def test_marked_methods_run_whenever_their_services_exist() -> None:
    ctx = Context()
    fiber = await ctx.plugin(Waiting)
    assert log == ["made"]
    one = await ctx.plugin(lambda c: c.provide("one", 1))
    await ctx.plugin(lambda c: c.provide("two", 2))
    for child in fiber.children:
        await child
    assert log == ["made", "first 1", "both 1 2"]
    await one.dispose()

    assert log[3:] == ["first undone"]
    await ctx.dispose()
    log.clear()
    await ctx.plugin(WaitingLess)
    await ctx.plugin(lambda c: (c.provide("one", 1), c.provide("two", 2), None)[2])
    await asyncio.sleep(0.001)
    assert log == ["made", "first 1"]
    await ctx.dispose()


@aio
async def test_the_registry_names_what_is_mounted_and_can_take_it_away() -> None:
    ctx = Context()
    await ctx.plugin(plain)
    await ctx.plugin(plain)
    await ctx.plugin(generator)

    assert [runtime.name for runtime in ctx.registry.values()] == ["plain", "generator"]
    assert list(ctx.registry) == [plain, generator]
    assert [len(runtime.fibers) for runtime in ctx.registry.values()] == [2, 1]
    assert await ctx.registry.delete(plain)
    assert not await ctx.registry.delete(plain)
    assert log[-2:] == ["plain undone", "plain undone"]
    assert (ctx.registry.of(plain), list(ctx.registry)) == (None, [generator])
    await ctx.dispose()


def broken(ctx: Context) -> Iterator[object]:
    try:
        yield lambda: log.append("undone")
        yield 3
    finally:
        log.append("finally")


async def broken_later(ctx: Context) -> AsyncIterator[object]:
    try:
        yield lambda: log.append("undone")
        yield 3
    finally:
        log.append("finally")


@pytest.mark.parametrize("plugin", [broken, broken_later])
@aio
async def test_a_generator_that_yields_no_disposer_is_closed_once_and_undone(plugin: object) -> None:
    with pytest.raises(TypeError, match="Invalid effect: 3"):
        await Context().plugin(plugin)

    assert log == ["finally", "undone"]


@aio
async def test_a_builtin_that_tells_nothing_of_its_parameters_is_given_the_context() -> None:
    contexts: list[Context] = []
    fiber = await Context().plugin(contexts.append, name="builtin")

    assert contexts == [fiber.ctx]


@aio
async def test_a_refused_mount_leaves_no_record() -> None:
    ctx = Context()
    contexts: list[Context] = []
    fiber = await ctx.plugin(contexts.append)
    await fiber.dispose()

    with pytest.raises(KernelError):
        contexts[0].plugin(plain)

    assert ctx.kernel.runtimes == {}


@aio
async def test_a_plugin_hands_settings_to_services_for_itself_and_what_is_below_it() -> None:
    root = Context()
    seen: list[object] = []

    class Noisy:
        inject: ClassVar[dict[str, object]] = {"fact": {"from": "inject"}}
        intercept: ClassVar[dict[object, object]] = {
            "fact": {"from": "intercept", "own": 1},
            ServiceKey("logger"): {"name": "loud"},
        }

        def __init__(self, ctx: Context) -> None:
            seen.extend((ctx.intercepted("fact"), ctx.logger.name))
            ctx.plugin(lambda inner: seen.append(inner.intercepted("logger")))

    root.provide("fact", 1)
    fiber = await root.intercept("logger", {"name": "outer", "more": 2}).plugin(Noisy)
    await fiber.ctx.root.fiber.quiet()
    await asyncio.sleep(0.001)

    assert seen == [{"from": "inject"}, "dsh.loud", {"name": "loud", "more": 2}]
    assert root.intercepted("logger") == {}
    await root.dispose()


@aio
async def test_settings_for_services_are_a_map() -> None:
    with pytest.raises(
        KernelError, match="intercept must be a map of services to settings, not \\['logger'\\]"
    ):
        Context().plugin(types.SimpleNamespace(apply=plain, intercept=["logger"]))
