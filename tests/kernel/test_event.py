"""Events: five modes, snapshots, failures, scopes (`spec/kernel.md` §8)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, Event, ScopeTarget, create_scope
from dsh.kernel.event import Place
from dsh.kernel.key import Mode
from dsh.kernel.scope import bind_parent, chain
from tests.aio import aio

TICK: Event[int, None] = Event("tick", "emit")
CALM: Event[int, None] = Event("calm", "emit", contained=True)
ALL: Event[int, None] = Event("all", "parallel")
ASK: Event[int, Any] = Event("ask", "serial")
NOW: Event[int, Any] = Event("now", "bail")
WRAP: Event[list[str], str] = Event("wrap", "waterfall")


def raising(payload: int) -> None:
    raise ValueError(f"no {payload}")


@aio
async def test_emit_stops_at_the_first_exception_and_tells_the_emitter() -> None:
    ctx = Context()
    heard: list[int] = []
    ctx.on(TICK, raising)
    ctx.on(TICK, heard.append)

    with pytest.raises(ValueError, match="no 1"):
        ctx.emit(TICK, 1)

    assert heard == []


@aio
async def test_a_contained_emit_reaches_everybody_and_logs_what_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx = Context()
    heard: list[int] = []

    async def fails_later(payload: int) -> None:
        raise ValueError("later")

    ctx.on(CALM, raising)
    ctx.on(CALM, fails_later)
    ctx.on(CALM, heard.append)
    ctx.emit(CALM, 1)
    await asyncio.sleep(0.005)

    assert heard == [1]
    assert "no 1" in caplog.text
    assert "later" in caplog.text


@aio
async def test_parallel_runs_all_and_raises_even_one_failure_as_a_group() -> None:
    ctx = Context()
    heard: list[int] = []
    ctx.on(ALL, raising)
    ctx.on(ALL, heard.append)

    with pytest.raises(ExceptionGroup) as caught:
        await ctx.parallel(ALL, 1)

    assert heard == [1]
    assert len(caught.value.exceptions) == 1


@pytest.mark.parametrize(
    ("answer", "bails"), [(None, False), (False, False), (0, True), ("", True), ([], True)]
)
@aio
async def test_none_and_false_do_not_bail_zero_and_empty_do(answer: object, bails: bool) -> None:
    ctx = Context()
    ctx.on(NOW, lambda _: answer)
    ctx.on(NOW, lambda _: "second")
    ctx.on(ASK, lambda _: answer)
    ctx.on(ASK, lambda _: "second")

    assert ctx.bail(NOW, 1) == (answer if bails else "second")
    assert await ctx.serial(ASK, 1) == (answer if bails else "second")


@aio
async def test_serial_waits_for_each_listener_in_turn() -> None:
    ctx = Context()
    log: list[str] = []

    async def slow(_: int) -> None:
        await asyncio.sleep(0.002)
        log.append("slow")

    ctx.on(ASK, slow)
    ctx.on(ASK, lambda _: log.append("quick"))

    assert await ctx.serial(ASK, 1) is None
    assert log == ["slow", "quick"]


def wrapping(word: str) -> Callable[[list[str], Callable[[], str]], str]:
    return lambda payload, following: f"{word}({following()})"


@aio
async def test_waterfall_listeners_wrap_each_other_in_order() -> None:
    ctx = Context()
    ctx.on(WRAP, wrapping("a"))
    ctx.on(WRAP, wrapping("b"))
    ctx.on(WRAP, wrapping("first"), prepend=True)

    assert ctx.waterfall(WRAP, [], lambda: "inner") == "first(a(b(inner)))"


@aio
async def test_a_waterfall_listener_may_veto_and_next_is_single_shot() -> None:
    ctx = Context()
    ctx.on(WRAP, lambda payload, following: "vetoed")
    assert ctx.waterfall(WRAP, [], lambda: "inner") == "vetoed"

    other = Context()
    other.on(WRAP, lambda payload, following: following() + following())
    with pytest.raises(KernelError, match="called next\\(\\) twice"):
        other.waterfall(WRAP, [], lambda: "inner")


@aio
async def test_waterfall_arguments_are_shared_and_mutable() -> None:
    ctx = Context()

    def adds(payload: list[str], following: Callable[[], str]) -> str:
        payload.append("seen")
        return following()

    ctx.on(WRAP, adds)
    payload: list[str] = []

    assert ctx.waterfall(WRAP, payload, lambda: str(len(payload))) == "1"


@pytest.mark.parametrize("mode", ["parallel", "serial", "bail", "waterfall"])
@aio
async def test_the_wrong_mode_is_refused_where_it_is_used(mode: Mode) -> None:
    ctx = Context()
    calls: dict[str, Callable[[], Any]] = {
        "parallel": lambda: ctx.parallel(TICK, 1),
        "serial": lambda: ctx.serial(TICK, 1),
        "bail": lambda: ctx.bail(TICK, 1),
        "waterfall": lambda: ctx.waterfall(TICK, 1, lambda: None),
    }

    with pytest.raises(KernelError, match=f"event 'tick' is dispatched by emit, not by {mode}"):
        answer = calls[mode]()
        if asyncio.iscoroutine(answer):
            await answer


@aio
async def test_a_dispatch_uses_the_listeners_it_began_with() -> None:
    ctx = Context()
    heard: list[str] = []

    def first(payload: int) -> None:
        heard.append("first")
        second()
        ctx.on(TICK, lambda _: heard.append("third"))

    ctx.on(TICK, first)
    second = ctx.on(TICK, lambda _: heard.append("second"))
    ctx.emit(TICK, 1)

    assert heard == ["first", "second"]


@aio
async def test_once_hears_one_dispatch() -> None:
    ctx = Context()
    heard: list[int] = []
    ctx.once(TICK, heard.append)

    ctx.emit(TICK, 1)
    ctx.emit(TICK, 2)

    assert heard == [1]


class Key:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@aio
async def test_events_flow_up_the_chain_of_scopes() -> None:
    """Untagged: all. Tagged: their own key's and descendants'. `global_`: all."""
    root = Context()
    parent, child, sibling = Key("parent"), Key("child"), Key("sibling")
    scopes = [await create_scope(root, parent)]
    scopes.append(await create_scope(root, child, parent))
    scopes.append(await create_scope(root, sibling, parent))
    heard: list[str] = []
    root.on(TICK, lambda _: heard.append("untagged"))
    for scope in scopes:
        scope.ctx.on(TICK, lambda _, key=scope.key: heard.append(str(key)))
    scopes[2].ctx.on(TICK, lambda _: heard.append("global"), global_=True)

    def dispatched(key: object | None) -> list[str]:
        heard.clear()
        root.emit(TICK, 1, subject=ScopeTarget(key))
        return sorted(heard)

    assert dispatched(child) == ["child", "global", "parent", "untagged"]
    assert dispatched(parent) == ["global", "parent", "untagged"]
    assert dispatched(sibling) == ["global", "parent", "sibling", "untagged"]
    assert dispatched(None) == ["global", "untagged"]
    await root.dispose()


@aio
async def test_a_target_may_ask_for_more_than_the_scope() -> None:
    root, key = Context(), Key("agent")
    scope = await create_scope(root, key)
    heard: list[str] = []
    root.on(TICK, lambda _: heard.append("untagged"))
    scope.ctx.on(TICK, lambda _: heard.append("own"))

    class Tagged:
        def admits(self, place: Place) -> bool:
            return place.scope is not None

    root.emit(TICK, 1, subject=ScopeTarget(key, Tagged()))
    assert heard == ["own"]
    await root.dispose()


@aio
async def test_a_scope_that_does_not_come_to_be_leaves_its_key_free() -> None:
    root, key, parent = Context(), Key("agent"), Key("parent")
    making = asyncio.ensure_future(create_scope(root, key, parent))
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert list(chain(key)) == [key]
    scope = await create_scope(root, key, parent)
    assert list(chain(key)) == [key, parent]
    await scope.fiber.dispose()
    await root.dispose()


@aio
async def test_a_scope_has_one_parent_and_no_cycle() -> None:
    a, b = Key("a"), Key("b")
    bind_parent(b, a)

    assert list(chain(b)) == [b, a]
    with pytest.raises(KernelError, match="already has a parent"):
        bind_parent(b, Key("c"))
    with pytest.raises(KernelError, match="its own ancestor"):
        bind_parent(a, b)


@aio
async def test_ending_a_scope_removes_what_was_registered_through_it() -> None:
    root = Context()
    key = Key("agent")
    scope = await create_scope(root, key)
    heard: list[int] = []
    scope.ctx.on(TICK, heard.append)

    await scope.fiber.dispose()
    root.emit(TICK, 1, subject=ScopeTarget(key))

    assert heard == []


def test_only_emit_can_be_contained() -> None:
    with pytest.raises(ValueError, match="only emit"):
        Event("x", "serial", contained=True)


@pytest.mark.parametrize("prepend", [False, True])
@aio
async def test_a_listener_that_is_gone_is_not_called_while_others_stay(prepend: bool) -> None:
    ctx = Context()
    heard: list[str] = []
    gone = ctx.on(TICK, lambda _: heard.append("gone"), prepend=prepend)
    ctx.on(TICK, lambda _: heard.append("stays"))
    ctx.emit(TICK, 1)
    gone()
    ctx.emit(TICK, 2)

    assert sorted(heard) == ["gone", "stays", "stays"]


@aio
async def test_an_event_that_was_dispatched_is_known_by_its_name_from_then_on() -> None:
    ctx = Context()
    ctx.emit(TICK, 1)

    with pytest.raises(KernelError, match="event 'tick' is dispatched by emit, not by bail"):
        ctx.bail("tick", 1)
