"""What a write or an edit changed, as hunks for display."""

from collections.abc import Iterator, Sequence

CONTEXT_LINES = 3
MAX_SHOWN_CHARS = 256 * 1024
"""Hunks together: they are logged with the result. What goes beyond is left out, whole hunks at a time."""
BLOCK_CHARS = 64 * 1024
"""Long texts are compared in pieces of this size before they are taken apart into lines."""
MAX_COMPARED_CHARS = 8 * 1024 * 1024
"""Longer texts, of both what they do not begin or end with alike, have no hunks: it would take seconds."""
MAX_MATCHED_LINES = 5_000
"""Beyond this many changed lines no minimal diff is searched for: it would hold the event loop."""

Opcode = tuple[str, int, int, int, int]


def file_diffs(path: str, before: str | None, after: str) -> list[dict[str, str | None]]:
    """One `{path, oldText, newText}` for each unified-diff hunk; texts are lines joined without a last LF.

    `before` is None where there is nothing to compare with: no hunks. A hunk without old lines has a null
    `oldText`.
    """
    if before is None or before == after:
        return []
    before, after = _without_same_ends(before, after)
    if len(before) + len(after) > MAX_COMPARED_CHARS:
        return []
    old, new = _lines(before), _lines(after)
    hunks = []
    room = MAX_SHOWN_CHARS
    for group in _grouped(_opcodes(old, new)):
        old_text = _joined(old[group[0][1] : group[-1][2]])
        new_text = _joined(new[group[0][3] : group[-1][4]]) or ""
        room -= len(old_text or "") + len(new_text)
        if room < 0:
            break
        hunks.append({"path": path, "oldText": old_text, "newText": new_text})
    return hunks


def _without_same_ends(before: str, after: str) -> tuple[str, str]:
    """Both texts without most of what they begin and end with alike; the context of a change stays."""
    shorter, growth = min(len(before), len(after)), len(after) - len(before)
    head, end = 0, len(before)
    while head + BLOCK_CHARS <= shorter and before.startswith(after[head : head + BLOCK_CHARS], head):
        head += BLOCK_CHARS
    while min(end, end + growth) - BLOCK_CHARS >= head and before.endswith(
        after[end + growth - BLOCK_CHARS : end + growth], head, end
    ):
        end -= BLOCK_CHARS
    for _ in range(CONTEXT_LINES + 1):
        head = before.rfind("\n", 0, max(head, 0))
        end = before.find("\n", end) + 1 or len(before)
    return before[head + 1 : end], after[head + 1 : end + growth]


def _lines(text: str) -> list[str]:
    """Lines with their LF, so that a missing last one counts as a change."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _joined(lines: list[str]) -> str | None:
    return "\n".join(line.removesuffix("\n") for line in lines) if lines else None


def _opcodes(old: list[str], new: list[str]) -> list[Opcode]:
    """Edit steps as in `difflib`. The common head and tail are taken off first: most edits are small."""
    head = 0
    shorter = min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_end, new_end = len(old) - tail, len(new) - tail
    steps: list[Opcode] = [("equal", 0, head, 0, head)] if head else []
    steps += [
        (tag, a1 + head, a2 + head, b1 + head, b2 + head)
        for tag, a1, a2, b1, b2 in _middle(old[head:old_end], new[head:new_end])
    ]
    if tail:
        steps.append(("equal", old_end, len(old), new_end, len(new)))
    return steps


def _middle(old: list[str], new: list[str]) -> list[Opcode]:
    if max(len(old), len(new)) <= MAX_MATCHED_LINES:
        from difflib import SequenceMatcher

        return [
            (tag, a1, a2, b1, b2) for tag, a1, a2, b1, b2 in SequenceMatcher(None, old, new).get_opcodes()
        ]
    if len(old) == len(new):
        return list(_line_by_line(old, new))
    return [("replace", 0, len(old), 0, len(new))]


def _line_by_line(old: list[str], new: list[str]) -> Iterator[Opcode]:
    start = 0
    for at in range(1, len(old) + 1):
        if at == len(old) or (old[at] == new[at]) != (old[start] == new[start]):
            yield ("equal" if old[start] == new[start] else "replace"), start, at, start, at
            start = at


def _grouped(steps: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their context; a stretch of more than twice the context parts two hunks."""
    group: list[Opcode] = []
    for position, (tag, a1, a2, b1, b2) in enumerate(steps):
        if tag != "equal":
            group.append((tag, a1, a2, b1, b2))
            continue
        is_last = position == len(steps) - 1
        if group:
            if is_last or a2 - a1 > 2 * CONTEXT_LINES:
                end = min(a1 + CONTEXT_LINES, a2)
                yield [*group, (tag, a1, end, b1, b1 + end - a1)]
                group = []
            else:
                group.append((tag, a1, a2, b1, b2))
                continue
        if not is_last:
            start = max(a2 - CONTEXT_LINES, a1)
            group = [(tag, start, a2, b1 + start - a1, b2)]
    if any(tag != "equal" for tag, *_ in group):
        yield group
