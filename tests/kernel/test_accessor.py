"""Computed attributes of contexts, and members of services as attributes (`spec/kernel.md` §3.4)."""

from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, ServiceKey, ServiceUnavailable
from tests.aio import aio

COUNTER: ServiceKey[Any] = ServiceKey("counter")


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total


@aio
async def test_an_accessor_computes_with_the_context_that_reads_it() -> None:
    root = Context()
    root.accessor("owner", lambda ctx: ctx.fiber.name)
    fiber = await root.plugin(lambda ctx: None, name="plugin")

    assert (root.owner, fiber.ctx.owner) == ("root", "plugin")


@aio
async def test_an_accessor_goes_with_its_plugin() -> None:
    root = Context()
    fiber = await root.plugin(lambda ctx: ctx.accessor("answer", lambda c: 42))
    assert root.answer == 42
    await fiber.dispose()

    assert root.answer is None
    root.accessor("answer", lambda c: 43)
    assert root.answer == 43


@aio
async def test_an_accessor_without_a_setter_cannot_be_set() -> None:
    root = Context()
    stored: list[int] = []
    root.accessor("fixed", lambda ctx: 1)
    root.accessor("open", lambda ctx: stored[-1], lambda ctx, value: stored.append(value))
    root.open = 3

    assert root.open == 3
    with pytest.raises(KernelError, match='property "fixed" can only be read'):
        root.fixed = 2


@pytest.mark.parametrize(
    ("name", "kind"), [("taken", "accessor"), ("counter", "service"), ("plugin", "attribute of contexts")]
)
@aio
async def test_a_name_that_is_declared_cannot_become_an_accessor(name: str, kind: str) -> None:
    root = Context()
    root.accessor("taken", lambda ctx: 1)
    root.provide(COUNTER, Counter())
    before = root.statistics()

    with pytest.raises(KernelError, match=f'property "{name}" is already declared as {kind}'):
        root.accessor(name, lambda ctx: 2)
    with pytest.raises(KernelError, match=f'property "{name}" is already declared as {kind}'):
        root.mixin(COUNTER, ["total", name])
    assert root.statistics() == before


@aio
async def test_a_name_of_an_accessor_cannot_be_provided() -> None:
    root = Context()
    root.accessor("taken", lambda ctx: 1)
    with pytest.raises(KernelError, match='property "taken" is already declared as accessor'):
        root.provide("taken", 1)

    assert root.statistics().services == 0


@aio
async def test_a_mixin_forwards_to_the_service_for_those_who_inject_it() -> None:
    root = Context()

    def plugin(ctx: Context) -> None:
        ctx.provide(COUNTER, Counter())
        ctx.mixin(COUNTER, {"add": "count", "total": "counted"})

    owner = await root.plugin(plugin)
    user = await root.plugin(lambda ctx: None, inject=[COUNTER])
    stranger = await root.plugin(lambda ctx: None)

    assert user.ctx.count(2) == 2
    user.ctx.counted = 10
    assert user.ctx.counted == 10
    with pytest.raises(ServiceUnavailable):
        _ = stranger.ctx.count
    assert not hasattr(stranger.ctx, "count")
    assert 'ctx.mixin("counter")' in [effect.label for effect in owner.effects]
    await owner.dispose()
    assert root.statistics().accessors == 0
    await root.dispose()


@aio
async def test_private_names_are_never_services() -> None:
    root = Context()
    with pytest.raises(AttributeError):
        _ = root._nothing
    with pytest.raises(AttributeError):
        root._nothing = 1
