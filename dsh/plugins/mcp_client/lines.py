"""Standard output of a server as lines: one message each, and whatever else it prints."""

from collections.abc import Iterator

from dsh.tools.error import ToolError

MAX_LINE_BYTES = 16 << 20
"""A longer message ends the connection; a longer line of anything else is dropped."""


class LineTooLong(ToolError):
    """The server sends a message that is larger than is kept in memory."""


class Lines:
    """Cuts a stream of bytes at line feeds. State: the line that has begun, or that it is being dropped."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete with this piece, without their ends; of a dropped one, its beginning.

        Raises:
            LineTooLong: a line that looks like a message outgrows the limit.
        """
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            line = b"".join(self._parts)
            self._parts, self._size, self._is_dropping = [], 0, False
            if line := line.strip():
                yield line
        self._add(rest)

    def end(self) -> bytes:
        """What came after the last line feed."""
        return b"".join(self._parts).strip()

    def _add(self, piece: bytes) -> None:
        if not piece or self._is_dropping:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            begun = b"".join(self._parts)[:1_000]
            if begun.lstrip().startswith(b"{"):
                raise LineTooLong(f"it sent a message of more than {self._limit} bytes")
            self._parts, self._is_dropping = [begun], True
