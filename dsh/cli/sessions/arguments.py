"""The arguments of a tool call for people: a value for each name, where the model wrote a JSON object."""

from collections.abc import Iterator

from dsh.cli.sessions.foreign import json_text
from dsh.session.error import SessionError
from dsh.session.value import decode_strict


def argument_lines(arguments: str) -> Iterator[tuple[str, str]]:
    """Name and text of each argument; the text may have several lines. Without a name: what is no object."""
    try:
        value = decode_strict(arguments)
    except (SessionError, UnicodeEncodeError):
        value = None
    if not isinstance(value, dict):
        if arguments:
            yield "", arguments
        return
    for name, item in value.items():
        if type(item) is not str:
            yield name, json_text(item)
        else:
            yield name, f"\n{item}" if "\n" in item else item
