"""What a conversation consists of when a person reads it. Show, Markdown and HTML all draw these.

All texts are as the log has them; whoever draws them cleans them for where they go.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from dsh.session.value import JsonObject


class Words(Struct, frozen=True):
    """A block of a message that is no call."""

    text: str
    kind: Literal["text", "reasoning", "other"] = "text"
    """`other` is an image, or a block of a kind we do not know, in a few words."""


class Result(Struct):
    """The answer to a call, as it was when the tool gave it."""

    texts: tuple[str, ...]
    """One for each block."""
    time: int
    """Epoch milliseconds."""
    is_error: bool = False
    code: str = ""
    """Code of the failure, where one is recorded."""
    is_made_up: bool = False
    """Repair wrote it: the session ended before the tool did."""
    is_replaced: bool = False
    """The model sees something else in its place by now."""


class Note(Struct, frozen=True):
    """Something that happened beside the messages."""

    time: int
    kind: str
    """The event type."""
    text: str
    """One line."""
    detail: str = ""
    """More lines."""
    is_error: bool = False


class Call(Struct):
    """A tool call of the model with its result."""

    id: str
    name: str
    arguments: str
    """Raw text of the model, possibly no JSON."""
    started_ms: int | None = None
    """When it was recorded as started, in epoch milliseconds."""
    result: Result | None = None
    notes: list[Note] = []
    """Approvals, hooks and calls made from code that belong to it."""
    is_fragment: bool = False
    """The reply was cut off in it: it was never made."""

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None where it did not start or end. Never below zero."""
        if self.started_ms is None or self.result is None or self.result.is_made_up:
            return None
        return max(self.result.time - self.started_ms, 0)


Part: TypeAlias = Words | Call


class Said(Struct):
    """A message to the model: the user's, or one that a plugin or another session put in."""

    time: int
    seq: int | None
    """Of its event; None where it entered no step."""
    who: str
    texts: tuple[str, ...]
    """One for each block."""
    is_users: bool
    is_replaced: bool = False
    is_summary: bool = False
    """It stands in the place of messages that the model no longer sees."""
    fate: str = ""
    """What became of a message that entered no step, in words."""


class Reply(Struct):
    """A reply of the model, with the results of its calls."""

    time: int
    seq: int
    turn: int
    step: int
    route: str
    """`provider/model`."""
    parts: tuple[Part, ...]
    usage: JsonObject | None = None
    duration_ms: int | None = None
    """From the beginning of the step or the retry to the complete message."""
    is_cut: bool = False
    """The user broke it off while it was streamed."""
    is_replaced: bool = False


class Lost(Struct, frozen=True):
    """What was streamed of an attempt that ended without a message; the model never sees it."""

    time: int
    parts: tuple[Part, ...]


class Pieces(Struct, frozen=True):
    """Pieces of one block of a streamed reply, in their order; the lists are the log's own."""

    kind: str
    """`text`, `reasoning`, `tool-call`, or the type of a piece that is no delta."""
    index: int
    """Of the block."""
    began: int
    """When the step or the retry began, in epoch milliseconds."""
    time0: int
    """When the first piece came, in epoch milliseconds."""
    dt: Sequence[int]
    """Milliseconds from each piece to the next."""
    texts: Sequence[str]

    def timed(self) -> Iterator[tuple[int, str]]:
        """Each text with the milliseconds since the beginning, never below zero."""
        time = self.time0
        for position, text in enumerate(self.texts):
            yield max(time - self.began, 0), text
            if position < len(self.dt):
                time += self.dt[position]


class TurnStart(Struct, frozen=True):
    """A turn begins."""

    time: int
    turn: int


class TurnEnd(Struct, frozen=True):
    """A turn ends."""

    time: int
    turn: int
    reason: str
    """In words."""
    is_failure: bool
    steps: int
    duration_ms: int
    is_made_up: bool = False
    """It is not stored: it is how the log is closed when it is opened."""


Item: TypeAlias = TurnStart | Said | Reply | Call | Lost | Note | Pieces | TurnEnd
