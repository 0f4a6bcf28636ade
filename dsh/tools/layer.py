"""Which tools a caller sees: registrations by scope, with shadowing, restrictions and guards."""

from collections.abc import Callable

from dsh.kernel import Context
from dsh.kernel.layer import Contributions, Layers, outward
from dsh.tools.definition import ToolDefinition
from dsh.tools.error import ToolRegistrationError
from dsh.tools.execution import ToolExecution

Guard = Callable[[ToolExecution], str | None]


class Registered(ToolDefinition, frozen=True, kw_only=True, eq=False):
    """A definition as the registry holds it."""

    owner: Context
    """What it was registered through, and goes with."""


class Restriction:
    """What one `restrict` lets through."""

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: frozenset[str] | None, deny: frozenset[str]) -> None:
        self._allow, self._deny = allow, deny

    def permits(self, name: str) -> bool:
        return name not in self._deny and (self._allow is None or name in self._allow)


class ToolLayers:
    """What was registered with one registry, in the layers of the scopes it was registered through."""

    def __init__(self) -> None:
        self.tools: Layers[Registered] = Layers(_duplicate)
        self.restrictions: Contributions[Restriction] = Contributions()
        self.guards: Contributions[Guard] = Contributions()

    def __len__(self) -> int:
        """How many layers hold anything, counted for each kind."""
        return len(self.tools) + len(self.restrictions) + len(self.guards)

    def find(self, name: str, scope: object | None) -> Registered | None:
        """The tool of that name as this scope sees it.

        A restriction masks what its scope inherits, also for the scopes inside; never the scope's own.
        """
        for layer in outward(scope):
            if found := self.tools.own(layer).get(name):
                return found
            if not all(restriction.permits(name) for restriction in self.restrictions.own(layer)):
                return None
        return None

    def visible(self, scope: object | None) -> dict[str, Registered]:
        """Every tool this scope sees, sorted by name."""
        found = ((name, self.find(name, scope)) for name in sorted(self.tools.view(scope)))
        return {name: definition for name, definition in found if definition is not None}

    def inherited_names(self, scope: object) -> set[str]:
        """What the layers outside this scope hold, masked or not."""
        return {name for layer in outward(scope) if layer is not scope for name in self.tools.own(layer)}


def _duplicate(name: str) -> ToolRegistrationError:
    return ToolRegistrationError(f"tool {name!r} is already registered in this scope", code="DUPLICATE_TOOL")
