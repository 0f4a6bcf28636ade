"""What the way to a provider remembers of one conversation, so that a request costs what is new in it.

A request begins, as a rule, with the very messages of the one before. Whoever turns messages into something
else keeps what came of them here: messages are immutable.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dsh.session.message import Message

S = TypeVar("S")


class Memo:
    """One conversation's memory; it ends with the conversation. State: one object for each that remembers."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @property
    def size(self) -> int:
        """How many remember something here."""
        return len(self._kept)

    def of(self, owner: object, make: Callable[[], S]) -> S:
        """What `owner` keeps here; made where it keeps nothing yet. It goes when its owner goes."""
        kept: S | None = self._kept.get(owner)
        if kept is None:
            kept = self._kept[owner] = make()
        return kept


class Seen:
    """The messages that were dealt with last. State: just these."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()

    def count(self, messages: tuple[Message, ...]) -> int:
        """How many there are, if all of them are the first of these; 0 where it is another history."""
        known = self._messages
        return len(known) if known == messages[: len(known)] else 0  # compares objects before contents

    def note(self, messages: tuple[Message, ...]) -> None:
        """All of these have been dealt with."""
        self._messages = messages
