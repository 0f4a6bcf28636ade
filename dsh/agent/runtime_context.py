"""Facts that change while a session runs, told at the tail of the history so that its head stays the same.

A snapshot is one user message; a later one supersedes it. It is sent again when its text has changed or
when the message that carried it has left the surface (`spec/agent-loop.md` §6).
"""

from collections.abc import Sequence
from typing import Any

from dsh.agent.prompt import RUNTIME_CONTEXT_OWNER, PromptSection
from dsh.session.log import Session
from dsh.session.message import Message, user_message

PREAMBLE = "Runtime context as it is now. This snapshot replaces every earlier one in this conversation."
CLEARED = "Runtime context: none applies any more. Disregard the earlier snapshots in this conversation."


class RuntimeContext:
    """Remembers which snapshot the model has before it: its seq and text, as far as it still counts."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = session.replace_generation
        self._seq: int | None = None
        self._text: str | None = None
        self._ever = False
        for seq in reversed(session.surface_nodes):
            event = session.event(seq)
            if event.type == "user/message" and _is_ours(event.data):
                self.entered(seq, event.data)
                break

    def entered(self, seq: int, message: Message) -> None:
        """A user message joined the surface at `seq`."""
        if _is_ours(message):
            self._ever, self._seq, self._text = True, seq, _text_of(message)

    def project(self, sections: Sequence[PromptSection]) -> Message | None:
        """The snapshot that has to go out now, if any. Nothing is remembered until it has `entered`."""
        self._follow_replacements()
        text = "\n\n".join((PREAMBLE, *(s.text for s in sections if s.text)))
        if not any(s.text for s in sections):
            if not self._ever:
                return None
            text = CLEARED
        if text == self._text:
            return None
        source: dict[str, Any] = {"kind": "plugin", "plugin": RUNTIME_CONTEXT_OWNER}
        if text != CLEARED:
            source["form"] = "snapshot"
            source["sections"] = [{"name": s.name, "text": s.text} for s in sections if s.text]
        return user_message(text, source)

    def _follow_replacements(self) -> None:
        generation = self._session.replace_generation
        if generation != self._generation:
            self._generation = generation
            if self._seq not in self._session.surface_nodes:
                self._seq = self._text = None


def _is_ours(message: Message) -> bool:
    source = message["source"]
    return source.get("kind") == "plugin" and source.get("plugin") == RUNTIME_CONTEXT_OWNER


def _text_of(message: Message) -> str | None:
    content = message["content"]
    if len(content) == 1 and content[0]["type"] == "text":
        return content[0]["text"]
    return None
