"""Where the parts of a YAML text stand: a light tree of its events, for changing the text in place.

Positions are offsets in characters. What a value means is the business of `yaml.py`; the order
of keys and items is the same in both.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from dsh.composition.text.source import MAX_SLOW_CHARACTERS

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PROPERTY = re.compile(r"(?:[&!][^\s]*[ \t\r\n]*)*")
_TRAILING = " \t\r\n"


@dataclass
class Node:
    """One value as it is written: `text[start:end]` holds it, its tag and anchor included."""

    kind: Literal["scalar", "alias", "map", "seq"]
    start: int
    end: int = 0
    """After the last character of content: no line end, no comment behind it."""
    style: str = ""
    """Of a scalar: its quote, `|` or `>`; empty for a plain one."""
    is_flow: bool = False
    """Of a collection: written in brackets."""
    keys: list["Node"] = field(default_factory=list)
    items: list["Node"] = field(default_factory=list)
    """The values of a map, in the order of its keys, or the items of a list."""
    marks: list[int] = field(default_factory=list)
    """For each item the offset of its `:` or `-`; -1 where there is none (`{a}`, items of `[…]`)."""

    @property
    def is_block(self) -> bool:
        """A collection over lines of its own, told by indentation."""
        return self.kind in ("map", "seq") and not self.is_flow

    def first(self, index: int) -> int:
        """Where an item begins, with its key or dash."""
        if self.kind == "map":
            return self.keys[index].start
        return self.marks[index] if self.marks[index] >= 0 else self.items[index].start


def parse_syntax(text: str) -> Node | None:
    """The tree of a text's only document; None where it holds no value.

    Raises:
        ValueError: the parser refuses it, or it is too long for the slow one, which keeps the positions.
    """
    if len(text) > MAX_SLOW_CHARACTERS:
        raise ValueError(f"it holds more than {MAX_SLOW_CHARACTERS} characters")
    try:
        events = [event for event in YAML(typ="safe", pure=True).parse(text) if _is_content(event)]
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not events or (isinstance(events[0], ScalarEvent) and _is_empty(events[0])):
        return None
    events.reverse()
    return _Builder(text, events).node(0)


def _is_content(event: Any) -> bool:
    kinds = (
        AliasEvent,
        ScalarEvent,
        MappingStartEvent,
        MappingEndEvent,
        SequenceStartEvent,
        SequenceEndEvent,
    )
    return isinstance(event, kinds)


def _is_empty(event: Any) -> bool:
    return bool(event.start_mark.index == event.end_mark.index)


class _Builder:
    """Makes nodes of events, which are taken from the end of the list."""

    def __init__(self, text: str, events: list[Any]) -> None:
        self._text = text
        self._events = events

    def node(self, earliest: int) -> Node:
        """The next value. `earliest` is where one that is not written out (a null) is said to stand."""
        event = self._events.pop()
        start = event.start_mark.index
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            return self._collection(event, start)
        if isinstance(event, AliasEvent):
            return Node("alias", start, event.end_mark.index)
        if _is_empty(event):
            return Node("scalar", earliest, earliest)
        style = event.style or ""
        return Node("scalar", start, self._scalar_end(start, event.end_mark.index, style), style)

    def _scalar_end(self, start: int, end: int, style: str) -> int:
        written = self._text[start:end]
        if style in ("|", ">") and "+" in written.split("\n", 1)[0]:
            return end - 1 if written.endswith("\n") else end
        return start + len(written.rstrip(_TRAILING)) if not style or style in ("|", ">") else end

    def _collection(self, event: Any, start: int) -> Node:
        is_map = isinstance(event, MappingStartEvent)
        made = Node("map" if is_map else "seq", start, is_flow=bool(event.flow_style))
        position = event.end_mark.index if made.is_flow else _after(_PROPERTY, self._text, start)
        while not isinstance(self._events[-1], MappingEndEvent | SequenceEndEvent):
            if is_map:
                made.keys.append(self.node(position))
                position = made.keys[-1].end
            mark = self._indicator(position, ":" if is_map else "-") if is_map or made.is_block else -1
            made.marks.append(mark)
            made.items.append(self.node(mark + 1 if mark >= 0 else position))
            position = made.items[-1].end
        closing = self._events.pop()
        made.end = closing.end_mark.index if made.is_flow else position
        return made

    def _indicator(self, position: int, char: str) -> int:
        at = _after(_BLANK, self._text, position)
        return at if self._text[at : at + 1] == char else -1


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position
