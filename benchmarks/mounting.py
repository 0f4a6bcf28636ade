"""In process: mount rows on a kernel, dispose of them, dispatch events. Prints one figure a line.

Each row provides a service, injects that of the row before it, listens to an event and holds an effect, as
a real one does. Run by `python -m benchmarks`, or alone: `python -m benchmarks.mounting`.
"""

import asyncio
import gc
import sys
import time
from typing import Any, NamedTuple

from dsh.kernel import Context, Event

EVENT: Event[int, None] = Event("benchmark/tick", "emit")
FEW, MANY, EMITS = 1_000, 10_000, 10_000
LISTENERS = 20


class Figures(NamedTuple):
    """CPU times in microseconds."""

    mount_us: float
    """To mount one of `FEW` rows, until it is active."""
    dispose_us: float
    growth: float
    """How mounting and disposing of `MANY` rows compares with `FEW`, for each row: 1.0 is linear."""
    emit_us: float
    """One dispatch to `LISTENERS` listeners."""


class Row:
    """A plugin that does what rows do."""

    def __init__(self, number: int) -> None:
        self.name = f"row-{number}"
        self.inject = [f"service-{number - 1}"] if number % 10 else []
        self._number = number

    def apply(self, ctx: Context) -> None:
        ctx.on(EVENT, lambda _: None)
        ctx.effect(lambda: lambda: None, "thing")
        ctx.provide(f"service-{self._number}", self)


async def life(count: int) -> tuple[float, float]:
    """CPU seconds to mount that many rows and to dispose of them."""
    root = Context()
    begin = time.process_time()
    fibers = [root.plugin(Row(number)) for number in range(count)]
    while waiting := [fiber for fiber in fibers if not fiber.is_active]:
        await asyncio.gather(*(fiber.quiet() for fiber in waiting))
    mounted = time.process_time()
    await root.dispose()
    ended = time.process_time()
    left = root.statistics()
    if any((left.fibers, left.services, left.listeners, left.effects)):
        raise RuntimeError(f"left behind: {left}")
    return mounted - begin, ended - mounted


async def emits() -> float:
    """CPU seconds of `EMITS` dispatches."""
    root = Context()
    heard = 0

    def listener(payload: int) -> None:
        nonlocal heard
        heard += payload

    for _ in range(LISTENERS):
        root.on(EVENT, listener)
    begin = time.process_time()
    for _ in range(EMITS):
        root.emit(EVENT, 1)
    spent = time.process_time() - begin
    if heard != EMITS * LISTENERS:
        raise RuntimeError(f"{heard} calls of listeners, expected {EMITS * LISTENERS}")
    await root.dispose()
    return spent


def best(measure: Any, runs: int = 5) -> Any:
    """The smallest of several measurements, each in a fresh loop."""
    found = []
    for _ in range(runs):
        gc.collect()
        gc.disable()  # as the start of the program does
        found.append(asyncio.run(measure()))
        gc.enable()
    return min(found)


def figures() -> Figures:
    """Measure everything in this process."""
    mount, dispose = best(lambda: life(FEW))
    many = sum(best(lambda: life(MANY), 2))
    growth = (many / MANY) / ((mount + dispose) / FEW)
    return Figures(mount / FEW * 1e6, dispose / FEW * 1e6, growth, best(emits) / EMITS * 1e6)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{figure:.3f}\n" for figure in figures()))
