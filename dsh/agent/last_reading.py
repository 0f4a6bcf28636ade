"""Snapshots by which rows tell the model of what changes: the last one counts while the model sees it."""

from weakref import WeakKeyDictionary

from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import Message, user_message


def reading(plugin: str, text: str) -> Message:
    """A snapshot of one section, which has the name of the row."""
    sections = [{"name": plugin, "text": text}]
    return user_message(text, {"kind": "plugin", "plugin": plugin, "form": "snapshot", "sections": sections})


class LastReading:
    """State: for each live session, how far its log was read and which event was the last one found."""

    def __init__(self, plugin: str) -> None:
        """`plugin` is what the sources of the row's messages say."""
        self._plugin = plugin
        self._found: WeakKeyDictionary[Session, _Place] = WeakKeyDictionary()

    def of(self, session: Session) -> SessionEvent | None:
        """The event, None where the model sees none: never, or not any more."""
        place = self._found.setdefault(session, _Place())
        for event in session.select("user/message", start=place.next_seq):
            place.next_seq = event.seq + 1
            source = event.data["source"]
            if (source.get("kind"), source.get("plugin")) == ("plugin", self._plugin):
                place.last = event
        if session.replace_generation != place.generation:
            place.generation = session.replace_generation
            if place.last is not None and place.last.seq not in session.surface_nodes:
                place.last = None
        return place.last


def is_fresh(last: SessionEvent | None, now_ms: int, interval_ms: int) -> bool:
    """Whether the last reading is not older than the interval; one from the future is."""
    return last is not None and 0 <= now_ms - last.time < interval_ms


class _Place:
    def __init__(self) -> None:
        self.next_seq = 0
        self.generation = 0
        self.last: SessionEvent | None = None


def section_of(event: SessionEvent | None, name: str) -> str | None:
    """The text of one section of a snapshot."""
    sections = None if event is None else event.data["source"].get("sections")
    for section in sections or ():
        if section.get("name") == name:
            text: str = section["text"]
            return text
    return None
