"""What the log says of the inbox: two lists of waiting messages, and whether a log did any work.

`next-turn` holds prompts that wait for a turn of their own, `next-step` input for the next step boundary.
A fork does not inherit what was pending in its parent, a resumed session does (`spec/session-log.md` §14).
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import Message
from dsh.session.value import safe_int

INBOX_SPLICED = "agent/inbox/spliced"
InboxTarget: TypeAlias = Literal["next-turn", "next-step"]


class InboxLists:
    """The two lists, as the splices of a log leave them."""

    def __init__(self) -> None:
        self.next_turn: list[Message] = []
        self.next_step: list[Message] = []
        self._ids: set[str] = set()

    def list_of(self, target: object) -> list[Message]:
        """The list behind a target name.

        Raises:
            InvalidEvent: there is no such list.
        """
        if target == "next-turn":
            return self.next_turn
        if target == "next-step":
            return self.next_step
        raise InvalidEvent(f"{INBOX_SPLICED}: target is next-turn or next-step, found {target!r:.60}")

    def check(self, data: Any) -> tuple[list[Message], int, int]:
        """The list, start and number of removed messages of a splice that fits these lists.

        Raises:
            InvalidEvent: it is out of range, or inserts an id that is pending already.
        """
        if not isinstance(data, dict):
            raise InvalidEvent(f"{INBOX_SPLICED}: data is an object")
        target = self.list_of(data.get("target"))
        start, removed = safe_int(data.get("start")), safe_int(data.get("removedCount", 0))
        inserted = data.get("inserted")
        if start is None or removed is None or not isinstance(inserted, list | tuple):
            raise InvalidEvent(f"{INBOX_SPLICED}: start and removedCount are integers, inserted is a list")
        if start < 0 or removed < 0 or start + removed > len(target):
            raise InvalidEvent(
                f"{INBOX_SPLICED}: {removed} from position {start} of {data['target']} is out of range, "
                f"it holds {len(target)}"
            )
        going = {message["id"] for message in target[start : start + removed]}
        fresh: set[str] = set()
        for message in inserted:
            message_id = message.get("id") if isinstance(message, dict) else None
            if type(message_id) is not str or not self._is_free(message_id, going, fresh):
                raise InvalidEvent(
                    f"{INBOX_SPLICED}: message id {message_id!r:.80} is missing or pending twice"
                )
            fresh.add(message_id)
        return target, start, removed

    def _is_free(self, message_id: str, going: set[str], fresh: set[str]) -> bool:
        return message_id not in fresh and (message_id in going or message_id not in self._ids)

    def apply(self, data: Any) -> None:
        """Carry out a splice.

        Raises:
            InvalidEvent: as `check`.
        """
        target, start, removed = self.check(data)
        self._ids.difference_update(message["id"] for message in target[start : start + removed])
        self._ids.update(message["id"] for message in data["inserted"])
        target[start : start + removed] = data["inserted"]


def fold_inbox(session: Session) -> InboxLists:
    """The pending messages of a session.

    Raises:
        InvalidEvent: a stored splice does not fit; the message names its seq.
    """
    lists = InboxLists()
    for event in session.select(INBOX_SPLICED, start=session.header.seed_length or 0):
        try:
            lists.apply(event.data)
        except InvalidEvent as error:
            raise InvalidEvent(f"event {event.seq}: {error.message}") from error
    return lists


_TAKEN_IN = ("request/header", "request/context", "request/digest", "assistant/chunk", "assistant/message")
"""Rows that a step writes once all its messages are in."""


def unentered(session: Session) -> list[tuple[InboxTarget, Message]]:
    """What the last turn had claimed for a step when the log was cut, and where it came from.

    Empty unless repair has closed that turn, and for what waits again already. A step that was cut among
    its messages counts as one that would have taken in the rest.

    Raises:
        InvalidEvent: a stored splice does not fit.
    """
    begun, end = session.last("turn/start"), session.last("turn/end")
    if begun is None or end is None or begun.seq > end.seq or end.data["reason"]["kind"] != "interrupted":
        return []
    first = session.header.seed_length or 0
    lists, out = InboxLists(), list[tuple[InboxTarget, Message]]()
    for event in session.select(INBOX_SPLICED, start=first):
        if event.seq > begun.seq:
            break
        lists.apply(event.data)
    for event in session.select(INBOX_SPLICED, "user/message", *_TAKEN_IN, start=begun.seq):
        if event.type in _TAKEN_IN:
            out = []
        elif event.type == "user/message":
            out = [(target, message) for target, message in out if message["id"] != event.data["id"]]
        elif event.seq >= first:
            out = _follow(out, lists, event.data)
    return out


def _follow(
    out: list[tuple[InboxTarget, Message]], lists: InboxLists, data: Any
) -> list[tuple[InboxTarget, Message]]:
    """Carry out a splice; what it claims is out, what it inserts is out no more."""
    there, start, removed = lists.check(data)
    target: InboxTarget = data["target"]
    if "outcome" not in data:
        out = [*out, *((target, message) for message in there[start : start + removed])]
    lists.apply(data)
    back = {message["id"] for message in data["inserted"]}
    return [(source, message) for source, message in out if message["id"] not in back]


class ConsumedWork(Struct, frozen=True):
    """Whether a log did anything."""

    end: SessionEvent | None
    """The end of the last turn that did work: it entered a step, or took input and did not complete."""
    dropped_unrun: bool
    """Input was cancelled after that turn, and nothing took its place."""


def consumed_work(session: Session, start: int = 0) -> ConsumedWork:
    """Fold the events from seq `start` on into what they did."""
    end: SessionEvent | None = None
    dropped = stepped = claimed = in_turn = False
    for event in session.select("turn/start", "step/start", "turn/end", INBOX_SPLICED, start=start):
        match event.type:
            case "turn/start":
                in_turn, stepped, claimed = True, False, False
            case "step/start":
                stepped = True
            case "turn/end":
                if stepped or (claimed and event.data["reason"]["kind"] != "completed"):
                    end, dropped = event, False
                in_turn = stepped = claimed = False
            case _ if isinstance(event.data, dict):
                if event.data.get("outcome") == "canceled":
                    dropped = dropped or not event.data.get("inserted")
                elif in_turn and event.data.get("removedCount"):
                    claimed = True
    return ConsumedWork(end, dropped)
