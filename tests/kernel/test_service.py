"""Services: providing, reading, realms, caller binding (`spec/kernel.md` §3, §7)."""

import asyncio
from typing import Any

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
async def test_a_provider_may_provide_again_while_consumers_still_let_go_of_what_it_took_back() -> None:
    root = Context()

    def consumer(ctx: Context) -> None:
        ctx.effect(lambda: lambda: asyncio.sleep(0.001))

    provider = await root.plugin(lambda ctx: None)
    first = provider.ctx.provide("a", 1)
    await root.plugin(consumer, inject="a")
    gone = first()
    provider.ctx.provide("a", 2)
    await gone

    assert provider.ctx.read("a") == 2
    await root.dispose()


@aio
async def test_a_consumer_that_was_unloaded_reads_nothing_of_what_it_was_loaded_with() -> None:
    root = Context()
    gone = root.provide("a", 1)
    fiber = await root.plugin(lambda ctx: None, inject="a")
    assert fiber.ctx.read("a") == 1
    await gone()
    await fiber.quiet()

    with pytest.raises(ServiceUnavailable, match='cannot get required service "a" in inactive context'):
        fiber.ctx.read("a")


@aio
async def test_a_check_that_flips_starts_and_stops_a_consumer() -> None:
    ctx = Context()
    is_open = False
    await ctx.plugin(lambda c: c.provide(NUMBER, 1, check=lambda consumer: is_open))
    fiber = await ctx.plugin(lambda c: None, inject=[NUMBER])
    realm = ctx.realm_of("number")
    assert fiber.state is FiberState.PENDING

    is_open = True
    await asyncio.gather(*(each.quiet() for each in ctx.kernel.notify([("number", realm)])))
    assert fiber.is_active
    is_open = False
    await asyncio.gather(*(each.quiet() for each in ctx.kernel.notify([("number", realm)])))

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
async def test_inside_a_service_s_method_services_are_read_as_its_provider_reads_them() -> None:
    ctx = Context()
    private = ctx.isolate(NUMBER)

    class Asking(Service):
        provide = ServiceKey["Asking"]("asking")
        inject = (NUMBER,)

        def read(self) -> int:
            return self.ctx.use(NUMBER)

        def owner(self) -> Fiber:
            return self.ctx.fiber

    class AskingAsCaller(Asking):
        provide = ServiceKey["Asking"]("asking-as-caller")
        reads_as_caller = True

    await ctx.plugin(lambda c: c.provide(NUMBER, 1))
    await private.plugin(lambda c: c.provide(NUMBER, 2))
    await private.plugin(Asking)
    await private.plugin(AskingAsCaller)
    fiber = await ctx.plugin(lambda c: None, inject=[Asking.provide, AskingAsCaller.provide])
    asking = fiber.ctx.use(Asking.provide)

    assert (asking.read(), asking.owner()) == (2, fiber)
    with pytest.raises(ServiceUnavailable, match="without inject"):
        fiber.ctx.use(AskingAsCaller.provide).read()
    await ctx.dispose()


class Hooked(Service):
    """Uses every hook of a service class."""

    provide = ServiceKey["Hooked"]("hooked")

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.prefix = "> "
        self.is_ready = False

    async def init(self) -> None:
        await asyncio.sleep(0)
        self.is_ready = True

    def check(self, ctx: Context) -> bool:
        return not ctx.intercepted(self.provide).get("closed")

    def __call__(self, word: str) -> str:
        return f"{self.prefix}{word} by {self.ctx.fiber.name}"


@aio
async def test_nobody_sees_a_service_before_its_init_hook_is_done() -> None:
    ctx = Context()
    seen: list[bool] = []
    user = ctx.plugin(lambda c: seen.append(c.hooked.is_ready), inject=[Hooked.provide])
    await ctx.plugin(Hooked)
    await user

    assert seen == [True]
    await ctx.dispose()


@aio
async def test_a_service_may_be_called_and_knows_its_caller() -> None:
    ctx = Context()
    await ctx.plugin(Hooked)
    user = await ctx.plugin(lambda c: None, name="user", inject=[Hooked.provide])

    assert user.ctx.hooked("hello") == "> hello by user"
    await ctx.plugin(lambda c: c.provide(NUMBER, 9))
    await ctx.plugin(Registry)
    registry: Any = ctx.get(Registry.provide)
    with pytest.raises(TypeError, match="Registry is not callable"):
        registry()
    await ctx.dispose()


@aio
async def test_a_service_is_extended_for_one_caller() -> None:
    ctx = Context()
    await ctx.plugin(Hooked)
    user = await ctx.plugin(lambda c: None, name="user", inject=[Hooked.provide])
    hooked = user.ctx.use(Hooked.provide)
    special = hooked.extend(prefix="# ").extend(mark=1)

    assert (special("x"), hooked("x")) == ("# x by user", "> x by user")
    assert special == hooked
    await ctx.dispose()


