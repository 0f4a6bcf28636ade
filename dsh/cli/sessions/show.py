"""`dsh sessions show`: a conversation as a person reads it. The log is only read."""

import os
from collections.abc import Iterable, Iterator

from dsh.cli.sessions.conversation.drawing import drawn, heading
from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.output import block
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed, opened
from dsh.cli.sessions.sink import to_output
from dsh.cli.sessions.target import find_log
from dsh.cli.sessions.terminal import look_of_output
from dsh.errors import CompositionError, DshError, UsageError
from dsh.masking import masked
from dsh.persistence.error import LogRefusal

LINE_HELD = 1 << 20
"""Bytes of a line without its end that are held before they are printed."""


def show(target: str, place: Place, *, chunks: bool, raw: bool) -> int:
    """Print a session. Answers the exit code; a log that cannot be opened is 1.

    Args:
        chunks: also each piece of each reply, with its time since the step or the retry began.
        raw: the stored text instead, whatever it is; made harmless only where it goes to a terminal.

    Raises:
        OSError: standard output cannot be written.
    """
    if raw:
        return _show_raw(target, place)
    found = opened(target, place)
    if found is None:
        return 1
    look = look_of_output()
    to_output(heading(found.view, found.log.place, look))
    to_output(drawn(conversation(found.view, pieces=chunks, is_running=found.is_running), look))
    return 0


def _show_raw(target: str, place: Place) -> int:
    try:
        text = find_log(target, place).raw()
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        return failed(error)
    try:
        to_output((block(masked(part)) for part in _lines(text)) if os.isatty(1) else text)
    except LogRefusal as error:
        return failed(error)
    return 0


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a text that comes in pieces; of a long one so much at a time as a piece has."""
    unfinished = b""
    for piece in pieces:
        *lines, unfinished = (unfinished + piece).split(b"\n")
        yield from (line.decode("utf-8", "backslashreplace") + "\n" for line in lines)
        if len(unfinished) > LINE_HELD:
            yield unfinished.decode("utf-8", "backslashreplace")
            unfinished = b""
    if unfinished:
        yield unfinished.decode("utf-8", "backslashreplace")
