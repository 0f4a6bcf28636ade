"""Services: providing, reading, realms, caller binding (`spec/kernel.md` §3, §7)."""

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, Fiber, FiberState, Service, ServiceKey, ServiceUnavailable
from dsh.kernel.root import Realm
from tests.aio import aio

NUMBER: ServiceKey[int] = ServiceKey("number")


@aio
async def test_a_second_provider_of_a_name_is_refused_and_names_the_first() -> None:
    ctx = Context()

    def first(c: Context) -> None:
        c.provide(NUMBER, 1)

    await ctx.plugin(first)
    with pytest.raises(KernelError, match='service "number" has been registered at first'):
        await ctx.plugin(lambda c: c.provide(NUMBER, 2))

    assert ctx.get(NUMBER) == 1


@aio
async def test_a_refused_provide_leaves_the_name_free() -> None:
    ctx = Context()
    pending: Fiber = ctx.plugin(lambda c: None, inject=["absent"])

    with pytest.raises(KernelError) as caught:
        pending.ctx.provide(NUMBER, 1)
    assert caught.value.code == "INACTIVE_EFFECT"
    await ctx.plugin(lambda c: c.provide(NUMBER, 2))

    assert ctx.get(NUMBER) == 2


@aio
async def test_get_is_strict_while_the_provider_loads() -> None:
    ctx = Context()
    seen: list[int | None] = []

    def plugin(c: Context) -> None:
        c.provide(NUMBER, 1)
        seen.extend((c.get(NUMBER), c.get(NUMBER, strict=False), c.use(NUMBER)))

    await ctx.plugin(plugin)

    assert seen == [None, 1, 1]
    assert ctx.get(NUMBER) == 1


@aio
async def test_an_attribute_is_readable_only_where_it_was_injected() -> None:
    ctx = Context()
    contexts: list[Context] = []
    await ctx.plugin(lambda c: c.provide(NUMBER, 1))
    await ctx.plugin(contexts.append)
    sibling = contexts[0]

    assert sibling.get(NUMBER) == 1
    with pytest.raises(ServiceUnavailable, match='cannot get property "number" without inject'):
        _ = sibling.number
    assert not hasattr(sibling, "number")


@aio
async def test_a_child_reads_what_an_ancestor_injected() -> None:
    ctx = Context()
    seen: list[int] = []
    await ctx.plugin(lambda c: c.provide(NUMBER, 1))

    def parent(c: Context) -> None:
        c.plugin(lambda child: seen.append(child.number))

    await ctx.plugin(parent, inject=[NUMBER])
    await ctx.dispose()

    assert seen == [1]


@aio
async def test_ancestors_are_readable_inside_an_isolated_realm_too() -> None:
    ctx = Context()
    seen: list[int] = []
    private = ctx.isolate(NUMBER)
    await private.plugin(lambda c: c.provide(NUMBER, 7))

    def parent(c: Context) -> None:
        c.plugin(lambda child: seen.append(child.number))

    fiber = await private.plugin(parent, inject=[NUMBER])
    await fiber.dispose()

    assert seen == [7]
    assert ctx.get(NUMBER) is None


@aio
async def test_a_realm_border_is_not_crossed() -> None:
    ctx = Context()
    refused: list[str] = []
    await ctx.plugin(lambda c: c.provide(NUMBER, 1))

    def parent(c: Context) -> None:
        def child(x: Context) -> None:
            with pytest.raises(ServiceUnavailable):
                _ = x.number
            refused.append("refused")

        c.isolate(NUMBER).plugin(child)

    fiber = await ctx.plugin(parent, inject=[NUMBER])
    await fiber.dispose()

    assert refused == ["refused"]


@aio
async def test_siblings_with_one_token_share_a_scope() -> None:
    ctx = Context()
    realm = Realm("shared")
    await ctx.isolate(NUMBER, realm).plugin(lambda c: c.provide(NUMBER, 5))

    assert ctx.isolate(NUMBER, realm).get(NUMBER) == 5
    assert ctx.isolate(NUMBER).get(NUMBER) is None


