"""Where output goes that is too long for the model: kept whole in a place that the model can open again."""

from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey


class Spilled(msgspec.Struct, frozen=True):
    """A text that was kept, or the place for one."""

    locator: str
    """How the model names it, such as an absolute path."""
    size_bytes: int
    """Of the whole text as UTF-8; 0 as long as nothing is there."""
    retrieval_hint: str
    """One short sentence to the model: how to read it."""


class SpillStore(Protocol):
    """Keeps texts of one session until it ends (`spec/capabilities-core.md` §17)."""

    def locate(self, session_id: str, suggested_name: str) -> Spilled:
        """The place that a text would get, so that its notice can be measured first. Takes no room.

        Raises:
            OSError: there is no place for anything.
        """

    async def save(self, place: Spilled, session_id: str, text: str) -> Spilled:
        """Write the text to a place that `locate` gave for the same session; once for each place.

        To make room for it, the session's oldest texts may go.

        Raises:
            OSError: it cannot be written, it is too large, or the session has ended; nothing is left of it.
        """


SPILL_STORE: ServiceKey[SpillStore] = ServiceKey("spillStore")
