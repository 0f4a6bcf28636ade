"""A state machine over random trees of plugins, with the laws that hold whatever happens and in any order.

Consumers never see a dead provider: an active fiber was loaded with the services that are there for it now,
and a service that a body or a disposer reads has not been closed. Epochs settle: when nothing moves, each
fiber is where its services put it. Nothing remains: after the end every count is zero.
"""

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dsh.errors import KernelError
from dsh.kernel import FIBER_UPDATE, Context, Fiber, FiberState
from dsh.kernel.root import Realm

NAMES = ("a", "b", "c")
LABELS = ("blue", "red")
REALMS = {(name, label): Realm(f"{name}@{label}") for name in NAMES for label in LABELS}
ENOUGH_TURNS = 400
"""Turns of the loop after which everything must have come to rest."""

LONG_S = 5.0
"""A step that takes longer hangs."""

names = st.sampled_from(NAMES)
index = st.integers(0, 40)
bindings = st.dictionaries(names, st.sampled_from(LABELS), max_size=2)


class Resource:
    """What a provider gives: closed when its provider has released it."""

    def __init__(self) -> None:
        self.is_open = True


class Behaviour:
    """How one plugin behaves; parts of it change while it is mounted."""

    def __init__(self, provides: str, turns: int, fails: bool, in_place: bool) -> None:
        self.provides, self.turns, self.fails, self.in_place = provides, turns, fails, in_place
        self.ctx: Context | None = None


