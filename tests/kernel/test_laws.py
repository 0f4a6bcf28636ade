"""Laws over random trees: readiness follows the services, and a disposed kernel holds nothing."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.kernel import Context, Fiber

NAMES = ("a", "b", "c")

operations = st.lists(
    st.one_of(
        st.tuples(st.just("provide"), st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES), max_size=2)),
        st.tuples(st.just("consume"), st.sets(st.sampled_from(NAMES), max_size=3), st.booleans()),
        st.tuples(st.just("dispose"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 3), st.just(None)),
    ),
    max_size=25,
)


def provider(name: str) -> Any:
    def body(ctx: Context) -> None:
        ctx.on("tick", lambda _: None)
        ctx.provide(name, object())

    return body


def consumer(fails: bool, live: list[str]) -> Any:
    def body(ctx: Context) -> None:
        live.append("effect")
        ctx.effect(lambda: lambda: live.remove("effect"))
        ctx.spawn(asyncio.sleep(60), "sleep")
        if fails:
            raise ValueError("on purpose")

    return body


@settings(max_examples=150)
@given(operations)
def test_active_means_that_every_injected_provider_is_the_one_it_was_loaded_with(
    steps: list[tuple[Any, Any, Any]],
) -> None:
    async def run() -> None:
        root = Context()
        live: list[str] = []
        fibers: list[Fiber] = []
        disposals: list[asyncio.Future[None]] = []
        for kind, first, second in steps:
            if kind == "provide":
                fibers.append(root.plugin(provider(first), inject=sorted(second - {first})))
            elif kind == "consume":
                fibers.append(root.plugin(consumer(second, live), inject=sorted(first)))
            elif kind == "dispose" and fibers:
                disposal = asyncio.ensure_future(fibers.pop(first % len(fibers)).dispose())
                disposals.append(disposal)
                if second:
                    await disposal
            else:
                for _ in range(first if kind == "wait" else 0):
                    await asyncio.sleep(0)
        for _ in range(3):
            for fiber in fibers:
                await fiber.quiet()
        for fiber in fibers:
            impls = [root.kernel.impls.get(root.realm_of(name)) for name in fiber.inject]
            if fiber.is_active:
                assert fiber.store is not None
                assert all(impl is not None and impl.fiber.is_active for impl in impls)
                assert [fiber.store[name] for name in fiber.inject] == impls
            elif fiber.error is None:
                assert fiber.missing, fiber
        await root.dispose()
        kernel = root.kernel
        assert live == []
        assert (kernel.impls, kernel.runtimes, root.fiber.effects) == ({}, {}, [])
        assert kernel.events.count() == 0
        assert not any(kernel.injectors.values())
        await asyncio.gather(*disposals)
        left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        assert left == []

    asyncio.run(run())
