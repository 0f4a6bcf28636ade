"""What the model has been told: the instructions in the messages that it still sees."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dsh.session.log import Session
from dsh.session.message import Message

KIND = "agent-instructions"


class File(NamedTuple):
    """One file as it was told."""

    path: str
    digest: str | None
    """None where the message gives none."""


class Known:
    """The files that the model knows, as the messages before it leave them. A fold over messages."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.identity: str | None = None
        """Of the newest baseline; None where no baseline is visible."""
        self.files: dict[str, File] = {}
        """By scope."""
        for message in messages:
            self._take(message["source"])

    @property
    def root(self) -> str | None:
        """The project root that the baseline was made for, relative to the working directory."""
        try:
            found = json.loads(self.identity or "")
        except ValueError:
            return None
        root = found.get("projectRoot") if isinstance(found, dict) else None
        return root if isinstance(root, str) else None

    def without(self, scopes: Iterable[str]) -> "Known":
        """The same, and these files taken back."""
        made = Known()
        made.identity = self.identity
        gone = set(scopes)
        made.files = {scope: file for scope, file in self.files.items() if scope not in gone}
        return made

    def _take(self, source: Mapping[str, Any]) -> None:
        identity = source.get("baselineIdentity")
        if source.get("baseline") is True:
            self.identity = identity if isinstance(identity, str) else ""
        changes = source.get("changes")
        for change in changes if isinstance(changes, list | tuple) else ():
            scope = change.get("scope") if isinstance(change, Mapping) else None
            if not isinstance(scope, str):
                continue
            if change.get("action") == "remove":
                self.files.pop(scope, None)
            else:
                path, digest = change.get("path"), change.get("digest")
                self.files[scope] = File(
                    path if isinstance(path, str) else scope.replace("\0", "/"),
                    digest if isinstance(digest, str) else None,
                )


class Visible:
    """The messages of instructions on a session's surface. State: them, and how far the log was read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages: dict[int, Message] = {}
        self._next_seq = 0
        self._generation = 0

    def messages(self) -> list[Message]:
        """In model order. What was appended since is read, and what a replacement has taken away is gone."""
        session = self._session
        for event in session.select("user/message", start=self._next_seq):
            self._next_seq = event.seq + 1
            if is_instructions(event.data):
                self._messages[event.seq] = event.data
        if session.replace_generation != self._generation:
            self._generation = session.replace_generation
            seen = set(session.surface_nodes)
            self._messages = {seq: one for seq, one in self._messages.items() if seq in seen}
        return list(self._messages.values())


def is_instructions(message: Message) -> bool:
    return message["source"].get("kind") == KIND