class Trees(RuleBasedStateMachine):
    """Holds a loop, a root, what was mounted, and what is alive by the plugins' own account."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.wrong.append(str(context)))
        self.wrong: list[str] = []
        self.alive: dict[object, str] = {}
        self.fibers: list[Fiber] = []
        self.behaviours: dict[Fiber, Behaviour] = {}
        self.disposals: list[asyncio.Task[None]] = []
        self.run(self._start())

    async def _start(self) -> None:
        self.root = Context()
        self.places = [self.root, self.root.derive(), self.root.derive()]
        self.places.append(self.places[1].derive())

    def run(self, coro: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(LONG_S):
                return await coro

        return self.loop.run_until_complete(bounded())

    # -- a plugin --------------------------------------------------------------------------------

    def plugin(self, behaviour: Behaviour) -> Any:
        async def body(ctx: Context) -> None:
            behaviour.ctx = ctx
            ctx.effect(lambda: self.live(ctx.fiber.name), "alive")  # refused where all is ending already
            self.read_all(ctx)
            ctx.effect(lambda: self.disposer(ctx, behaviour), "reads at its end")
            ctx.on(FIBER_UPDATE, lambda request, following: None if behaviour.in_place else following())
            ctx.on("tick", lambda _: self.read_all(ctx))
            ctx.spawn(asyncio.sleep(3600), "sleep")
            for _ in range(behaviour.turns):
                await asyncio.sleep(0)
            if behaviour.provides:
                self.provide(ctx, behaviour.provides)
            if behaviour.fails:
                raise ValueError("on purpose")
            for _ in range(behaviour.turns):
                await asyncio.sleep(0)

        return body

    def live(self, name: str) -> Any:
        token = object()
        self.alive[token] = name
        return lambda: self.alive.pop(token)

    def provide(self, ctx: Context, name: str) -> None:
        resource = Resource()

        def close() -> None:
            resource.is_open = False

        ctx.effect(lambda: close, f"resource {name}")
        try:
            ctx.provide(name, resource)
        except KernelError as error:
            if "has been registered" not in error.message:
                raise

    def read_all(self, ctx: Context) -> None:
        for name in ctx.fiber.inject:
            if not ctx.read(name).is_open:
                self.wrong.append(f"{ctx.fiber!r} reads {name}, which is closed")

    def disposer(self, ctx: Context, behaviour: Behaviour) -> Any:
        async def undo() -> None:
            for _ in range(behaviour.turns):
                self.read_all(ctx)
                await asyncio.sleep(0)
            self.read_all(ctx)

        return undo

    def pick(self, at: int) -> Fiber | None:
        live = [fiber for fiber in self.fibers if fiber.uid is not None]
        return live[at % len(live)] if live else None

    # -- what may happen -------------------------------------------------------------------------

    @rule(
        at=index,
        below=st.booleans(),
        inject=st.sets(names, max_size=2),
        provides=st.sampled_from(["", *NAMES]),
        turns=st.integers(0, 3),
        fails=st.booleans(),
        in_place=st.booleans(),
        isolate=bindings,
    )
    def mount(
        self,
        at: int,
        below: bool,
        inject: set[str],
        provides: str,
        turns: int,
        fails: bool,
        in_place: bool,
        isolate: dict[str, str],
    ) -> None:
        async def step() -> None:
            parent = self.pick(at) if below else None
            if parent is not None and parent.state not in (FiberState.LOADING, FiberState.ACTIVE):
                parent = None  # what is mounted under a waiting fiber might be what it waits for
            place = self.places[at % len(self.places)] if parent is None else parent.ctx
            place = place.derive(isolate={name: REALMS[name, label] for name, label in isolate.items()})
            behaviour = Behaviour(provides, turns, fails, in_place)
            try:
                fiber = place.plugin(
                    self.plugin(behaviour), name=f"p{len(self.fibers)}", inject=sorted(inject - {provides})
                )
            except KernelError as error:
                assert error.code == "INACTIVE_EFFECT"
                return
            self.places.append(place)
            self.fibers.append(fiber)
            self.behaviours[fiber] = behaviour

        self.run(step())

    @rule(at=index, waits=st.booleans())
    def dispose(self, at: int, waits: bool) -> None:
        async def step() -> None:
            if (fiber := self.pick(at)) is not None:
                disposal = asyncio.ensure_future(fiber.dispose())
                self.disposals.append(disposal)
                await asyncio.sleep(0)
                if waits:
                    await disposal

        self.run(step())

    @rule(at=index, name=names)
    def provide_late(self, at: int, name: str) -> None:
        async def step() -> None:
            fiber = self.pick(at)
            if fiber is not None and fiber.is_active and name not in fiber.inject:
                self.provide(fiber.ctx, name)

        self.run(step())

    @rule(at=index)
    def withdraw(self, at: int) -> None:
        async def step() -> None:
            fiber = self.pick(at)
            effects = [effect for effect in fiber.effects if effect.is_provider] if fiber else []
            if effects:
                effects[-1]()
                await asyncio.sleep(0)

        self.run(step())

    @rule(at=index, isolate=bindings)
    def rebind(self, at: int, isolate: dict[str, str]) -> None:
        async def step() -> None:
            place = self.places[1:][at % len(self.places[1:])]
            before = dict(place.own_realms)
            try:
                place.rebind(isolate={name: REALMS[name, label] for name, label in isolate.items()})
            except KernelError as error:
                assert "has been registered" in error.message
                assert place.own_realms == before

        self.run(step())

    @rule(at=index, fails=st.booleans(), in_place=st.booleans())
    def change(self, at: int, fails: bool, in_place: bool) -> None:
        """What a plugin will do from its next load on."""
        if (fiber := self.pick(at)) is not None:
            self.behaviours[fiber].fails, self.behaviours[fiber].in_place = fails, in_place

    @rule(at=index, updates=st.booleans())
    def restart(self, at: int, updates: bool) -> None:
        async def step() -> None:
            if (fiber := self.pick(at)) is not None:
                work = fiber.update({"k": at}) if updates else fiber.restart()
                asyncio.ensure_future(work).add_done_callback(lambda task: task.exception())
                await asyncio.sleep(0)

        self.run(step())

    @rule(at=index)
    def replace(self, at: int) -> None:
        """Another plugin of the same kind takes the place of one, as an edit of a row does."""

        async def step() -> None:
            fiber = self.pick(at)
            if fiber is None or fiber.parent is None:
                return
            old = self.behaviours[fiber]
            await fiber.dispose()
            if not fiber.parent.fiber.accepts_effects:
                return
            new = Behaviour(old.provides, old.turns, False, old.in_place)
            again = fiber.parent.plugin(self.plugin(new), name=fiber.name, inject=list(fiber.inject))
            self.fibers.append(again)
            self.behaviours[again] = new

        self.run(step())

    @rule()
    def tick(self) -> None:
        async def step() -> None:
            self.root.emit("tick", None)

        self.run(step())

    @rule(turns=st.integers(1, 5))
    def turn(self, turns: int) -> None:
        async def step() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(step())

    @rule()
    def settle(self) -> None:
        self.run(self._settle())
        for fiber in self.fibers:
            if fiber.uid is None:
                assert fiber.state is FiberState.DISPOSED
                continue
            available = self.available(fiber)
            if fiber.state is FiberState.ACTIVE:
                assert fiber.store == available
                assert list(available) == list(fiber.inject)
            elif fiber.state is FiberState.PENDING:
                assert len(available) < len(fiber.inject)
                assert fiber.store is None
            else:
                assert fiber.state is FiberState.FAILED
                assert str(fiber.error) == "on purpose"

    async def _settle(self) -> None:
        for _ in range(ENOUGH_TURNS):
            if self.root.statistics().moving == 0 and all(task.done() for task in self.disposals):
                return
            await asyncio.sleep(0)
        raise AssertionError(f"no rest: {self.root.fiber.tree()}")

    def available(self, fiber: Fiber) -> dict[str, Any]:
        found = {name: self.root.kernel.impls.get(fiber.realm_of(name)) for name in fiber.inject}
        return {name: impl for name, impl in found.items() if impl is not None and impl.fiber.is_active}

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def an_active_fiber_holds_the_services_that_are_there(self) -> None:
        for fiber in self.fibers:
            if fiber.is_active:
                assert fiber.store is not None
                assert fiber.store == self.available(fiber)

    @invariant()
    def nothing_went_wrong(self) -> None:
        assert self.wrong == []

    @invariant()
    def each_service_stands_where_its_provider_sees_it(self) -> None:
        for realm, impl in self.root.kernel.impls.items():
            assert impl.realm is realm
            assert impl.place.realm_of(impl.name) is realm
            assert impl.fiber.provided[realm] is impl

    def teardown(self) -> None:
        async def end() -> None:
            await asyncio.wait_for(self.root.dispose(), 10)
            await self._settle()
            await asyncio.sleep(0)
            counts = self.root.statistics()
            assert {getattr(counts, name) for name in counts.__struct_fields__} == {0}, counts
            assert (self.alive, self.wrong) == ({}, [])
            assert self.root.registry == {}
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert [task for task in left if not task.done()] == []

        try:
            self.run(end())
        finally:
            self.loop.close()


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=60, stateful_step_count=40)
