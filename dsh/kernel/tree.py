"""What a kernel holds, as plain data: counts over the whole tree, and the tree of one fiber."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dsh.kernel.effect import Effect
    from dsh.kernel.fiber import Fiber


class EffectTree(msgspec.Struct, frozen=True):
    """An effect by its label, and those that are undone together with it."""

    label: str
    children: "tuple[EffectTree, ...]" = ()


class FiberTree(msgspec.Struct, frozen=True):
    """One fiber, what it holds, and the fibers below it."""

    uid: int | None
    """0 for a root, None once it is disposed."""
    name: str
    row: str
    """Id of its row, empty where no row stands behind it."""
    state: str
    """`PENDING`, `LOADING`, `ACTIVE`, `FAILED`, `DISPOSED` or `UNLOADING`."""
    waits_for: tuple[str, ...]
    """Injected services that are not available to it."""
    injects: tuple[str, ...]
    provides: tuple[str, ...]
    """Services it provides now."""
    error: str
    """Why it failed, in one line; empty where it did not."""
    failures: tuple[str, ...]
    """Effects that could not be set up since it was loaded: label and reason."""
    effects: tuple[EffectTree, ...]
    children: "tuple[FiberTree, ...]"


class Statistics(msgspec.Struct, frozen=True):
    """Counts of what a kernel holds. Equal before and after whatever was undone completely."""

    fibers: int
    """Mounted ones, without the root."""
    active: int
    pending: int
    failed: int
    moving: int
    """Loading or unloading."""
    plugins: int
    services: int
    consumers: int
    """Pairs of a fiber and a service that it injects."""
    accessors: int
    listeners: int
    effects: int
    """Over all fibers, the root included; an effect inside another counts too."""
    exporters: int
    tasks: int


def tree_of(fiber: "Fiber") -> FiberTree:
    """The tree below a fiber, itself included."""
    return FiberTree(
        fiber.uid,
        fiber.name,
        str(getattr(fiber.entry, "id", "")),
        fiber.state.name,
        tuple(fiber.missing),
        tuple(fiber.inject),
        tuple(impl.name for impl in fiber.provided.values()),
        "" if fiber.error is None else f"{type(fiber.error).__name__}: {fiber.error}",
        tuple(f"{failure.label}: {failure.error}" for failure in fiber.failures),
        tuple(_effect(effect) for effect in fiber.effects),
        tuple(tree_of(child) for child in fiber.children),
    )


def _effect(effect: "Effect") -> EffectTree:
    return EffectTree(effect.label, tuple(_effect(child) for child in effect.children))


def statistics_of(root: "Fiber") -> Statistics:
    """What the kernel of this root holds now."""
    kernel = root.kernel
    states: dict[str, int] = {}
    effects = count = 0
    ahead = [root]
    while ahead:
        fiber = ahead.pop()
        ahead.extend(fiber.children)
        effects += sum(map(_size, fiber.effects))
        if fiber is not root:
            count += 1
            states[fiber.state.name] = states.get(fiber.state.name, 0) + 1
    return Statistics(
        fibers=count,
        active=states.get("ACTIVE", 0),
        pending=states.get("PENDING", 0),
        failed=states.get("FAILED", 0),
        moving=states.get("LOADING", 0) + states.get("UNLOADING", 0),
        plugins=len(kernel.runtimes),
        services=len(kernel.impls),
        consumers=sum(map(len, kernel.injectors.values())),
        accessors=len(kernel.accessors),
        listeners=kernel.events.count(),
        effects=effects,
        exporters=kernel.journal.exporter_count,
        tasks=sum(not task.done() for task in kernel.tasks),
    )


def _size(effect: "Effect") -> int:
    return 1 + sum(map(_size, effect.children))
