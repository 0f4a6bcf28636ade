"""Registrations in layers: one for each scope and a global one; what a scope sees is its chain of layers.

A nearer layer shadows the same name further out. Contributions without a name all count. Keys of scopes are
compared by identity; a scoped layer that is empty again is forgotten (`spec/agent-loop.md` §13).
"""

from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Generic, TypeVar

from dsh.kernel.scope import chain

T = TypeVar("T")

Undo = Callable[[], None]


class Layers(Generic[T]):
    """One kind of registration by name. A name is free once in each layer."""

    def __init__(self, duplicate: Callable[[str], Exception]) -> None:
        self._layers: dict[int, tuple[object | None, dict[str, T]]] = {}
        self._duplicate = duplicate

    def insert(self, scope: object | None, name: str, value: T) -> Undo:
        """Add an entry to the layer of `scope`, of None to the global one. The answer removes it, once.

        Raises:
            the error that `duplicate` makes: this very layer has that name.
        """
        layer = self._layers.setdefault(id(scope), (scope, {}))[1]
        if name in layer:
            raise self._duplicate(name)
        layer[name] = value

        def undo() -> None:
            del layer[name]
            if not layer:
                del self._layers[id(scope)]

        return _once(undo)

    def own(self, scope: object | None) -> dict[str, T]:
        """What this very layer holds. Not to be changed."""
        return self._layers[id(scope)][1] if id(scope) in self._layers else {}

    def find(self, name: str, scope: object | None) -> T | None:
        """The nearest entry of that name."""
        for layer in outward(scope):
            if (found := self.own(layer).get(name)) is not None:
                return found
        return None

    def view(self, scope: object | None) -> dict[str, T]:
        """All that `scope` sees, by name: those of the farthest layer first."""
        merged: dict[str, T] = {}
        for layer in reversed(list(outward(scope))):
            merged.update(self.own(layer))
        return merged

    def names(self) -> set[str]:
        """Every name that any layer holds."""
        return {name for _, layer in self._layers.values() for name in layer}

    def __len__(self) -> int:
        """How many layers hold anything."""
        return len(self._layers)


class Contributions(Generic[T]):
    """One kind of registration without names: each of them counts for its scope and those inside."""

    def __init__(self) -> None:
        self._layers: Layers[T] = Layers(KeyError)
        self._numbers = count()

    def add(self, scope: object | None, value: T) -> Undo:
        """Add to the layer of `scope`, of None to the global one. The answer takes this one out, once."""
        return self._layers.insert(scope, str(next(self._numbers)), value)

    def own(self, scope: object | None) -> Collection[T]:
        """What this very layer holds, in order."""
        return self._layers.own(scope).values()

    def view(self, scope: object | None) -> list[T]:
        """All that count for `scope`: global ones first, the nearest layer's last."""
        return list(self._layers.view(scope).values())

    def __len__(self) -> int:
        """How many layers hold anything."""
        return len(self._layers)


def outward(scope: object | None) -> Iterator[object | None]:
    """The layers that a scope sees: its own, its ancestors', and None for the global one."""
    yield from chain(scope)
    yield None


def _once(undo: Undo) -> Undo:
    is_done = False

    def only_once() -> None:
        nonlocal is_done
        if not is_done:
            is_done = True
            undo()

    return only_once
