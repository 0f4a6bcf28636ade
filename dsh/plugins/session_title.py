"""Row `session-title`: names a session after the first words of its first prompt.

The row is written once, one tick of the event loop after the prompt entered the log, and never when the
session has a title already (`spec/persistence.md` §10).
"""

import asyncio
import re

import msgspec

from dsh.capabilities.bounds import Amount
from dsh.errors import CompositionError
from dsh.kernel import Context, ServiceKey
from dsh.session.error import SessionError
from dsh.session.log import Session
from dsh.session.message import Message
from dsh.session.store import SESSION_EVENT, SESSIONS, Appended
from dsh.unicode import valid

inject = [SESSIONS]
TITLES: ServiceKey["Titles"] = ServiceKey("sessionTitle")
"""Provided so that there is one: a session has one title, and the first to write it wins."""

provide = [TITLES]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; all are required."""

    fallback_max_words: Amount
    """Words of the prompt that make up the title."""
    fallback_max_bytes: Amount
    """UTF-8 bytes of such a title at most; not more than `maxTitleBytes`."""
    max_title_bytes: Amount
    """UTF-8 bytes of any title at most."""


_INVISIBLE = re.compile(
    "(?:\x1b\\]|\x9d).*?(?:\x07|\x1b\\\\|\\Z)"  # operating system commands
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences
    "|\x1b[@-_]"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    "|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]",
    re.DOTALL,
)


def normalise_title(text: str, max_bytes: int) -> str:
    """One line without terminal sequences or invisible marks, cut to `max_bytes` between characters."""
    line = " ".join(_INVISIBLE.sub("", valid(text)).split())
    return line.encode()[:max_bytes].decode(errors="ignore").rstrip()


def fallback_title(text: str, *, max_words: int, max_bytes: int) -> str:
    """The title that a prompt gives by itself; empty when nothing of it can be shown."""
    words = _INVISIBLE.sub("", valid(text)).split()
    return normalise_title(" ".join(words[:max_words]), max_bytes)


def visible_text(message: Message) -> str | None:
    """The text of a person's message, its blocks on lines of their own; None for anybody else's."""
    if message["source"].get("kind") != "user":
        return None
    lines = [block["text"] for block in message["content"] if block["type"] == "text"]
    return "\n".join(lines) if any(lines) else None


class Titles:
    """Writes fallback titles. Remembers the sessions for which one is about to be written."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._config = config
        self._due: set[str] = set()

    def on_event(self, appended: Appended) -> None:
        event = appended.event
        if event is None or event.type != "user/message":
            return
        session = appended.session
        if session.id in self._due or session.last("session/title") is not None:
            return
        if visible_text(event.data) is not None:
            self._due.add(session.id)
            asyncio.get_running_loop().call_soon(self._write, session)

    def _write(self, session: Session) -> None:
        self._due.discard(session.id)
        if self._ctx.get(SESSIONS) is None or session.last("session/title") is not None:
            return
        for event in session.select("user/message"):
            text = visible_text(event.data)
            if text is not None:
                break
        else:
            return
        title = fallback_title(
            text, max_words=self._config.fallback_max_words, max_bytes=self._config.fallback_max_bytes
        )
        if not title:
            return
        data = {"title": title, "messageSeqs": [event.seq], "source": {"kind": "fallback"}}
        try:
            session.append("session/title", data)
        except SessionError as error:
            self._ctx.logger.warning("session %s gets no title: %s", session.id, error)


def apply(ctx: Context, config: Config) -> None:
    if config.fallback_max_bytes > config.max_title_bytes:
        raise CompositionError(
            f"fallbackMaxBytes {config.fallback_max_bytes} is more than "
            f"maxTitleBytes {config.max_title_bytes}"
        )
    titles = Titles(ctx, config)
    ctx.provide(TITLES, titles)
    ctx.on(SESSION_EVENT, titles.on_event)
