"""`dsh sessions show`: a conversation as a person reads it. The log is only read."""

import os
from collections.abc import Iterator

from dsh.cli.sessions.conversation.drawing import drawn, heading
from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.output import block
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed, opened
from dsh.cli.sessions.sink import to_output
from dsh.cli.sessions.target import Log, find_log
from dsh.cli.sessions.terminal import look_of_output
from dsh.errors import CompositionError, DshError, UsageError
from dsh.masking import masked
from dsh.persistence.error import LogRefusal


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
        text = _raw_text(find_log(target, place))
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        return failed(error)
    if os.isatty(1):
        to_output(block(masked(text_line)) for text_line in _lines(text))
    else:
        to_output((text,))
    return 0


def _raw_text(log: Log) -> bytes:
    try:
        return log.raw()
    except LogRefusal:
        if log.path is None or log.session_id is None:
            raise
        return Log(
            log.place, None, None, log.path
        ).raw()  # as a file: its header need not be the one it should be


def _lines(text: bytes) -> Iterator[str]:
    for part in text.splitlines(keepends=True):
        yield part.decode("utf-8", "backslashreplace")
