"""The model routes that a turn has chosen: their adapters are not restarted under it.

A restart between two requests of a turn would leave the next one without a model, in the middle of a task.
"""

from collections.abc import Callable

from dsh.kernel import Fiber
from dsh.llm.registry import LlmRegistry


class TurnRoutes:
    """Holds who registered the routes of one turn, from the first request of each to the end of the turn."""

    def __init__(self, llm: LlmRegistry) -> None:
        self._llm = llm
        self._held: dict[Fiber, Callable[[], None]] = {}

    def hold(self, provider: str) -> None:
        """A request of the turn goes this way. A route that nobody has registered holds nobody."""
        owner = self._llm.owner_of(provider)
        if owner is not None and owner not in self._held:
            self._held[owner] = owner.hold(f"a turn that uses model route {provider} is running")

    def release(self) -> None:
        """The turn is over."""
        while self._held:
            self._held.popitem()[1]()
