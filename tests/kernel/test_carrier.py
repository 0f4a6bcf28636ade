"""Scoped events: each dispatch says about whom, and about the one that its payload names."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dsh.errors import KernelError
from dsh.kernel import Context, Event, ScopeTarget
from dsh.kernel.key import Mode
from tests.aio import aio


class About(NamedTuple):
    who: object | None


class Key:
    def __repr__(self) -> str:
        return "a key"


def dispatch(ctx: Context, mode: Mode, event: Any, payload: Any, **subject: Any) -> Any:
    match mode:
        case "emit":
            return ctx.emit(event, payload, **subject)
        case "parallel":
            return ctx.parallel(event, payload, **subject)
        case "serial":
            return ctx.serial(event, payload, **subject)
        case "bail":
            return ctx.bail(event, payload, **subject)
        case "waterfall":
            return ctx.waterfall(event, payload, lambda: None, **subject)


async def outcome(answer: Callable[[], Any]) -> str:
    try:
        found = answer()
        if hasattr(found, "__await__"):
            await found
    except KernelError as error:
        return error.code or "no code"
    return "dispatched"


@pytest.mark.parametrize("mode", ["emit", "parallel", "serial", "bail", "waterfall"])
@aio
async def test_every_mode_refuses_a_dispatch_about_nobody_or_about_another(mode: Mode) -> None:
    ctx = Context()
    key = Key()
    about: Event[About, Any] = Event("about", mode, scoped=lambda payload: payload.who)
    somebody: Event[About, Any] = Event("somebody", mode, scoped=True)
    plain: Event[About, Any] = Event("plain", mode)

    async def told(event: Any, who: object | None, **subject: Any) -> str:
        return await outcome(lambda: dispatch(ctx, mode, event, About(who), **subject))

    assert await told(about, key, subject=ScopeTarget(key)) == "dispatched"
    assert await told(about, None, subject=ScopeTarget(None)) == "dispatched"
    assert await told(about, key) == "INVARIANT"
    assert await told(about, key, subject=ScopeTarget(None)) == "INVARIANT"
    assert await told(about, key, subject=ScopeTarget(Key())) == "INVARIANT"
    assert await told("about", key) == "INVARIANT", "by name it is the same event"
    assert await told("about", key, subject=ScopeTarget(key)) == "dispatched"
    assert await told(somebody, key) == "INVARIANT"
    assert await told(somebody, key, subject=ScopeTarget(Key())) == "dispatched"
    assert await told(plain, key) == "dispatched"
    await ctx.dispose()


@aio
async def test_nobody_hears_a_refused_dispatch_and_a_contained_event_is_refused_as_well() -> None:
    ctx = Context()
    event: Event[About, None] = Event("about", "emit", contained=True, scoped=lambda payload: payload.who)
    heard: list[About] = []
    ctx.on(event, heard.append)

    with pytest.raises(KernelError) as caught:
        ctx.emit(event, About(Key()))

    assert heard == []
    assert "'about'" in caught.value.message
    assert "ScopeTarget" in caught.value.hint
    await ctx.dispose()


@aio
async def test_a_listener_is_enough_to_know_the_declaration() -> None:
    ctx = Context()
    event: Event[About, None] = Event("about", "emit", scoped=True)
    ctx.on(event, lambda _: None)

    with pytest.raises(KernelError, match="about nobody"):
        ctx.emit("about", About(None))
    await ctx.dispose()
