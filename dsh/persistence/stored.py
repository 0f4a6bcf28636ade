"""A session as a backend found it stored: read as far as it is whole, not yet checked as a session."""

from typing import TYPE_CHECKING

import msgspec

from dsh.session.header import SessionHeader

if TYPE_CHECKING:
    from dsh.session.restore import Restorer


class Torn(msgspec.Struct, frozen=True, kw_only=True):
    """A tail that no finished turn stands behind; repair may cut it off. Its backend knows its parts."""

    reason: str
    recovered: int = 0
    """So many of the last events were read out of the tail and have to be written again."""

    @property
    def extent(self) -> str:
        """What is cut off, in words."""
        return "the tail"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One stored session. The graph belongs to who asked for it."""

    place: str
    """Where it lies, for messages: a path, or a database and a session in it."""
    header: SessionHeader
    content: "Restorer"
    """Has taken every whole record; its `finish` says whether they make a session."""
    next_seq: int
    """How many events are stored."""
    revision: str
    """Opaque; compare for equality only."""
    torn: Torn | None
