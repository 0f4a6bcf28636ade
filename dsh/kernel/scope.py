"""Scopes: registrations are inherited down a chain of keys, events flow up it (`spec/kernel.md` §8.3).

A key is any object compared by identity; the agent itself is the key of an agent's scope. The parent
of a key is bound once; only who bound it can change it later.
"""

from collections.abc import Iterator
from typing import ClassVar
from weakref import ref

from dsh.errors import KernelError
from dsh.kernel.context import Context
from dsh.kernel.event import Place, Subject
from dsh.kernel.fiber import Fiber


class Link:
    """The tie of a key to its parent, in the hands of who made it."""

    __slots__ = ("__weakref__", "_key", "parent")

    def __init__(self, key: object, parent: object) -> None:
        number, links = id(key), _Chains.links
        try:
            self._key = ref(key, lambda _: links.pop(number, None))
        except TypeError:
            raise KernelError(
                f"a scope key is an object that can be weakly referenced, found {key!r}"
            ) from None
        self.parent = parent

    def relink(self, parent: object) -> None:
        """Put the key below another parent.

        Raises:
            KernelError: the key would become its own ancestor.
        """
        key = self._key()
        _refuse_cycle(key, parent)
        self.parent = parent
        _Chains.version += 1


class _Chains:
    """Who is below whom, over all trees of the process."""

    links: ClassVar[dict[int, Link]] = {}
    """By the identity of the key; a tie goes with its key."""
    version = 0
    """Grows with every change, so that a target knows when the chain it keeps is out of date."""


class Scope:
    """A context tagged with a key, the fiber that owns what is registered through it, and the key's tie."""

    __slots__ = ("ctx", "fiber", "key", "link")

    def __init__(self, key: object, ctx: Context, fiber: Fiber, link: Link | None = None) -> None:
        self.key, self.ctx, self.fiber, self.link = key, ctx, fiber, link


async def create_scope(ctx: Context, key: object, parent: object | None = None) -> Scope:
    """Mount an empty fiber under `ctx` and tag its context with `key`. Dispose the fiber to end the scope.

    Raises:
        KernelError: the key already has a parent, or would become its own ancestor.
    """
    ctx.fiber.admit()
    link = None if parent is None else bind_parent(key, parent)
    fiber: Fiber | None = None
    try:
        fiber = ctx.plugin(_empty, name="scope")
        await fiber
    except BaseException:
        if fiber is not None:
            ctx.kernel.keep(fiber.dispose(), "dispose scope")
        if link is not None:
            _Chains.links.pop(id(key), None)
            _Chains.version += 1
        raise
    return Scope(key, fiber.ctx.extend(scope=key), fiber, link)


def bind_parent(key: object, parent: object) -> Link:
    """Put `key` below `parent`, once. The answer is the only way to change it.

    Raises:
        KernelError: the key already has a parent, or would become its own ancestor.
    """
    if id(key) in _Chains.links:
        raise KernelError(f"scope {key!r} already has a parent")
    _refuse_cycle(key, parent)
    link = _Chains.links[id(key)] = Link(key, parent)
    _Chains.version += 1
    return link


def _refuse_cycle(key: object, parent: object) -> None:
    if any(k is key for k in chain(parent)):
        raise KernelError(f"scope {key!r} would be its own ancestor")


def chain(key: object | None) -> Iterator[object]:
    """The key, its parent, and so on."""
    while key is not None:
        yield key
        link = _Chains.links.get(id(key))
        key = None if link is None else link.parent


class ScopeTarget:
    """The subject of an event that is about `key`: reaches untagged listeners and those of key or above.

    Args:
        key: None reaches untagged listeners only.
        base: another filter, which a listener must pass as well.
    """

    __slots__ = ("_base", "_keys", "_version", "key")

    def __init__(self, key: object | None, base: Subject | None = None) -> None:
        self.key = key
        self._base = base
        self._version = -1
        self._keys: tuple[object, ...] = ()

    def admits(self, place: Place) -> bool:
        if (tag := place.scope) is not None:
            if self._version != _Chains.version:
                self._keys, self._version = tuple(chain(self.key)), _Chains.version
            for key in self._keys:
                if key is tag:
                    break
            else:
                return False
        return self._base is None or self._base.admits(place)


def _empty(ctx: Context) -> None:
    """The body of a scope's fiber: it only owns."""
