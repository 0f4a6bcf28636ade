"""What becomes of a text that is to be a title, and which texts of a log may."""

import re

from dsh.session.message import Message
from dsh.unicode import valid

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
