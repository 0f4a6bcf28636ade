"""Log data as OTLP can carry it: plain values, valid Unicode, 64 bit, not too deep."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsh.masking import MASK, masked_value
from dsh.unicode import valid

SHORTEST_SECRET = 8
"""Characters of a value that is looked for: shorter ones stand in too many other words."""
MAX_DEPTH = 24
"""Levels of nesting that a receiver surely takes; what lies deeper is sent as JSON text."""
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
Text = Callable[[str, str], str]
"""What to send for a text under a key."""


def wire_value(value: Any, text: Text) -> Any:
    """A detached copy of JSON data, each text in it as `text` gives it."""
    return _copied("", value, 0, text)


def masking(secrets: Sequence[str]) -> Text:
    """Puts `***` in place of these secrets, of what has the form of a key, and of what a key names so."""
    by_length = sorted(secrets, key=len, reverse=True)

    def text(key: str, value: str) -> str:
        for secret in by_length:
            if secret in value:
                value = value.replace(secret, MASK)
        return masked_value(key, value)

    return text


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose name or form says that they are secret, short ones left out."""
    return [
        value
        for name, value in environment.items()
        if len(value) >= SHORTEST_SECRET and masked_value(name, value) != value
    ]


def _copied(key: str, value: Any, depth: int, text: Text) -> Any:
    if isinstance(value, str):
        return text(key, valid(value))
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if _MIN_INT <= value <= _MAX_INT else str(value)
    if depth == MAX_DEPTH:
        return text(
            key, json.dumps(value, default=dict, ensure_ascii=False).encode("utf-8", "replace").decode()
        )
    if isinstance(value, Mapping):
        return {valid(str(name)): _copied(str(name), item, depth + 1, text) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_copied(key, item, depth + 1, text) for item in value]
    return text(key, valid(str(value)))


def as_it_is(key: str, value: str) -> str:
    """The text unchanged."""
    return value