@aio
async def test_a_check_that_flips_starts_and_stops_a_consumer() -> None:
    ctx = Context()
    is_open = False
    await ctx.plugin(lambda c: c.provide(NUMBER, 1, check=lambda consumer: is_open))
    fiber = await ctx.plugin(lambda c: None, inject=[NUMBER])
    realm = ctx.realm_of("number")
    assert fiber.state is FiberState.PENDING

    is_open = True
    await ctx.kernel.notify([("number", realm)])
    assert fiber.is_active
    is_open = False
    await ctx.kernel.notify([("number", realm)])

    assert fiber.state is FiberState.PENDING


@aio
async def test_only_the_provider_may_set() -> None:
    ctx = Context()
    contexts: list[Context] = []

    def provider(c: Context) -> None:
        contexts.append(c)
        c.provide(NUMBER, 1)

    with pytest.raises(KernelError, match="without provide"):
        ctx.set(NUMBER, 3)
    await ctx.plugin(provider)
    contexts[0].set(NUMBER, 2)

    assert ctx.get(NUMBER) == 2
    with pytest.raises(KernelError, match="in multiple fibers"):
        ctx.set(NUMBER, 3)


@aio
async def test_intercepts_merge_shallowly_root_first() -> None:
    ctx = Context().intercept("log", {"level": "info", "name": "root"})
    contexts: list[Context] = []
    await ctx.plugin(contexts.append, inject={"nothing": {"x": 1}, "log": {"name": "mine"}})
    fiber = next(iter(next(iter(ctx.kernel.runtimes.values())).fibers))

    assert fiber.ctx.intercepted("log") == {"level": "info", "name": "mine"}
    assert ctx.intercepted("log") == {"level": "info", "name": "root"}


class Registry(Service):
    """A registry whose entries belong to whoever adds them."""

    provide = ServiceKey["Registry"]("registry")
    inject = (NUMBER,)

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.entries: list[str] = []

    @property
    def caller(self) -> Context:
        return self.ctx

    def add(self, name: str) -> int:
        self._own(name)
        return self.owner_ctx.use(NUMBER)

    def _own(self, name: str) -> None:
        self.entries.append(name)
        self.ctx.effect(lambda: lambda: self.entries.remove(name), f"entry {name}")


@aio
async def test_what_a_service_registers_belongs_to_its_caller() -> None:
    ctx = Context()
    answers: list[int] = []
    await ctx.plugin(lambda c: c.provide(NUMBER, 9))
    await ctx.plugin(Registry)

    def user(c: Context) -> None:
        registry = c.use(Registry.provide)
        assert isinstance(registry, Registry)
        assert registry.caller.fiber is c.fiber
        answers.append(registry.add("mine"))

    fiber = await ctx.plugin(user, inject=[Registry.provide])
    registry = ctx.get(Registry.provide)
    assert registry is not None
    assert registry.entries == ["mine"]
    await fiber.dispose()

    assert registry.entries == []
    assert answers == [9]


@aio
async def test_a_view_kept_by_a_disposed_caller_refuses_new_effects() -> None:
    ctx = Context()
    views: list[Registry] = []
    await ctx.plugin(lambda c: c.provide(NUMBER, 9))
    await ctx.plugin(Registry)
    fiber = await ctx.plugin(lambda c: views.append(c.use(Registry.provide)), inject=[Registry.provide])
    await fiber.dispose()

    with pytest.raises(KernelError) as caught:
        views[0].add("late")

    assert caught.value.code == "INACTIVE_EFFECT"


@aio
async def test_views_of_one_service_are_equal() -> None:
    ctx = Context()
    await ctx.plugin(lambda c: c.provide(NUMBER, 9))
    await ctx.plugin(Registry)

    one, two = ctx.get(Registry.provide), ctx.extend(mark=1).get(Registry.provide)

    assert one == two
    assert len({one, two}) == 1
