"""`dsh sessions export`: a session as JSON lines, Markdown or an HTML page."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import Opened, failed, opened
from dsh.cli.sessions.sink import to_new_file, to_output
from dsh.errors import DshError
from dsh.persistence.error import RawLogUnsupported
from dsh.persistence.view import LogView
from dsh.session.chunk_row import MIN_RUN
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.value import encode

Form = Literal["jsonl", "markdown", "html"]
FORMS: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}
"""By the end of the file's name; any other one is for JSON lines."""


def export(target: str, place: Place, *, form: Form | None, output: str) -> int:
    """Write a session. Answers the exit code; a log that cannot be opened is 1.

    JSON lines are the stored text as it is; the repaired view is written where a repair is due, and where
    the storage keeps no text.

    Args:
        form: None for the one that the name of the file says.
        output: path of a file that does not exist yet; empty or `-` for standard output.

    Raises:
        OSError: standard output cannot be written.
    """
    found = opened(target, place)
    if found is None:
        return 1
    if form is None:
        form = FORMS.get(Path(output).suffix.lower(), "jsonl")
    try:
        pieces = _pieces(found, form)
        if output not in ("", "-"):
            to_new_file(Path(output), pieces)
            return 0
    except (DshError, OSError) as error:
        return failed(error)
    to_output(pieces)
    return 0


def _pieces(found: Opened, form: Form) -> Iterable[str | bytes]:
    log, view, is_running = found
    if form == "markdown":
        from dsh.cli.sessions.conversation.markdown import markdown

        return markdown(view, conversation(view, is_running=is_running))
    if form == "html":
        from dsh.cli.sessions.conversation.html import page

        return page(view, conversation(view, is_running=is_running))
    if view.needs_repair and not is_running:
        return json_lines(view)
    try:
        return log.raw()
    except RawLogUnsupported:
        return json_lines(view)


def json_lines(view: LogView) -> Iterator[bytes]:
    """The log of a view as it would be stored in plain text."""
    yield encode(view.header.to_line()) + b"\n"
    for entry in view.walk():
        for value in _records(entry):
            yield encode(value) + b"\n"


def _records(entry: Entry) -> Iterator[object]:
    if not isinstance(entry, ChunkRun):
        yield entry.to_json()
    elif len(entry) >= MIN_RUN:
        yield entry.to_row()
    else:
        for event in entry.events():
            yield event.to_json()
