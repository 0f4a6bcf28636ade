"""Where output goes that is too long for the model: kept whole in a place that the model can open again."""

from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey


class Spilled(msgspec.Struct, frozen=True):
    """A text that was kept."""

    locator: str
    """How the model names it, such as an absolute path."""
    size_bytes: int
    """Of the whole text as UTF-8."""
    retrieval_hint: str
    """One short sentence to the model: how to read it."""


class SpillStore(Protocol):
    """Keeps texts of one session until it ends (`spec/capabilities-core.md` §17)."""

    def locate(self, session_id: str, suggested_name: str) -> Spilled:
        """The place that a text would get, with a size of 0, so that its notice can be measured first."""

    async def save(self, place: Spilled, session_id: str, text: str) -> Spilled:
        """Write the text to a place that `locate` gave.

        Raises:
            OSError: it could not be written; nothing is left of it.
        """


SPILL_STORE: ServiceKey[SpillStore] = ServiceKey("spillStore")
