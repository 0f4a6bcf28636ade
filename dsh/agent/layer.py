"""Named things registered globally or for a scope: each reader sees the global ones and those of its chain.

Entries of a nearer scope shadow the same name further out; a name is free only once within one layer.
"""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from dsh.kernel.scope import chain

T = TypeVar("T")


class Layers(Generic[T]):
    """One kind of named registration. Empty scoped layers are dropped."""

    def __init__(self, on_duplicate: Callable[[str], Exception]) -> None:
        self._global: dict[str, T] = {}
        self._scoped: WeakKeyDictionary[object, dict[str, T]] = WeakKeyDictionary()
        self._on_duplicate = on_duplicate

    def insert(self, scope: object | None, name: str, value: T) -> Callable[[], None]:
        """Add an entry; answers the undo, which removes it once.

        Raises:
            the error of `on_duplicate`: this layer has that name.
        """
        layer = self._global if scope is None else self._scoped.setdefault(scope, {})
        if name in layer:
            raise self._on_duplicate(name)
        layer[name] = value
        is_there = True

        def undo() -> None:
            nonlocal is_there
            if not is_there:
                return
            is_there = False
            del layer[name]
            if scope is not None and not layer and self._scoped.get(scope) is layer:
                del self._scoped[scope]

        return undo

    def view(self, scope: object | None) -> dict[str, T]:
        """What `scope` sees, farthest layer first."""
        merged = dict(self._global)
        for key in reversed(list(chain(scope))):
            merged.update(self._scoped.get(key, {}))
        return merged
