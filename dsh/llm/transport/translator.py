"""What a wire format adds to an attempt: its events into chunks, and when a reply is complete."""

from typing import Any, Protocol

from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.transport.sse import SseEvent
from dsh.session.chunk import Chunk

MAX_READ_BYTES = 2000
MAX_SHOWN_CHARS = 120
"""How much of a payload a message shows (`spec/llm.md` §4.3)."""


class Failures(Protocol):
    """Puts what a server says into failures and messages, without keys."""

    def in_band(self, error: Any) -> LlmFailure:
        """The failure behind an error object that came within the stream."""

    def of_event(self, payload: bytes) -> LlmError:
        """The failure behind an event of type `error`: an error object, an `error` member, plain words."""

    def shown(self, text: str) -> str:
        """Foreign text as part of a message: one short line."""


def unreadable(failures: Failures, payload: bytes) -> LlmError:
    """The failure behind an event that is no event of its wire; the message shows its beginning."""
    shown = failures.shown(payload[:MAX_READ_BYTES].decode("utf-8", "replace"))[:MAX_SHOWN_CHARS]
    return LlmError.of("MALFORMED_RESPONSE", f"the stream holds an event that cannot be read: {shown!r}")


class Translator(Protocol):
    """The events of one reply into chunks. State: the open blocks, the last usage and finish reason.

    Closing chunks that have to wait for the end of the reply come from `finish`; a reply that breaks off
    leaves its blocks open.
    """

    @property
    def end_mark(self) -> str:
        """What ends a stream on this wire, for messages."""

    def push(self, name: bytes, payload: bytes, out: list[Chunk]) -> bool:
        """Translate one event, appending what it yields; True where it is the end of the stream.

        Raises:
            LlmError: `MALFORMED_RESPONSE`, or what the event itself reports.
        """

    def is_whole(self, tail: SseEvent | None, out: list[Chunk]) -> bool:
        """Whether the body may end here. `tail` lacks only its empty line to be an event.

        Raises:
            LlmError: what the tail reports.
        """

    def finish(self) -> list[Chunk]:
        """The chunks that close a complete reply, `Finish` last."""
