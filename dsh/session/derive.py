"""From the surface to the messages that the model is shown (`spec/session-log.md` §8)."""

from typing import cast

from dsh.session.event import SessionEvent
from dsh.session.message import Message
from dsh.session.surface import Lookup, SurfaceState


class Derivation:
    """The messages of one surface, as far as it has been read; put together anew when some were replaced."""

    __slots__ = ("_generation", "_messages", "_projected", "_tuple")

    def __init__(self) -> None:
        self._projected: dict[int, Message | None] = {}
        """By seq, in the order of the surface as far as it has been read."""
        self._messages: list[Message] = []
        self._tuple: tuple[Message, ...] = ()
        self._generation = 0

    def messages(self, surface: SurfaceState, lookup: Lookup) -> tuple[Message, ...]:
        """The messages of the surface as it is now. Each event is looked up once, whatever is replaced."""
        nodes, known = surface.nodes, self._projected
        if self._generation != surface.generation:
            self._generation = surface.generation
            self._projected = {seq: known[seq] if seq in known else project(lookup(seq)) for seq in nodes}
            self._messages = [message for message in self._projected.values() if message is not None]
        elif len(known) == len(nodes):
            return self._tuple
        for position in range(len(self._projected), len(nodes)):
            message = self._projected[nodes[position]] = project(lookup(nodes[position]))
            if message is not None:
                self._messages.append(message)
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
