"""What the coordinator asks of a place that stores logs (`spec/persistence.md` §3), and what it answers.

Everything here is synchronous and runs in the coordinator's one worker thread.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from dsh.persistence.reader import StoredLog
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader


class StoredSession(msgspec.Struct, frozen=True):
    """One line of a listing."""

    header: SessionHeader
    path: Path
    revision: str
    """Opaque; compare for equality only."""


class StoredProblem(msgspec.Struct, frozen=True):
    """Something under the root that cannot be listed. It hides nothing else."""

    path: Path
    reason: str


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


class Backend(Protocol):
    """One kind of storage. A log is open for writing from `open` or its first `append` to `release`."""

    @property
    def name(self) -> str:
        """For messages."""

    def locate(self, header: SessionHeader) -> Path | None:
        """Where the log is or would be. No I/O."""

    def is_taken(self, header: SessionHeader) -> bool:
        """Whether a log lies where this one would. Cheap enough for the event loop."""

    def find(self, session_id: str) -> Path | None:
        """Where a log is stored, or None. Looks at names only."""

    def load(self, session_id: str) -> StoredLog | None:
        """All of a stored log, not shared with another caller, or None."""

    def revision(self, session_id: str) -> str | None:
        """The token that `load` would give now, without reading events."""

    def read_raw(self, session_id: str) -> RawLog | None:
        """The stored text, or None."""

    def open(self, session_id: str) -> StoredLog | None:
        """Take the owner lock, then load; None when nothing is stored."""

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store one batch, all or nothing; durable on return. The first one takes the header along."""

    def repair(self, stored: StoredLog, closers: Sequence[Entry], recovered: Sequence[Entry]) -> None:
        """Of an open log: drop the torn tail, if there is one, and add closers."""

    def rest(self, session_id: str) -> None:
        """Give the owner lock back until the next append."""

    def release(self, session_id: str) -> None:
        """Close an open log and give its owner lock back."""

    def list(self) -> Listing:
        """Headers alone."""

    def close(self) -> None:
        """Release everything. Runs after the final drain."""
