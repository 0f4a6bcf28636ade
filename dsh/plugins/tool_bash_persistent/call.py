"""The output of one call while it comes in: its beginning is kept, its end looked for."""

from typing import Literal

import msgspec

from dsh.capabilities.subprocess import Captured, CollectedStream
from dsh.capabilities.terminal_text import shown
from dsh.plugins.tool_bash_persistent.protocol import MARKER_BYTES, Found, end_in, start_of

Outcome = Literal["completed", "exited", "timed-out", "waiting"]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to."""

    outcome: Outcome
    text: str
    clipped_bytes: int = 0
    """Printed after `text` and left out."""
    is_lost: bool = False
    """Some output came faster than it could be read."""
    exit_code: int | None = None
    signal: str | None = None
    is_over: bool = False
    """The shell is gone; the next call needs a new one."""


class Call:
    """Reads a terminal's output from where it stands now."""

    def __init__(self, output: CollectedStream, max_bytes: int, nonce: str, shell_nonce: str) -> None:
        self.nonce = nonce
        self.offset = output.read().next_offset
        self.is_started = False
        self.is_silent = True
        """The last look found nothing new."""
        self.end: Found | None = None
        self._output = output
        self._shell_nonce = shell_nonce
        self._max_bytes = max_bytes
        self._window = bytearray()
        """What came in last and may hold the beginning of a marker."""
        self._kept = bytearray()
        self._clipped = 0
        self._is_lost = False

    def take(self) -> bool:
        """Take in what is new; False if nothing is."""
        captured = self._output.read_from(self.offset)
        self.offset = captured.next_offset
        self.is_silent = not captured.raw
        if self.is_silent:
            return False
        self._is_lost = self._is_lost or (captured.lossy and self.is_started)
        self._window += captured.raw
        if not self.is_started:
            start = start_of(self._window, self.nonce)
            if start is None and not captured.lossy:
                del self._window[:-MARKER_BYTES]
                return True
            self.is_started = True
            del self._window[: start or 0]
            self._is_lost = start is None
        self.end = end_in(self._window, self.nonce, self._shell_nonce)
        self._keep(self.end.at if self.end is not None else len(self._window) - MARKER_BYTES)
        return True

    def _keep(self, count: int) -> None:
        """Let so many bytes of the window go to what is kept."""
        if count <= 0:
            return
        room = max(0, min(count, self._max_bytes - len(self._kept)))
        self._kept += self._window[:room]
        self._clipped += count - room
        del self._window[:count]

    def ran(
        self,
        outcome: Outcome,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        is_over: bool = False,
    ) -> Ran:
        """What there is of it."""
        if self.end is None and self.is_started:
            self._keep(len(self._window))
        raw = bytes(self._kept)
        text = raw.decode("utf-8", "ignore" if self._clipped else "replace")
        return Ran(
            outcome=outcome,
            text=shown(Captured(text, raw, len(raw), lossy=False, spill_path=None)),
            clipped_bytes=self._clipped,
            is_lost=self._is_lost,
            exit_code=exit_code,
            signal=signal,
            is_over=is_over,
        )
