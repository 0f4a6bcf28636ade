"""Scopes: registrations are inherited down a chain of keys, events flow up it (`spec/kernel.md` §8.3).

A key is any object compared by identity; the agent itself is the key of an agent's scope. The parent
of a key is bound once.
"""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from dsh.errors import KernelError
from dsh.kernel.context import Context
from dsh.kernel.event import Place
from dsh.kernel.fiber import Fiber

_parents: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()


class Scope:
    """A context tagged with a key, and the fiber that owns whatever is registered through it."""

    __slots__ = ("ctx", "fiber", "key")

    def __init__(self, key: object, ctx: Context, fiber: Fiber) -> None:
        self.key, self.ctx, self.fiber = key, ctx, fiber


async def create_scope(ctx: Context, key: object, parent: object | None = None) -> Scope:
    """Mount an empty fiber under `ctx` and tag its context with `key`. Dispose the fiber to end the scope.

    Raises:
        KernelError: the key already has a parent, or would become its own ancestor.
    """
    if parent is not None:
        bind_parent(key, parent)
    fiber = ctx.plugin(_empty, name="scope")
    await fiber
    return Scope(key, fiber.ctx.extend(scope=key), fiber)


def bind_parent(key: object, parent: object) -> None:
    """Put `key` below `parent`, once."""
    if key in _parents:
        raise KernelError(f"scope {key!r} already has a parent")
    if any(k is key for k in chain(parent)):
        raise KernelError(f"scope {key!r} would be its own ancestor")
    _parents[key] = parent


def chain(key: object | None) -> Iterator[object]:
    """The key, its parent, and so on."""
    while key is not None:
        yield key
        key = _parents.get(key)


class ScopeTarget:
    """The subject of an event that is about `key`: reaches untagged listeners and those of key or above."""

    __slots__ = ("_keys", "key")

    def __init__(self, key: object | None) -> None:
        self.key = key
        self._keys = tuple(chain(key))

    def admits(self, place: Place) -> bool:
        tag = place.scope
        return tag is None or any(tag is key for key in self._keys)


def _empty(ctx: Context) -> None:
    """The body of a scope's fiber: it only owns."""
