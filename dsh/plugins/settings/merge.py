"""Layers of JSON data over one another. Nothing here changes what it is given."""

from collections.abc import Mapping
from typing import Any


def layered(base: Any, over: Any) -> Any:
    """A section over the row's config: mappings merge at every depth, lists and scalars replace."""
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return _copied(over)
    made = {key: _copied(value) for key, value in base.items()}
    for key, value in over.items():
        made[key] = layered(made[key], value) if key in made else _copied(value)
    return made


def patched(base: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386): mappings merge, null takes a key out, all else replaces."""
    if not isinstance(patch, Mapping):
        return _copied(patch)
    made = _copied(base) if isinstance(base, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), value)
    return made


def same(one: Any, other: Any) -> bool:
    """Deep equality in which true is not 1. The order of keys does not count."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value
