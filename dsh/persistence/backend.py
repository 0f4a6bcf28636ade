"""What the coordinator and the session commands ask of a place that stores logs, and what it answers.

Everything here is synchronous. A program runs it in the coordinator's one worker thread, a command calls it
directly (`spec/persistence.md` §3).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from dsh.persistence.stored import Stored
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.header import SessionHeader
from dsh.session.value import JsonObject

S = TypeVar("S", bound=Stored)


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a listing, from the header and what is known without reading events."""

    header: SessionHeader
    place: str
    """Where it lies, for messages."""
    path: Path | None
    """The file that holds this session and nothing else; None where there is none."""
    revision: str
    """Opaque; compare for equality only."""
    size: int
    """Bytes on disk, or of its records in a database."""
    modified_ms: int | None
    """When it was last written, in epoch milliseconds; None where that is not known."""
    title: str | None = None
    """Its last title, where the listing knows it; None where it has none, or the storage is a log alone."""


class StoredProblem(msgspec.Struct, frozen=True):
    """Something that cannot be listed. It hides nothing else."""

    place: str
    reason: str
    code: str
    """As that of the error that opening it would raise."""


class Listing(msgspec.Struct, frozen=True):
    """All stored sessions, in no order, and what could not be read."""

    sessions: tuple[StoredSession, ...]
    problems: tuple[StoredProblem, ...]


class RawLog(msgspec.Struct, frozen=True):
    """The stored text, decoded from its compression and otherwise verbatim: header line and records.

    A torn tail is left out, in both encodings.
    """

    path: Path
    content: bytes
    filename: str = "session.jsonl"


class StorageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the storage of one session consists of. The header is no row."""

    encoding: str
    """`plain`, `zstd` or `sqlite`."""
    rows: int
    events: int
    packed_rows: int
    packed_events: int
    """Events that the packed rows stand for."""
    text_bytes: int
    """Header line and rows as JSON lines."""
    unpacked_bytes: int
    """The same lines if no run were packed."""
    stored_bytes: int
    """What is really there."""


class Packed(msgspec.Struct, frozen=True):
    """What packing a stored session anew did to its size in bytes. Equal: it was left as it was."""

    before: int
    after: int


class Tail(msgspec.Struct, frozen=True):
    """The last events of a stored session, as they are stored: decoded, old shapes not converted.

    Nothing was checked but that their seqs follow each other.
    """

    header: SessionHeader
    entries: tuple[JsonObject | ChunkRun, ...]
    """Exactly the events from the seq on that was asked for; a torn tail is left out."""


class Backend(Protocol[S]):
    """One kind of storage. A log is open for writing from `open` or its first `append` to `release`."""

    @property
    def name(self) -> str:
        """For messages."""

    def locate(self, header: SessionHeader) -> Path | None:
        """The file that holds or would hold this session alone. No I/O."""

    def is_taken(self, header: SessionHeader) -> bool:
        """Whether a log is seen to lie where this one would. Cheap enough for the event loop."""

    def find(self, session_id: str) -> str | None:
        """The place where a session is stored, or None. No record is read."""

    def unseen(self) -> list[str]:
        """Places that may hold stored sessions and may not be looked into. Not cheap; for a message."""

    def ids(self, prefix: str = "") -> list[str]:
        """Ids of stored sessions that begin so, sorted. No record is read, so broken ones are there too."""

    def load(self, session_id: str) -> S | None:
        """All of a stored session, not shared with another caller, or None."""

    def load_from(self, session_id: str, seq: int) -> Tail | None:
        """The stored events from `seq` on, or None where there is no such session. Nothing is repaired."""

    def revision(self, session_id: str) -> str | None:
        """The token that `load` would give now, without reading events."""

    def writer(self, session_id: str) -> str | None:
        """Who has the session open for writing, told without taking its lock; None for nobody."""

    def read_raw(self, session_id: str) -> RawLog | None:
        """The stored text, or None.

        Raises:
            RawLogUnsupported: this kind of storage keeps no text.
        """

    def figures(self, session_id: str) -> StorageFigures | None:
        """What the storage of one session consists of, or None."""

    def list(self) -> Listing:
        """Headers alone."""

    def open(self, session_id: str) -> S | None:
        """Take the owner lock, then load; None when nothing is stored."""

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store one batch, all or nothing; durable on return. The first one takes the header along."""

    def repair(self, stored: S, closers: Sequence[Entry], recovered: Sequence[Entry]) -> None:
        """Of an open log: drop the torn tail, if there is one, and add closers."""

    def rest(self, session_id: str) -> None:
        """Give the owner lock back until the next append."""

    def release(self, session_id: str) -> None:
        """Close an open log and give its owner lock back."""

    def delete(self, session_id: str, *, revision: str | None = None) -> bool:
        """Remove a stored session and what belongs to it, under its owner lock; False when there is none.

        Args:
            revision: what it has to be; None for whatever it is.

        Raises:
            SessionBusy: somebody writes it.
            SessionWritten: it has another revision; it stays.
            OSError: it is still there, or its log is and can be deleted again.
        """

    def sweep(self, before_ms: int) -> int:
        """Remove what killed processes left before then that belongs to no stored session.

        Answers how much that was; what cannot be removed stays.
        """

    def pack(self, session_id: str) -> Packed | None:
        """Store a session that nobody has open anew, in less space, under its owner lock; None without one.

        The events stay the same; the revision changes.

        Raises:
            SessionBusy: somebody writes it.
            PackingUnsupported: there is no such thing here.
            LogRefusal, OSError: it is as it was.
        """

    def close(self) -> None:
        """Release everything. Runs after the final drain."""
