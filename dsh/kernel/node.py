"""One node of the tree of contexts: what it inherits and what it adds.

Each node adds addresses, intercepts and metadata to those of its parent, which it never changes. Looking
something up walks to the root, so that a change in place is seen everywhere below at once.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from dsh.kernel.key import ServiceKey, name_of
from dsh.kernel.root import Kernel, Realm

if TYPE_CHECKING:
    from dsh.kernel.fiber import Fiber


def merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Shallowly: of what several say, the last counts."""
    return {key: value for layer in layers for key, value in layer.items()}


class Node:
    """The inheriting part of a context (`dsh.kernel.context.Context`)."""

    __slots__ = (
        "__weakref__",
        "_meta",
        "_parent",
        "fiber",
        "kernel",
        "own_intercepts",
        "own_realms",
        "reads_from",
        "scope",
    )

    _parent: Self | None
    _meta: Mapping[str, Any]
    fiber: "Fiber"
    """Whose effects are what is registered here."""
    kernel: Kernel
    own_realms: Mapping[str, Realm]
    """The addresses that this context adds to those of its parent; changed by `rebind` alone."""
    own_intercepts: Mapping[str, Any]
    """The intercepts that this context adds."""
    reads_from: Self | None
    """Where attributes are read instead: the provider's context, inside a method of its service."""
    scope: object | None

    def _set_up(
        self,
        parent: Self | None,
        kernel: Kernel,
        realms: Mapping[str, Realm],
        intercepts: Mapping[str, Any],
        meta: Mapping[str, Any],
        scope: object | None,
    ) -> None:
        put = object.__setattr__
        put(self, "_parent", parent)
        put(self, "kernel", kernel)
        put(self, "own_realms", realms)
        put(self, "own_intercepts", intercepts)
        put(self, "_meta", meta)
        put(self, "reads_from", None)
        put(self, "scope", scope)

    @property
    def root(self) -> Self:
        """The context that all others of the tree are derived from."""
        ctx = self
        while ctx._parent is not None:
            ctx = ctx._parent
        return ctx

    def _child(
        self,
        *,
        fiber: "Fiber | None" = None,
        realms: Mapping[str, Realm] | None = None,
        intercepts: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Self:
        child = object.__new__(type(self))
        scope = meta["scope"] if meta and "scope" in meta else self.scope
        child._set_up(self, self.kernel, realms or {}, intercepts or {}, meta or {}, scope)
        object.__setattr__(child, "fiber", fiber or self.fiber)
        return child

    def extend(self, **meta: Any) -> Self:
        """A child with additional metadata; `scope=KEY` tags what is registered through it."""
        return self._child(meta=meta)

    def isolate(self, key: ServiceKey[Any] | str, realm: Realm | None = None) -> Self:
        """A child in which the service name has another address: a private one, or the given one."""
        name = name_of(key)
        return self._child(realms={name: realm or Realm(name)})

    def intercept(self, key: ServiceKey[Any] | str, config: Any) -> Self:
        """A child whose reads of that service carry `config` (see `intercepted`)."""
        return self._child(intercepts={name_of(key): config})

    def derive(
        self, *, isolate: Mapping[str, Realm] | None = None, intercept: Mapping[str, Any] | None = None
    ) -> Self:
        """A child with these addresses and intercepts, which `rebind` can change later."""
        return self._child(realms=dict(isolate or {}), intercepts=dict(intercept or {}))

    def reading_from(self, owner: Self) -> Self:
        """A child that reads services as `owner` does; what it registers is still this context's."""
        child = self._child()
        object.__setattr__(child, "reads_from", owner)
        return child

    def is_below(self, other: "Node") -> bool:
        """Whether this context is the other or was derived from it, over any number of plugins."""
        ctx: Node | None = self
        while ctx is not None and ctx is not other:
            ctx = ctx._parent
        return ctx is not None

    def meta(self, name: str, default: Any = None) -> Any:
        """Inherited metadata."""
        ctx: Node | None = self
        while ctx is not None:
            if name in ctx._meta:
                return ctx._meta[name]
            ctx = ctx._parent
        return default

    def intercept_layers(self, key: ServiceKey[Any] | str) -> list[Mapping[str, Any]]:
        """All intercept layers for a service: the root's first, the nearest last."""
        name, layers = name_of(key), []
        ctx: Node | None = self
        while ctx is not None:
            if isinstance(layer := ctx.own_intercepts.get(name), Mapping):
                layers.append(layer)
            ctx = ctx._parent
        layers.reverse()
        return layers

    def intercepted(self, key: ServiceKey[Any] | str) -> dict[str, Any]:
        """The intercept layers for a service, merged shallowly: the nearest counts."""
        return merged(self.intercept_layers(key))

    def realm_of(self, name: str) -> Realm:
        """The address a service name has here."""
        ctx: Node | None = self
        while ctx is not None:
            if name in ctx.own_realms:
                return ctx.own_realms[name]
            ctx = ctx._parent
        return self.kernel.realm(name)
