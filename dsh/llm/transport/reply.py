"""What translators of every wire need while a reply arrives."""

import uuid

MAX_SHARED_CHARS = 24
MAX_SHARED_TEXTS = 4096


def new_call_id() -> str:
    """An id for a tool call whose server gave none, or one that it had given before."""
    return f"call_{uuid.uuid4().hex[:24]}"


class SharedTexts:
    """One string for equal short deltas, of which a long reply has many: the log keeps every one."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of(self, text: str) -> str:
        """The text itself, or the equal one that came before."""
        if len(text) > MAX_SHARED_CHARS:
            return text
        if len(self._texts) >= MAX_SHARED_TEXTS:
            self._texts.clear()
        return self._texts.setdefault(text, text)
