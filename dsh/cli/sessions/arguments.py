"""The arguments of a tool call for people: a value for each name, where the model wrote a JSON object."""

from collections.abc import Iterator

from dsh.cli.sessions.foreign import json_text
from dsh.session.error import SessionError
from dsh.session.value import decode_strict


def argument_texts(arguments: str) -> Iterator[str]:
    """`name: value` of each argument, a longer text on lines of its own; what is no object as it is."""
    try:
        value = decode_strict(arguments)
    except (SessionError, UnicodeEncodeError):
        value = None
    if not isinstance(value, dict):
        if arguments:
            yield arguments
        return
    for name, item in value.items():
        text = item if type(item) is str else json_text(item)
        yield f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"
