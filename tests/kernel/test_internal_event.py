"""What the kernel tells of itself: services, reads, writes, listeners, dispatches (`spec/kernel.md` §8.4)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import (
    EVENT_DISPATCHED,
    FIBER_STATUS,
    SERVICE_CHANGED,
    Context,
    Event,
    ScopeTarget,
    ServiceKey,
    ServiceUnavailable,
    create_scope,
)
from dsh.kernel.internal import (
    LISTENER_ADDED,
    SERVICE_READ,
    SERVICE_WRITTEN,
    Dispatch,
    ListenerRequest,
    ReadRequest,
    WriteRequest,
)
from tests.aio import aio

NUMBER: ServiceKey[int] = ServiceKey("number")
TICK: Event[int, None] = Event("tick", "emit")


def service_log(ctx: Context) -> list[tuple[str, Any]]:
    heard: list[tuple[str, Any]] = []
    ctx.on(SERVICE_CHANGED, heard.append)
    return heard


@aio
async def test_a_service_is_told_when_it_can_be_read_when_it_is_set_and_once_when_it_goes() -> None:
    root = Context()
    heard = service_log(root)
    contexts: list[Context] = []

    async def provider(ctx: Context) -> None:
        contexts.append(ctx)
        ctx.provide(NUMBER, 1)
        await asyncio.sleep(0)
        assert heard == []

    fiber = await root.plugin(provider)
    assert heard == [("number", 1)]
    contexts[0].set(NUMBER, 2)
    assert heard[1:] == [("number", 2)]
    await fiber.dispose()

    assert heard[2:] == [("number", None)]


@aio
async def test_a_provide_while_active_and_its_undo_are_told_too() -> None:
    root = Context()
    heard = service_log(root)
    effect = root.provide(NUMBER, 1)
    await effect()

    assert heard == [("number", 1), ("number", None)]


@aio
async def test_a_value_set_before_its_provider_is_active_is_not_told_early() -> None:
    root = Context()
    heard = service_log(root)

    def provider(ctx: Context) -> None:
        ctx.provide(NUMBER, 1)
        ctx.set(NUMBER, 2)

    await root.plugin(provider)

    assert heard == [("number", 2)]


@aio
async def test_services_are_told_only_where_the_name_has_the_same_address() -> None:
    root = Context()
    private = root.isolate(NUMBER)
    outside, inside = service_log(root), service_log(private)
    private.provide(NUMBER, 1)

    assert (outside, inside) == ([], [("number", 1)])


@aio
async def test_setting_a_service_restarts_nobody() -> None:
    root = Context()
    loads: list[int] = []
    root.provide(NUMBER, 1)
    fiber = await root.plugin(lambda ctx: loads.append(ctx.number), inject=[NUMBER])
    root.set(NUMBER, 2)
    await asyncio.sleep(0)

    assert loads == [1]
    assert fiber.ctx.number == 2


@aio
async def test_reads_pass_a_chain_that_may_answer_or_refuse() -> None:
    root = Context()
    await root.plugin(lambda ctx: ctx.provide(NUMBER, 1))
    fiber = await root.plugin(lambda ctx: None, inject=[NUMBER])
    stranger = await root.plugin(lambda ctx: None)

    def reads(request: ReadRequest, following: Callable[[], Any]) -> Any:
        if request.ctx.fiber is stranger:
            return "granted"
        return following() + 1

    effect = root.on(SERVICE_READ, reads)
    assert (fiber.ctx.number, stranger.ctx.number, fiber.ctx.use(NUMBER)) == (2, "granted", 2)
    effect()

    with pytest.raises(ServiceUnavailable):
        _ = stranger.ctx.number


@aio
async def test_assigning_to_a_context_sets_what_its_fiber_provides() -> None:
    root = Context()
    contexts: list[Context] = []

    def provider(ctx: Context) -> None:
        contexts.append(ctx)
        ctx.provide(NUMBER, 1)

    await root.plugin(provider)
    stranger = await root.plugin(contexts.append)
    contexts[0].number = 2
    assert root.get(NUMBER) == 2

    with pytest.raises(KernelError, match='cannot set property "number" in multiple fibers'):
        stranger.ctx.number = 3
    with pytest.raises(KernelError, match='cannot set property "other" without provide'):
        stranger.ctx.other = 3
    assert root.get(NUMBER) == 2


@aio
async def test_a_name_once_provided_stays_a_service_s() -> None:
    root = Context()
    await root.provide(NUMBER, 1)()

    with pytest.raises(KernelError, match='cannot set property "number" without provide'):
        root.number = 2
    with pytest.raises(KernelError, match='property "number" is already declared as service'):
        root.accessor("number", lambda ctx: 1)


@aio
async def test_assignments_pass_a_chain() -> None:
    root = Context()
    root.provide(NUMBER, 1)
    seen: list[tuple[str, Any]] = []

    def writes(request: WriteRequest, following: Callable[[], None]) -> None:
        seen.append((request.name, request.value))
        if request.value >= 0:
            following()

    root.on(SERVICE_WRITTEN, writes)
    root.number = 5
    root.number = -1

    assert seen == [("number", 5), ("number", -1)]
    assert root.get(NUMBER) == 5


@aio
async def test_a_listener_may_be_registered_another_way() -> None:
    root = Context()
    kept: list[Callable[..., Any]] = []
    heard: list[int] = []

    def takes(request: ListenerRequest) -> Any:
        if request.name != "tick":
            return None
        kept.append(request.listener)
        return lambda: kept.remove(request.listener)

    root.on(LISTENER_ADDED, takes)
    effect = root.on(TICK, heard.append)
    root.emit(TICK, 1)
    assert heard == []
    assert len(kept) == 1
    effect()

    assert kept == []


@aio
async def test_dispatches_are_told_with_their_true_mode_and_subject() -> None:
    root = Context()
    told: list[Dispatch] = []
    root.on(EVENT_DISPATCHED, told.append)
    subject = ScopeTarget(None)
    root.emit("a", 1, subject=subject)
    await root.parallel("b", 2)
    await root.serial("c", 3)
    root.bail("d", 4)
    root.waterfall("e", 5, lambda: None)

    assert told == [
        ("emit", "a", 1, subject),
        ("parallel", "b", 2, None),
        ("serial", "c", 3, None),
        ("bail", "d", 4, None),
        ("waterfall", "e", 5, None),
    ]


@aio
async def test_the_kernel_s_own_events_are_not_told_as_dispatches() -> None:
    root = Context()
    told: list[Dispatch] = []
    root.on(EVENT_DISPATCHED, told.append)
    await root.plugin(lambda ctx: ctx.provide(NUMBER, 1))

    assert told == []


@aio
async def test_an_observer_of_dispatches_is_contained_unless_an_invariant_broke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = Context()
    heard: list[int] = []
    root.on(TICK, heard.append)

    def fails(dispatch: Dispatch) -> None:
        raise KernelError("watched", code="INVARIANT" if dispatch.payload == 2 else "")

    root.on(EVENT_DISPATCHED, fails)
    root.emit(TICK, 1)
    with pytest.raises(KernelError, match="watched"):
        root.emit(TICK, 2)

    assert heard == [1]
    assert "watched" in caplog.text


@aio
async def test_one_name_cannot_be_declared_with_two_modes() -> None:
    root = Context()
    root.on(TICK, print)

    with pytest.raises(KernelError, match="event 'tick' is declared as bail and as emit"):
        root.on(Event("tick", "bail"), print)
    with pytest.raises(KernelError, match="event 'tick' is dispatched by emit, not by serial"):
        await root.serial("tick", 1)


@aio
async def test_what_an_emitted_listener_awaits_ends_with_its_plugin() -> None:
    root = Context()
    log: list[str] = []

    async def slow(payload: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("stopped")

    fiber = await root.plugin(lambda ctx: ctx.on(TICK, slow))
    root.emit(TICK, 1)
    await asyncio.sleep(0)
    assert root.statistics().tasks == 1
    await fiber.dispose()

    assert log == ["stopped"]
    assert root.statistics().tasks == 0


class Key:
    pass


@aio
async def test_only_the_handle_of_who_bound_a_scope_can_move_it_and_events_follow() -> None:
    root = Context()
    one, two, child = Key(), Key(), Key()
    heard: list[str] = []
    for name, key in (("one", one), ("two", two)):
        scope = await create_scope(root, key)
        scope.ctx.on(TICK, lambda _, name=name: heard.append(name))
    below = await create_scope(root, child, one)
    target = ScopeTarget(child)

    root.emit(TICK, 1, subject=target)
    assert below.link is not None
    below.link.relink(two)
    root.emit(TICK, 1, subject=target)

    assert heard == ["one", "two"]
    with pytest.raises(KernelError, match="its own ancestor"):
        below.link.relink(child)
    await root.dispose()


@aio
async def test_a_scope_target_may_have_a_filter_of_its_own_below() -> None:
    root = Context()
    private = root.isolate(NUMBER)
    heard: list[str] = []
    root.on(TICK, lambda _: heard.append("outside"))
    private.on(TICK, lambda _: heard.append("inside"))

    class Inside:
        def admits(self, place: Any) -> bool:
            return bool(place.realm_of("number") is private.realm_of("number"))

    root.emit(TICK, 1, subject=ScopeTarget(None, Inside()))

    assert heard == ["inside"]


@aio
async def test_a_broken_invariant_reaches_the_emitter_after_everybody_was_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = Context()
    calm: Event[int, None] = Event("calm", "emit", contained=True)
    heard: list[int] = []

    def breaks(name: str, code: str) -> Callable[[int], None]:
        def listener(payload: int) -> None:
            raise KernelError(name, code=code)

        return listener

    for listener in (breaks("plain", ""), breaks("first", "INVARIANT"), breaks("second", "INVARIANT")):
        root.on(calm, listener)
    root.on(calm, heard.append)
    with pytest.raises(KernelError, match="first"):
        root.emit(calm, 1)

    assert heard == [1]
    assert [name in caplog.text for name in ("plain", "first", "second")] == [True, False, True]


@pytest.mark.parametrize("event", [FIBER_STATUS, SERVICE_CHANGED])
@aio
async def test_an_invariant_that_breaks_inside_the_kernel_is_told_to_the_process_and_stops_nothing(
    event: Event[Any, None],
) -> None:
    root = Context()
    told: list[str] = []
    root.kernel.on_failure = lambda error, label: told.append(f"{label}: {error}")

    def breaks(payload: object) -> None:
        raise KernelError("broken", code="INVARIANT")

    root.on(event, breaks)
    provider = await root.plugin(lambda ctx: ctx.provide(NUMBER, 1))
    consumer = await root.plugin(lambda ctx: None, inject=[NUMBER])
    assert consumer.is_active
    await provider.dispose()

    assert (consumer.state.name, root.statistics().services) == ("PENDING", 0)
    assert set(told) == {f"an observer of {event.name}: broken"}
