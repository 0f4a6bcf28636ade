"""The prompts of live sessions that titles are made of, read from each log once."""

from weakref import WeakKeyDictionary

from dsh.capabilities.titles import Route, TitlePrompt
from dsh.plugins.session_title.text import visible_text
from dsh.session.log import Session


class Prompts:
    """State: for each session its eligible prompts, and how far the log was read for them."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Session, tuple[int, list[TitlePrompt]]] = WeakKeyDictionary()

    def of(self, session: Session) -> list[TitlePrompt]:
        """The person's messages with visible text, in the order of the log. Not to be changed."""
        start, prompts = self._known.get(session, (0, []))
        for event in session.select("user/message", start=start):
            text = visible_text(event.data)
            if text is not None and event.surface == "append":  # a prompt that was cut is no new one
                prompts.append(TitlePrompt(event.seq, text))
        self._known[session] = session.length, prompts
        return prompts


def route_of(session: Session) -> Route | None:
    """What the session runs on, by its last request header."""
    header = session.request_header
    return None if header is None else Route(header["config"]["provider"], header["config"]["model"])


def is_pinned(session: Session) -> bool:
    """Whether the title is a person's own, which only an explicit refresh replaces."""
    last = session.last("session/title")
    if last is None or not isinstance(last.data, dict):
        return False
    source = last.data.get("source")
    return isinstance(source, dict) and source.get("kind") == "user"


def current_title(session: Session) -> str | None:
    """The last title that was written."""
    last = session.last("session/title")
    title = last.data.get("title") if last is not None and isinstance(last.data, dict) else None
    return title if isinstance(title, str) else None
