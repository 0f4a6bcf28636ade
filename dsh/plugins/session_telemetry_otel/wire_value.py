"""Log data as OTLP can carry it: plain values, valid Unicode, 64 bit, not too deep."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsh.masking import masked_value
from dsh.unicode import valid

MAX_DEPTH = 24
"""Levels of nesting that a receiver surely takes; what lies deeper is sent as JSON text."""
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
Text = Callable[[str, str], str]
"""What to send for a text under a key."""


def wire_value(value: Any, *, mask: bool) -> Any:
    """A detached copy of JSON data.

    Args:
        mask: put `***` in place of what has the form of a key, or stands under a key that says it is one.
    """
    return _copied("", value, 0, masked_value if mask else _as_it_is)


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


def _as_it_is(key: str, value: str) -> str:
    return value
