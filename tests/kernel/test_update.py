"""Giving a running fiber another config: validated first, resolved once, perhaps applied in place."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dsh.kernel import FIBER_CONFIG, FIBER_UPDATE, Context, Fiber, ValidationError
from dsh.kernel.internal import ConfigRequest, UpdateRequest
from tests.aio import aio

Next = Callable[[], Any]


class Options(msgspec.Struct, forbid_unknown_fields=True):
    word: str = "none"


class Plugin:
    """Notes each load; `listen` registers what it wants to hear of its own updates."""

    name = "plugin"
    Config = Options

    def __init__(self, *listeners: Callable[[UpdateRequest, Next], Any], prepend: bool = False) -> None:
        self.loads: list[str] = []
        self._listeners, self._prepend = listeners, prepend

    def apply(self, ctx: Context, config: Options) -> None:
        self.loads.append(config.word)
        for listener in self._listeners:
            ctx.on(FIBER_UPDATE, listener, prepend=self._prepend)


def noting(log: list[str], name: str) -> Callable[[UpdateRequest, Next], Any]:
    def listener(request: UpdateRequest, following: Next) -> Any:
        log.append(f"{name} {request.config.word}")
        return following()

    return listener


@aio
async def test_the_chain_is_global_prepended_then_own_then_other_global_then_the_restart() -> None:
    root = Context()
    log: list[str] = []
    root.on(FIBER_UPDATE, noting(log, "global"), global_=True)
    plugin = Plugin(noting(log, "own 1"), noting(log, "own 2"))
    fiber = await root.plugin(plugin)
    root.on(FIBER_UPDATE, noting(log, "loader"), global_=True, prepend=True)
    await fiber.update({"word": "b"})

    assert log == ["loader b", "own 1 b", "own 2 b", "global b"]
    assert plugin.loads == ["none", "b"]


@pytest.mark.parametrize("prepend", [False, True])
@aio
async def test_listeners_of_a_fiber_do_not_pile_up_over_restarts(prepend: bool) -> None:
    root = Context()
    log: list[str] = []
    fiber = await root.plugin(Plugin(noting(log, "own"), prepend=prepend))
    for word in ("b", "c"):
        await fiber.update({"word": word})

    assert log == ["own b", "own c"]


@aio
async def test_a_listener_hears_only_the_updates_of_its_own_fiber() -> None:
    root = Context()
    log: list[str] = []
    await root.plugin(Plugin(noting(log, "one")))
    other = await root.plugin(Plugin(noting(log, "other")))
    root.on(FIBER_UPDATE, noting(log, "of the root"))
    await other.update({"word": "b"})

    assert log == ["other b"]


@pytest.mark.parametrize("is_async", [False, True])
@aio
async def test_a_listener_may_apply_the_config_in_place(is_async: bool) -> None:
    def listener(request: UpdateRequest, following: Next) -> Any:
        applied.append(request.config.word)
        return "in place"

    async def later(request: UpdateRequest, following: Next) -> Any:
        await asyncio.sleep(0)
        return listener(request, following)

    root = Context()
    applied: list[str] = []
    plugin = Plugin(later if is_async else listener)
    fiber = await root.plugin(plugin)
    answer = await fiber.update({"word": "b"})

    assert (answer, applied, plugin.loads) == ("in place", ["b"], ["none"])
    assert (fiber.raw_config, fiber.config) == ({"word": "b"}, Options("b"))
    await fiber.restart()
    assert plugin.loads == ["none", "b"]


@aio
async def test_a_listener_that_raises_refuses_the_update() -> None:
    def listener(request: UpdateRequest, following: Next) -> Any:
        raise ValueError("not now")

    root = Context()
    plugin = Plugin(listener)
    fiber = await root.plugin(plugin, {"word": "a"})
    with pytest.raises(ValueError, match="not now"):
        await fiber.update({"word": "b"})

    assert (fiber.raw_config, fiber.config, plugin.loads) == ({"word": "a"}, Options("a"), ["a"])


@aio
async def test_a_listener_is_told_whether_to_write_back() -> None:
    root = Context()
    told: list[bool] = []

    def listener(request: UpdateRequest, following: Next) -> Any:
        told.append(request.no_save)
        return following()

    root.on(FIBER_UPDATE, listener, global_=True)
    fiber = await root.plugin(Plugin())
    await fiber.update({"word": "b"})
    await fiber.update({"word": "c"}, no_save=True)

    assert told == [False, True]


@aio
async def test_a_config_is_resolved_once_an_update_and_again_at_the_next_load() -> None:
    root = Context()
    resolved: list[Any] = []

    def counts(request: ConfigRequest, following: Next) -> Any:
        resolved.append(request.raw)
        return following()

    root.on(FIBER_CONFIG, counts, global_=True)
    plugin = Plugin()
    fiber = await root.plugin(plugin)
    await fiber.update({"word": "b"})
    assert resolved == [None, {"word": "b"}]
    await fiber.restart()

    assert resolved == [None, {"word": "b"}, {"word": "b"}]
    assert plugin.loads == ["none", "b", "b"]


@aio
async def test_what_does_not_fit_is_refused_before_any_listener_hears_of_it() -> None:
    root = Context()
    log: list[str] = []
    plugin = Plugin(noting(log, "own"))
    fiber = await root.plugin(plugin, {"word": "a"})
    with pytest.raises(ValidationError, match="expected string but got integer"):
        await fiber.update({"word": 3})

    assert (log, fiber.raw_config, fiber.is_active) == ([], {"word": "a"}, True)


@aio
async def test_a_pending_fiber_takes_the_config_for_later_unjudged() -> None:
    root = Context()
    plugin = Plugin()
    fiber = root.plugin(plugin, {"word": "a"}, inject=["thing"])
    await fiber.update({"word": "b"})
    assert (fiber.state.name, plugin.loads) == ("PENDING", [])
    await root.plugin(lambda ctx: ctx.provide("thing", 1))
    await fiber

    assert plugin.loads == ["b"]


@aio
async def test_two_updates_at_once_end_with_the_later_one() -> None:
    root = Context()
    plugin = Plugin()
    fiber: Fiber = await root.plugin(plugin)
    await asyncio.gather(fiber.update({"word": "b"}), fiber.update({"word": "c"}))

    assert plugin.loads[-1] == "c"
    assert (fiber.raw_config, fiber.config) == ({"word": "c"}, Options("c"))


@aio
async def test_unknown_keys_are_told_where_the_fiber_has_somebody_to_tell() -> None:
    root = Context()
    told: list[tuple[str, str, str]] = []
    plugin = Plugin()
    fiber = await root.plugin(plugin)
    with pytest.raises(ValidationError, match="unknown key 'wrod'"):
        await fiber.update({"wrod": "b"})

    fiber.on_unknown_key = lambda *what: told.append(what)
    await fiber.update({"wrod": "b"})

    assert told == [("", "wrod", "did you mean 'word'?")]
    assert plugin.loads == ["none", "none"]
