"""Reads values out of payloads that nobody checked: a log that opens may still hold anything in them."""

from collections.abc import Iterator, Mapping
from typing import Any

from dsh.session.value import EMPTY, JsonObject, encode, safe_int


def at(value: Any, *path: str) -> Any:
    """What lies at a path of keys; None where there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def text_at(value: Any, *path: str) -> str:
    """The text at a path; empty where there is none."""
    found = at(value, *path)
    return found if type(found) is str else ""


def integer_at(value: Any, *path: str) -> int | None:
    """The whole number at a path, a fraction rounded; None where there is none."""
    found = at(value, *path)
    return round(found) if type(found) is float and found - found == 0 else safe_int(found)


def object_at(value: Any, *path: str) -> JsonObject:
    """The object at a path; an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else EMPTY


def objects_at(value: Any, *path: str) -> Iterator[JsonObject]:
    """The objects in the list at a path, other items left out."""
    found = at(value, *path)
    for item in found if isinstance(found, list | tuple) else ():
        if isinstance(item, Mapping):
            yield item


def json_text(value: Any) -> str:
    """A JSON value as compact text."""
    try:
        return encode(value).decode("utf-8", "replace")
    except RecursionError:
        return "…"