@aio
async def test_a_service_class_is_asked_whether_it_is_there_for_a_consumer() -> None:
    ctx = Context()
    await ctx.plugin(Hooked)
    shut = await ctx.intercept(Hooked.provide, {"closed": True}).plugin(
        lambda c: None, inject=[Hooked.provide]
    )
    by_inject = await ctx.plugin(lambda c: None, inject={"hooked": {"closed": True}})
    free = await ctx.plugin(lambda c: None, inject=[Hooked.provide])

    assert [f.state.name for f in (shut, by_inject, free)] == ["PENDING", "PENDING", "ACTIVE"]
    await ctx.dispose()


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)])
@aio
async def test_a_check_that_raises_means_not_there_and_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = Context()

    def check(consumer: Context) -> bool:
        raise error

    await ctx.plugin(lambda c: c.provide(NUMBER, 1, check=check))
    fiber = await ctx.plugin(lambda c: None, inject=[NUMBER])

    assert fiber.state is FiberState.PENDING
    assert "check of service number failed" in caplog.text
    await ctx.dispose()


class Listing(Service):
    """A service whose intercepts add up."""

    provide = ServiceKey["Listing"]("listing")

    class Intercept:
        @staticmethod
        def merge(layers: list[dict[str, Any]]) -> dict[str, Any]:
            return {"words": [word for layer in layers for word in layer.get("words", ())]}


@aio
async def test_a_service_reads_its_intercepts_from_base_to_head_or_merges_them_its_own_way() -> None:
    ctx = Context()
    await ctx.plugin(Hooked)
    await ctx.plugin(Listing)
    outer = ctx.intercept("hooked", {"a": 1, "b": 1}).intercept("listing", {"words": ["outer"]})
    inner = outer.intercept("hooked", {"b": 2, "c": 2}).intercept("listing", {"words": ["inner"]})
    user = await inner.plugin(lambda c: None, inject=[Hooked.provide, Listing.provide])

    plain = user.ctx.use(Hooked.provide).resolve_config({"z": 0, "a": 0}, {"c": 3})
    own = user.ctx.use(Listing.provide).resolve_config({"words": ["base"]}, {"words": ["head"]})

    assert plain == {"z": 0, "a": 1, "b": 2, "c": 3}
    assert own == {"words": ["base", "outer", "inner", "head"]}
    await ctx.dispose()


@aio
async def test_a_service_as_a_subject_reaches_listeners_that_see_it() -> None:
    ctx = Context()
    private = ctx.isolate(Listing.provide)
    await private.plugin(Listing)
    heard: list[str] = []
    ctx.on("told", lambda _: heard.append("outside"))
    private.on("told", lambda _: heard.append("inside"))
    ctx.emit("told", None, subject=private.get(Listing.provide))

    assert heard == ["inside"]
    await ctx.dispose()


@aio
async def test_a_plugin_provides_only_what_it_declares_where_it_declares_anything() -> None:
    ctx = Context()
    refused: list[str] = []

    class Declaring:
        name = "declaring"
        provide = (NUMBER, "other")

        def apply(self, c: Context) -> None:
            c.provide("other", 1)
            c.plugin(child, name="child")

    def child(c: Context) -> None:
        c.provide(NUMBER, 1)
        with pytest.raises(KernelError) as caught:
            c.provide("third", 1)
        refused.append(f"{caught.value.message} ({caught.value.hint})")

    fiber = await ctx.plugin(Declaring())
    for one in fiber.children:
        await one

    assert refused == [
        'plugin declaring provides "third" but declares: number, other (add "third" to its `provide` list)'
    ]
    assert ctx.get("third") is None
    assert (ctx.get("other"), ctx.get(NUMBER)) == (1, 1)
    await ctx.dispose()


@aio
async def test_a_declaration_ends_at_the_row() -> None:
    ctx = Context()

    class Group:
        provide = ()

        def apply(self, c: Context) -> None:
            self.child = c.plugin(lambda x: x.effect(lambda: None), name="row")
            self.child.entry = self

    group = Group()
    await ctx.plugin(group)
    await group.child
    group.child.ctx.provide(NUMBER, 3)

    assert ctx.get(NUMBER) == 3
    await ctx.dispose()


@aio
async def test_views_of_one_service_are_equal() -> None:
    ctx = Context()
    await ctx.plugin(lambda c: c.provide(NUMBER, 9))
    await ctx.plugin(Registry)

    one, two = ctx.get(Registry.provide), ctx.extend(mark=1).get(Registry.provide)

    assert one == two
    assert len({one, two}) == 1
