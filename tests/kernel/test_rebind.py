"""Changing the addresses and intercepts of a mounted subtree in place (`spec/kernel.md` §11)."""

from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import SERVICE_CHANGED, Context, Fiber, ServiceKey
from dsh.kernel.internal import ServiceChange
from dsh.kernel.root import Realm
from tests.aio import aio

NUMBER: ServiceKey[int] = ServiceKey("number")


class Counting:
    """A plugin that reads the number each time it is loaded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inject = [NUMBER]
        self.seen: list[int] = []

    def apply(self, ctx: Context) -> None:
        self.seen.append(ctx.use(NUMBER))


def provider(value: int) -> Any:
    return lambda ctx: ctx.provide(NUMBER, value)


async def settled(*fibers: Fiber) -> None:
    for _ in range(3):
        for fiber in fibers:
            await fiber.quiet()


@aio
async def test_a_provider_moves_without_a_restart_and_its_consumers_follow_the_address() -> None:
    root = Context()
    place = root.derive()
    loads: list[int] = []

    def number(ctx: Context) -> None:
        loads.append(1)
        ctx.provide(NUMBER, 7)

    owner = await place.plugin(number)
    outside, inside = Counting("outside"), Counting("inside")
    left = await root.plugin(outside)
    private = Realm("private")
    found = await root.isolate(NUMBER, private).plugin(inside)
    assert (outside.seen, inside.seen) == ([7], [])

    place.rebind(isolate={"number": private})
    await settled(left, found)

    assert (left.state.name, found.state.name, owner.state.name) == ("PENDING", "ACTIVE", "ACTIVE")
    assert (outside.seen, inside.seen, loads) == ([7], [7], [1])
    assert root.get(NUMBER) is None
    assert place.get(NUMBER) == 7
    await owner.dispose()
    assert root.statistics().services == 0
    await root.dispose()


@aio
async def test_a_consumer_that_moves_together_with_its_provider_runs_on() -> None:
    root = Context()
    place = root.derive()
    await place.plugin(provider(7))
    consumer = Counting("consumer")
    fiber = await place.plugin(consumer)
    place.rebind(isolate={"number": Realm("private")})
    await settled(fiber)

    assert consumer.seen == [7]
    assert fiber.is_active
    assert fiber.ctx.use(NUMBER) == 7
    await root.dispose()


@aio
async def test_a_consumer_whose_address_changes_gets_the_provider_that_is_there() -> None:
    root = Context()
    other = Realm("other")
    await root.plugin(provider(1))
    await root.isolate(NUMBER, other).plugin(provider(2))
    place = root.derive()
    consumer = Counting("consumer")
    fiber = await place.plugin(consumer)
    uid = fiber.uid

    touched = place.rebind(isolate={"number": other})
    assert touched == [fiber]
    await settled(fiber)
    place.rebind(isolate={})
    await settled(fiber)

    assert consumer.seen == [1, 2, 1]
    assert fiber.uid == uid
    await root.dispose()


@aio
async def test_only_a_free_address_can_be_taken() -> None:
    root = Context()
    one, two = Realm("one"), Realm("two")
    place = root.derive(isolate={"number": one})
    await place.plugin(provider(1))
    await root.isolate(NUMBER, two).plugin(provider(2))
    consumer = Counting("consumer")
    fiber = await root.isolate(NUMBER, one).plugin(consumer)

    with pytest.raises(KernelError, match="has been registered"):
        place.rebind(isolate={"number": two})
    three = Realm("three")
    place.rebind(isolate={"number": three})
    await settled(fiber)

    assert fiber.state.name == "PENDING"
    assert root.isolate(NUMBER, three).get(NUMBER) == 1
    await root.dispose()


@aio
async def test_an_address_that_is_taken_is_refused_and_nothing_has_changed() -> None:
    root = Context()
    await root.plugin(provider(1))
    place = root.derive(isolate={"number": Realm("private")}, intercept={"log": {"a": 1}})
    await place.plugin(provider(2))
    consumer = Counting("consumer")
    fiber = await place.plugin(consumer)

    with pytest.raises(KernelError, match='service "number" has been registered at'):
        place.rebind(isolate={}, intercept={})

    assert (root.get(NUMBER), place.get(NUMBER), consumer.seen) == (1, 2, [2])
    assert place.intercepted("log") == {"a": 1}
    assert fiber.is_active
    await root.dispose()


@aio
async def test_none_leaves_addresses_or_intercepts_as_they_are() -> None:
    root = Context()
    realm = Realm("private")
    place = root.derive(isolate={"number": realm}, intercept={"log": {"a": 1}})

    place.rebind(intercept={"log": {"a": 2}})
    assert (place.realm_of("number"), place.intercepted("log")) == (realm, {"a": 2})
    place.rebind(isolate={})
    assert (place.realm_of("number"), place.intercepted("log")) == (root.realm_of("number"), {"a": 2})


@aio
async def test_an_intercept_that_a_check_looks_at_starts_and_stops_only_what_is_below() -> None:
    root = Context()

    def check(consumer: Context) -> bool:
        return not consumer.intercepted(NUMBER).get("closed")

    await root.plugin(lambda ctx: ctx.provide(NUMBER, 1, check=check))
    place = root.derive()
    below, beside = Counting("below"), Counting("beside")
    fiber, other = await place.plugin(below), await root.plugin(beside)

    place.rebind(intercept={"number": {"closed": True}})
    await settled(fiber)
    assert (fiber.state.name, other.state.name) == ("PENDING", "ACTIVE")
    place.rebind(intercept={})
    await settled(fiber)

    assert (below.seen, beside.seen) == ([1, 1], [1])
    await root.dispose()


@aio
async def test_fibers_that_failed_elsewhere_are_not_tried_again() -> None:
    root = Context()
    tries: list[str] = []

    def failing(ctx: Context) -> None:
        tries.append("x")
        raise ValueError("no")

    await root.plugin(provider(1))
    fiber = root.plugin(failing, inject=[NUMBER])
    await fiber.quiet()
    place = root.derive()
    await place.plugin(lambda ctx: None, inject=[NUMBER])
    place.rebind(isolate={"number": Realm("private")}, intercept={"number": {"x": 1}})
    await settled(fiber)

    assert tries == ["x"]
    await root.dispose()


@aio
async def test_listeners_of_services_hear_both_ends_of_a_move() -> None:
    root = Context()
    private = Realm("private")
    place = root.derive()
    heard: list[tuple[str, Any]] = []

    def listen(ctx: Context, name: str) -> None:
        def changed(change: ServiceChange) -> None:
            heard.append((name, change.value))

        ctx.on(SERVICE_CHANGED, changed)

    listen(root, "outside")
    listen(root.isolate(NUMBER, private), "inside")
    await place.plugin(provider(7))
    place.rebind(isolate={"number": private})

    assert heard == [("outside", 7), ("outside", None), ("inside", 7)]
    await root.dispose()


@aio
async def test_a_consumer_that_is_left_can_still_read_its_service_while_it_unloads() -> None:
    root = Context()
    place = root.derive()
    await place.plugin(provider(7))
    last: list[int] = []

    def consumer(ctx: Context) -> None:
        ctx.effect(lambda: lambda: last.append(ctx.use(NUMBER)))

    fiber = await root.plugin(consumer, inject=[NUMBER])
    place.rebind(isolate={"number": Realm("private")})
    await settled(fiber)

    assert last == [7]
    await root.dispose()


@aio
async def test_a_fiber_may_provide_to_its_subtree_what_it_injects_from_outside() -> None:
    root = Context()
    await root.plugin(provider(1))
    seen: list[int] = []

    def decorator(ctx: Context) -> None:
        inside = ctx.isolate(NUMBER)
        inside.provide(NUMBER, ctx.use(NUMBER) + 1)
        inside.plugin(lambda c: seen.append(c.use(NUMBER)), inject=[NUMBER])
        ctx.effect(lambda: lambda: seen.append(ctx.use(NUMBER)))

    fiber = await root.plugin(decorator, inject=[NUMBER])
    await settled(*fiber.children)
    await fiber.dispose()

    assert seen == [2, 1]
    await root.dispose()
