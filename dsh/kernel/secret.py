"""Fields marked secret: `Annotated[str, msgspec.Meta(extra={"role": "secret"})]`, wherever in a schema.

A type is followed as it is written, not as a schema library reads it: a struct may have other fields of types
that only its own plugin knows.
"""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from dsh.kernel.shape import item_kind, struct_fields, value_kind
from dsh.masking import MASK

Kinds = tuple[Any, ...]
"""The types that a value may be of."""
SHORTEST_TOLD = 3
"""A shorter secret stands in any text by chance; it is taken out as a word only."""


def kinds_of(kind: Any) -> Kinds:
    """The alternatives of a type, each with what annotates it; a union's annotations count for all."""
    extras: Kinds = ()
    while get_origin(kind) is Annotated:
        extras, kind = (*extras, *kind.__metadata__), kind.__origin__
    union = get_origin(kind) in (Union, types.UnionType)
    members = [one for member in get_args(kind) for one in kinds_of(member)] if union else [kind]
    return tuple(Annotated[(one, *extras)] if extras else one for one in members)


def is_secret(kinds: Kinds) -> bool:
    """Whether one of these types is marked secret; then so is the value, whichever it is of."""
    return any(
        isinstance(extra, msgspec.Meta) and (extra.extra or {}).get("role") == "secret"
        for kind in kinds
        for extra in getattr(kind, "__metadata__", ())
    )


def kinds_below(kinds: Kinds, step: str | int) -> Kinds:
    """The types that an item may be of: under a key of a struct or map, or at a position of a list.

    What no type can be told of because the names in it mean nothing counts as secret.
    """
    found: list[Any] = []
    for kind in kinds:
        bare = _bare(kind)
        if isinstance(step, int):
            found += kinds_of(item_kind(bare, step))
        elif (fields := _fields(bare)) is not None:
            found += kinds_of(fields.get(step, Any))
        else:
            found += kinds_of(value_kind(bare))
    return tuple(found)


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind = kind.__origin__
    return kind


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """The keys of a struct, or of another class with typed fields; None for all other types."""
    owner = get_origin(kind) or kind
    try:
        if isinstance(owner, type) and issubclass(owner, msgspec.Struct):
            return struct_fields(owner)
        if isinstance(owner, type) and getattr(owner, "__annotations__", None):
            return get_type_hints(owner, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return _Unknown()
    return None


class _Unknown(dict[str, Any]):
    """The fields of a class whose types cannot be told: each is taken for a secret."""

    def get(self, key: str, default: Any = None) -> Any:
        return Annotated[Any, msgspec.Meta(extra={"role": "secret"})]


def without_secrets(value: Any, kinds: Kinds) -> Any:
    """JSON data with `***` for every value that is marked; null and empty texts stay, they hold nothing."""
    if is_secret(kinds):
        return value if value in (None, "") else MASK
    if isinstance(value, Mapping):
        return {key: without_secrets(item, kinds_below(kinds, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item, kinds_below(kinds, at)) for at, item in enumerate(value)]
    return value


def told_without(text: str, value: Any, kind: Any) -> str:
    """What a schema's own code says of a value, with `***` for whatever is marked secret in it."""
    for secret in sorted(set(_texts(value, kinds_of(kind), is_hidden=False)), key=len, reverse=True):
        if len(secret) >= SHORTEST_TOLD:
            text = text.replace(repr(secret)[1:-1], MASK).replace(secret, MASK)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def _texts(value: Any, kinds: Kinds, *, is_hidden: bool) -> Iterator[str]:
    """The secrets in a value, as a message would show them."""
    is_hidden = is_hidden or is_secret(kinds)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, kinds_below(kinds, str(key)), is_hidden=is_hidden)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _texts(item, kinds_below(kinds, at), is_hidden=is_hidden)
    elif is_hidden and value is not None and not isinstance(value, bool) and (text := str(value)):
        yield text
