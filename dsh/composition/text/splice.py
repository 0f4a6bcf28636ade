"""One change in a YAML text: a value replaced, a key or item put in or taken out, the rest byte for byte.

Knows layout only. Whether the result reads as meant, the caller finds out by reading it.
"""

import re
from typing import Any

from dsh.composition.text.render import (
    Layout,
    block,
    entry,
    inline,
    is_block,
    item,
    scalar,
    text,
    under_key,
)
from dsh.composition.text.syntax import Node

_NOTE = re.compile(r"(?:[ \t]+#[^\n]*|[ \t]*)(?=\r?\n|\Z)")
"""What may follow a value on its line."""


class Splicer:
    """Holds one text and its tree; each method answers the text that a change makes of it."""

    def __init__(self, source: str, root: Node | None) -> None:
        self._text, self._root = source, root
        self._newline = "\r\n" if "\r\n" in source else "\n"
        self._layout = _layout(source, root)

    def replace_root(self, value: Any) -> str:
        """Another document."""
        lines = block(value, self._layout) if is_block(value) else [scalar(value)]
        if self._root is None:
            ending = "" if not self._text or self._text.endswith("\n") else self._newline
            return self._text + ending + self._joined(lines, 0) + self._newline
        start, end = self._root.start, self._root.end
        return self._text[:start] + self._joined(lines, 0) + self._text[end:]

    def insert(self, parent: Node, part: str | int, value: Any) -> str:
        """A key at the end of a mapping, or an item before the one of that index, else at the end."""
        if parent.is_flow:
            return self._insert_inline(parent, part, value)
        lines = item(value, self._layout) if isinstance(part, int) else entry(part, value, self._layout)
        column = self._column(parent.first(0))
        if isinstance(part, int) and part < len(parent.items):
            at = parent.first(part)
            return (
                self._text[:at] + self._joined(lines, column) + self._newline + " " * column + self._text[at:]
            )
        return self._below(parent.end, lines, column)

    def remove(self, parent: Node, index: int) -> str:
        """Without one key or item. What stood above it, comments included, stays."""
        if len(parent.items) == 1:
            return self._emptied(parent)
        start, end = parent.first(index), parent.items[index].end
        if parent.is_flow:
            if index + 1 < len(parent.items):
                return self._text[:start] + self._text[parent.first(index + 1) :]
            return self._text[: parent.items[index - 1].end] + self._text[end:]
        line = self._line_start(start)
        if self._text[line:start].strip(" "):  # behind the dash of the list around it
            return self._text[:start] + self._text[parent.first(index + 1) :]
        return self._text[:line] + self._text[self._next_line(end) :]

    def replace(self, parent: Node, index: int, value: Any) -> str:
        """Another value for a key or item."""
        old, mark = parent.items[index], parent.marks[index]
        if parent.is_flow:
            new = inline(value, style=old.style)
            if parent.kind == "map" and mark < 0:
                return self._text[: old.start] + ": " + new + self._text[old.end :]
            return self._put(old, new)
        if not is_block(value):
            return self._replace_by_inline(old, mark, scalar(value, style=old.style))
        column = self._column(parent.first(index))
        if parent.kind == "seq":
            lines = block(value, self._layout)
            return self._replace_by_inline(old, mark, self._joined(lines, column + 2))
        lines = under_key(value, self._layout)
        if old.is_block and self._line_start(old.start) > mark:
            line = self._line_start(old.start)
            joined = self._joined(lines, column)
            return self._text[:line] + " " * column + joined + self._text[old.end :]
        note = _NOTE.match(self._text, old.end)
        kept = note.group().rstrip() if note else ""
        after = note.end() if note else old.end
        joined = self._newline + " " * column + self._joined(lines, column)
        return self._text[: mark + 1] + kept + joined + self._text[after:]

    def _replace_by_inline(self, old: Node, mark: int, new: str) -> str:
        line = self._line_start(old.start)
        if old.is_block and line > mark:  # below its key
            head, tail = self._text[: mark + 1], self._text[mark + 1 : line]
            return f"{head} {new}{tail.rstrip(' ')}{self._text[self._next_line(old.end) :]}"
        return self._put(old, new)

    def _put(self, old: Node, new: str) -> str:
        before = self._text[: old.start]
        gap = " " if before.endswith((":", "-")) else ""
        return before + gap + new + self._text[old.end :]

    def _insert_inline(self, parent: Node, part: str | int, value: Any) -> str:
        new = inline(value)
        if isinstance(part, str):
            new = f"{text(part, in_brackets=True)}: {new}"
        elif part < len(parent.items):
            at = parent.first(part)
            return f"{self._text[:at]}{new}, {self._text[at:]}"
        at = parent.items[-1].end
        return f"{self._text[:at]}, {new}{self._text[at:]}"

    def _emptied(self, parent: Node) -> str:
        """A collection whose only item goes; the caller has the value around it replaced instead."""
        empty = "{}" if parent.kind == "map" else "[]"
        if parent is self._root:
            return self._text[: parent.start] + empty + self._text[parent.end :]
        holder, index = _holder(self._root, parent)
        return self.replace(holder, index, {} if parent.kind == "map" else [])

    def _below(self, end: int, lines: list[str], column: int) -> str:
        """Lines after the one on which a value ends."""
        at = self._line_end(end)
        return self._text[:at] + self._newline + " " * column + self._joined(lines, column) + self._text[at:]

    def _joined(self, lines: list[str], column: int) -> str:
        """The lines, all but the first indented."""
        return (self._newline + " " * column).join(lines)

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _column(self, position: int) -> int:
        return position - self._line_start(position)

    def _line_end(self, position: int) -> int:
        """Where the line of a position ends, before its line end."""
        end = self._text.find("\n", position)
        if end < 0:
            return len(self._text)
        return end - 1 if self._text[end - 1] == "\r" and end > position else end

    def _next_line(self, position: int) -> int:
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1


def _holder(node: Node | None, child: Node) -> tuple[Node, int]:
    """The collection that holds a node, and its index there."""
    open_nodes = [node] if node is not None else []
    while open_nodes:
        one = open_nodes.pop()
        for index, inner in enumerate(one.items):
            if inner is child:
                return one, index
        open_nodes += one.items
    raise ValueError("it is not part of the text")


def _layout(source: str, root: Node | None) -> Layout:
    """How the file indents: its first mapping in a mapping, its first list in a mapping."""
    found: dict[str, int] = {}
    open_nodes = [root] if root is not None else []
    while open_nodes and len(found) < 2:
        node = open_nodes.pop(0)
        for index, inner in enumerate(node.items):
            if node.kind == "map" and node.is_block and inner.is_block and inner.items:
                start, key = inner.first(0), node.first(index)
                width = _column(source, start) - _column(source, key)
                if width >= (1 if inner.kind == "map" else 0):
                    found.setdefault(inner.kind, width)
        open_nodes += node.items
    return Layout(found.get("map", 2), found.get("seq", 2))


def _column(source: str, position: int) -> int:
    return position - (source.rfind("\n", 0, position) + 1)
