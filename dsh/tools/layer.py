"""Which tools a caller sees: one layer of registrations a scope, with shadowing, restrictions, guards."""

from collections.abc import Callable, Iterator

from dsh.kernel.scope import chain
from dsh.tools.definition import ToolDefinition
from dsh.tools.execution import ToolExecution

Guard = Callable[[ToolExecution], str | None]


class Restriction:
    """What one `restrict` lets through."""

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: frozenset[str] | None, deny: frozenset[str]) -> None:
        self._allow, self._deny = allow, deny

    def permits(self, name: str) -> bool:
        return name not in self._deny and (self._allow is None or name in self._allow)


class Layer:
    """What was registered through the contexts of one scope."""

    __slots__ = ("guards", "key", "restrictions", "tools")

    def __init__(self, key: object | None) -> None:
        self.key = key
        self.tools: dict[str, ToolDefinition] = {}
        self.restrictions: list[Restriction] = []
        self.guards: list[Guard] = []

    @property
    def is_empty(self) -> bool:
        return not (self.tools or self.restrictions or self.guards)


class Layers:
    """The layers of one registry. Keys are compared by identity; an empty layer is forgotten."""

    def __init__(self) -> None:
        self._by_key: dict[int, Layer] = {}

    def open(self, key: object | None) -> Layer:
        """The layer of this scope, made if need be."""
        return self._by_key.setdefault(id(key), Layer(key))

    def close_if_empty(self, layer: Layer) -> None:
        if layer.is_empty and self._by_key.get(id(layer.key)) is layer:
            del self._by_key[id(layer.key)]

    def own(self, key: object | None) -> Layer | None:
        return self._by_key.get(id(key))

    def outward(self, key: object | None) -> Iterator[Layer]:
        """The layers that a caller in this scope inherits from, the nearest first, the global one last."""
        for link in (*chain(key), None):
            layer = self._by_key.get(id(link))
            if layer is not None:
                yield layer

    def find(self, name: str, key: object | None) -> ToolDefinition | None:
        """The tool of that name as this scope sees it.

        A restriction masks what its scope inherits, also for the scopes inside; never the scope's own.
        """
        for layer in self.outward(key):
            if found := layer.tools.get(name):
                return found
            if not all(restriction.permits(name) for restriction in layer.restrictions):
                return None
        return None

    def visible(self, key: object | None) -> dict[str, ToolDefinition]:
        """Every tool this scope sees, sorted by name."""
        names = {name for layer in self.outward(key) for name in layer.tools}
        found = ((name, self.find(name, key)) for name in sorted(names))
        return {name: definition for name, definition in found if definition is not None}

    def inherited_names(self, key: object | None) -> set[str]:
        """What the layers outside this scope hold, masked or not."""
        return {name for layer in self.outward(key) if layer.key is not key for name in layer.tools}

    def guards(self, key: object | None) -> list[Guard]:
        """The guards that a call from this scope passes, in order: global first, the nearest last."""
        layers = list(self.outward(key))
        return [guard for layer in reversed(layers) for guard in layer.guards]
