"""The pieces of a streamed block, one a line. A key is masked also where the pieces cut it in two."""

from collections.abc import Iterator, Sequence

from dsh.cli.sessions.conversation_item import Pieces
from dsh.cli.sessions.output import line
from dsh.cli.sessions.terminal import Look
from dsh.masking import MASK, masked


def pieces_drawn(streamed: Sequence[Pieces], look: Look) -> Iterator[str]:
    """All pieces of one block, each with its time since the step or the retry began."""
    hidden = _hidden("".join(text for pieces in streamed for text in pieces.texts))
    at = 0
    for pieces in streamed:
        kind = f"{line(masked(pieces.kind)):<11}"
        for offset_ms, text in pieces.timed():
            shown = MASK if at < hidden.stop and at + len(text) > hidden.start else line(text)
            at += len(text)
            yield f"{look.styled('dim', f'  +{offset_ms / 1000:.3f} s  {kind}')} {shown}".rstrip() + "\n"


def _hidden(text: str) -> range:
    """From where to where a text is not shown: from the beginning of its first key to the end of its last."""
    shown = masked(text)
    if shown == text:
        return range(0)
    start = _common(text, shown)
    return range(start, len(text) - _common(text[:start:-1], shown[:start:-1]))


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))
