"""The list of skills that the model is told of, and whether it has been told of this one.

Each list is a message of source kind `skill-catalog` that replaces all earlier ones. What counts is what the
model still sees: a summary that took a list's place makes it due again (`spec/capabilities-more.md` §3).
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from dsh.capabilities.retention import size_of
from dsh.capabilities.skills import Skill
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from dsh.session.value import encode
from dsh.unicode import valid

KIND = "skill-catalog"
ELLIPSIS = "..."
SHORTEST = 60
"""Descriptions are not cut below so many characters to make room for more skills."""
INTRO = "Skills are instructions for kinds of tasks. These are available in this session:"
UPDATE = (
    "The skills of this session have changed. This list replaces every earlier one; what is not in it is no "
    "longer available:"
)
EMPTY = "The skills of this session have changed: none is available any more. Earlier lists do not count."
RULES = (
    "The list has summaries only. When the person names a skill, or the task fits one's description, call "
    "the tool `skill` with its exact name before you act on the task. Load every one that applies, and "
    "follow what it says.\n"
    "A person may also call up a skill directly; its <skill_content> block then stands in the conversation: "
    "follow it, and do not call `skill` for it again."
)

Entry = dict[str, str]


class Catalogue(NamedTuple):
    """The skills that fit into a list."""

    entries: Sequence[Entry]
    left_out: int = 0
    """For how many more there was no room."""

    def message(self, *, is_update: bool) -> Message:
        source: dict[str, Any] = {"kind": KIND, "form": "catalog"}
        if is_update:
            source["update"] = True
        return user_message(self._text(is_update), source | {"entries": list(self.entries)})

    def _text(self, is_update: bool) -> str:
        if not self.entries and not self.left_out:
            return f"<system-reminder>\n{EMPTY}\n</system-reminder>"
        lines = [_line(entry) for entry in self.entries]
        if self.left_out:
            lines.append(f"({self.left_out} more skills are not listed: there is no room for them.)")
        return "\n".join(
            [
                "<system-reminder>",
                UPDATE if is_update else INTRO,
                "",
                "<available_skills>",
                *lines,
                "</available_skills>",
                "",
                RULES,
                "</system-reminder>",
            ]
        )


def catalogue_of(skills: Iterable[Skill], *, max_description: int, max_bytes: int) -> Catalogue:
    """What is told of these skills: those that the model may load, shortened until they fit.

    Args:
        max_description: of each, in characters; 3 or more.
        max_bytes: of all lines.
    """
    for_model = [skill for skill in skills if skill.for_model]
    longest = max_description
    while True:
        entries = [{"name": skill.name, "description": _described(skill, longest)} for skill in for_model]
        if sum(map(_size, entries)) <= max_bytes:
            return Catalogue(entries)
        if longest <= SHORTEST:
            break
        longest = max(longest // 2, SHORTEST)
    left, fitting = max_bytes, list[Entry]()
    for entry in entries:
        left -= _size(entry)
        if left < 0:
            break
        fitting.append(entry)
    return Catalogue(fitting, len(entries) - len(fitting))


def digest_of(entries: Sequence[Any]) -> str:
    """Names equal lists, wherever they come from."""
    plain = [[entry["name"], entry["description"]] for entry in entries]
    return hashlib.sha256(encode(plain)).hexdigest()


class Told:
    """The newest list that the model sees. State: the list, its place, and how far the log was read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lists: dict[int, Message] = {}
        self._next_seq = 0
        self._generation = 0

    def entries(self) -> Sequence[Any] | None:
        """Of that list, None where the model sees none."""
        session = self._session
        for event in session.select("user/message", start=self._next_seq):
            self._next_seq = event.seq + 1
            if event.data["source"].get("kind") == KIND:
                self._lists[event.seq] = event.data
        if session.replace_generation != self._generation:
            self._generation = session.replace_generation
            seen = set(session.surface_nodes)
            self._lists = {seq: one for seq, one in self._lists.items() if seq in seen}
        if not self._lists:
            return None
        entries: Sequence[Any] = self._lists[max(self._lists)]["source"]["entries"]
        return entries


def due(told: Told, now: Catalogue) -> Message | None:
    """The message that makes this list known; None where it is known, or is the first and empty."""
    before = told.entries()
    if before is None:
        return now.message(is_update=False) if now.entries else None
    return None if digest_of(before) == digest_of(now.entries) else now.message(is_update=True)


def _described(skill: Skill, longest: int) -> str:
    text = " ".join(skill.description.split())
    if skill.when_to_use:
        text = f"{text} (When to use: {' '.join(skill.when_to_use.split())})"
    text = valid(text)
    return text if len(text) <= longest else text[: longest - len(ELLIPSIS)] + ELLIPSIS


def _line(entry: Entry) -> str:
    return f"- `{escape(entry['name'])}`: {escape(entry['description'])}"


def _size(entry: Entry) -> int:
    return size_of(_line(entry)) + 1
