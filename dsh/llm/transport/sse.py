"""Server-sent events from bytes: the splitter of every streamed reply.

Lines end with LF, CRLF or CR and with nothing else: `str.splitlines` would also break at U+2028 and its
like, which JSON text may hold. Everything stays bytes, so a character split over two reads is no matter.

Source: WHATWG HTML, "Server-sent events", parsing an event stream.
"""

from dsh.llm.failure import LlmError

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""The most that one unfinished event may hold: memory stays bounded whatever a server sends."""

_BOM = b"\xef\xbb\xbf"

SseEvent = tuple[bytes, bytes]
"""Event name (empty where none was given) and data."""


class SseParser:
    """Turns pieces of a body, cut anywhere, into events. Comments and unknown fields are dropped."""

    __slots__ = ("_after_cr", "_data", "_head", "_held", "_name", "_pieces")

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The first bytes, until it is clear whether they are a byte-order mark."""
        self._after_cr = False
        self._pieces: list[bytes] = []
        """Parts of a line that has not ended."""
        self._data: list[bytes] = []
        self._name = b""
        self._held = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this piece of the body completes.

        Raises:
            LlmError: `MALFORMED_RESPONSE`, one event outgrows `MAX_EVENT_BYTES`.
        """
        if self._head is not None:
            chunk = self._without_mark(chunk)
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        out: list[SseEvent] = []
        if self._pieces or self._data or self._name:
            chunk = self._close_open(chunk, out)
        blocks = chunk.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                out.append((b"", block[6:]))
            else:
                self._block(block, out)
        if rest:
            self._hold(rest)
        return out

    def end(self) -> SseEvent | None:
        """At the end of the body: what an event lacked only its empty line to be, if anything."""
        if self._head:
            self._hold(self._head)
        if self._pieces:
            self._field(b"".join(self._pieces))
            self._pieces.clear()
        out: list[SseEvent] = []
        self._dispatch(out)
        return out[0] if out else None

    def _without_mark(self, chunk: bytes) -> bytes:
        head = (self._head or b"") + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _close_open(self, chunk: bytes, out: list[SseEvent]) -> bytes:
        """Complete the event that is open; what comes after it is returned."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            start = end + 1
            if self._pieces:
                line = b"".join(self._pieces) + line
                self._pieces.clear()
            if not line:
                self._dispatch(out)
                return chunk[start:]
            self._field(line)
        self._hold_piece(chunk[start:])
        return b""

    def _block(self, block: bytes, out: list[SseEvent]) -> None:
        for line in block.split(b"\n"):
            if line:
                self._field(line)
            else:
                self._dispatch(out)
        self._dispatch(out)

    def _hold(self, rest: bytes) -> None:
        *lines, last = rest.split(b"\n")
        for line in lines:
            if line:
                self._field(line)
        self._hold_piece(last)

    def _hold_piece(self, piece: bytes) -> None:
        if not piece:
            return
        self._count(len(piece))
        self._pieces.append(piece)

    def _count(self, size: int) -> None:
        self._held += size
        if self._held > 2 * MAX_EVENT_BYTES:  # a line may be counted once as pieces and once when it ends
            raise LlmError.of(
                "MALFORMED_RESPONSE", f"one event of the stream is larger than {MAX_EVENT_BYTES} bytes"
            )

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._count(len(value))
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._name = value.removeprefix(b" ")

    def _dispatch(self, out: list[SseEvent]) -> None:
        if self._data:
            out.append((self._name, b"\n".join(self._data)))
            self._data = []
        self._name = b""
        self._held = 0
