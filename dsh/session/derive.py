"""From the surface to the messages that the model is shown (`spec/session-log.md` §8)."""

from typing import cast

from dsh.session.event import SessionEvent
from dsh.session.message import Message
from dsh.session.surface import Lookup, SurfaceState


class Derivation:
    """The messages of one surface, as far as it has been read; made anew when something was replaced."""

    __slots__ = ("_generation", "_messages", "_nodes", "_tuple")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._tuple: tuple[Message, ...] = ()
        self._nodes = 0
        self._generation = 0

    def messages(self, surface: SurfaceState, lookup: Lookup) -> tuple[Message, ...]:
        """The messages of the surface as it is now. Costs as much as there are new nodes."""
        nodes = surface.nodes
        if self._generation != surface.generation:
            self._messages.clear()
            self._nodes, self._generation = 0, surface.generation
        elif self._nodes == len(nodes):
            return self._tuple
        for position in range(self._nodes, len(nodes)):
            message = project(lookup(nodes[position]))
            if message is not None:
                self._messages.append(message)
        self._nodes = len(nodes)
        self._tuple = tuple(self._messages)
        return self._tuple


def project(event: SessionEvent) -> Message | None:
    """The message that an event puts before the model, if any.

    An assistant message without content only carries usage and is not shown.
    """
    match event.type:
        case "user/message":
            return cast(Message, event.data)
        case "tool/result":
            return cast(Message, event.data["message"])
        case "assistant/message":
            message = event.data["message"]
            return cast(Message, message) if message["content"] else None
    return None
