"""Sections for display. In doubt a value is hidden: a secret may stand wherever the schema is not clear."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from dsh.capabilities.settings import SecretPlace, SettingsDescription
from dsh.masking import MASK, masked
from dsh.plugins.settings.section import Section
from dsh.plugins.settings.view import View

_REF = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
Path = tuple[str, ...]


def describe(section: Section, view: View[Any], *, redact: bool) -> SettingsDescription:
    """What a section says to one of its owners."""
    value = msgspec.to_builtins(view.value)
    base, user = view.base or None, section.raw
    places: dict[Path, bool] = {}
    if redact:
        redactor = Redactor(view.schema)
        value = redactor.hidden(value)
        places = redactor.places
        base = None if base is None else Redactor(view.schema).hidden(base)
        user = None if user is None else Redactor(view.schema).hidden(user)
    return SettingsDescription(
        ns=section.namespace,
        schema=schema_of(view.schema),
        value=value,
        revision=section.revision,
        applies=view.applies,
        base=base,
        user=user,
        secrets=tuple(SecretPlace(path, is_set) for path, is_set in places.items()),
    )


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON Schema of a struct, as far as it has words for it."""
    try:
        return msgspec.json.schema(kind)
    except TypeError:  # a type that JSON Schema has no words for
        return {"type": "object"}


class Redactor:
    """Takes the secrets out of a value by its type. State: where it found places for secrets."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.places: dict[Path, bool] = {}

    def hidden(self, value: Any) -> Any:
        """A copy without secrets."""
        return self._walk([self._kind], value, ())

    def _walk(self, kinds: list[Any], value: Any, path: Path) -> Any:
        """`kinds` are the types that the value may be of; one that knows a secret here decides."""
        members = [member for kind in kinds for member in _members(kind)]
        if any(_role(member) == "secret" for member in members):
            self.places[path] = value not in (None, "")
            return value if value in (None, "") else MASK
        if isinstance(value, Mapping):
            return self._mapping(members, value, path)
        if isinstance(value, list | tuple):
            return self._list(members, value, path)
        if isinstance(value, str):
            is_ref = any(_role(member) == "credential-ref" for member in members)
            if is_ref and not _REF.match(value):
                return MASK  # perhaps the key itself, in the wrong place
            return masked(value) if any(_fits_text(member) for member in members) else MASK
        if value is None or isinstance(value, bool):
            return value
        return value if any(_fits_number(member) for member in members) else MASK

    def _mapping(self, members: list[Any], value: Mapping[str, Any], path: Path) -> Any:
        structs = [_bare(m) for m in members if _is_struct(_bare(m))]
        fields = [_fields(struct) for struct in structs]
        rest = [_value_type(_bare(m)) for m in members if get_origin(_bare(m)) in (dict, Mapping)]
        made = {}
        for key, item in value.items():
            kinds = [known[key] for known in fields if key in known] + rest
            made[key] = self._walk(kinds, item, (*path, key)) if kinds else MASK
        for known in fields:
            for key, kind in known.items():
                if key not in value and any(_role(member) == "secret" for member in _members(kind)):
                    self.places.setdefault((*path, key), False)
        return made

    def _list(self, members: list[Any], value: Any, path: Path) -> Any:
        kinds: list[list[Any]] = []
        for member in members:
            bare, args = _bare(member), get_args(_bare(member))
            if get_origin(bare) in (list, set, frozenset) or (get_origin(bare) is tuple and args[-1] is ...):
                kinds.append([args[0]] * len(value))
            elif get_origin(bare) is tuple:
                kinds.append([*args[: len(value)], *[None] * (len(value) - len(args))])
        if not kinds:
            return MASK
        columns = ([row[index] for row in kinds if row[index] is not None] for index in range(len(value)))
        return [
            self._walk(column, item, (*path, str(index))) if column else MASK
            for index, (column, item) in enumerate(zip(columns, value, strict=True))
        ]


def _members(kind: Any) -> Iterator[Any]:
    """The alternatives of a type, each with what annotates it. Annotations of a union count for each."""
    extras: tuple[Any, ...] = ()
    while get_origin(kind) is Annotated:
        extras, kind = (*extras, *kind.__metadata__), kind.__origin__
    if get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            for one in _members(member):
                yield Annotated[(one, *extras)] if extras else one
    else:
        yield Annotated[(kind, *extras)] if extras else kind


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind = kind.__origin__
    return kind


def _role(kind: Any) -> str:
    for extra in getattr(kind, "__metadata__", ()):
        if isinstance(extra, msgspec.Meta) and extra.extra and "role" in extra.extra:
            return str(extra.extra["role"])
    return ""


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _fields(struct: Any) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


def _value_type(kind: Any) -> Any:
    return get_args(kind)[1]


def _fits_text(kind: Any) -> bool:
    bare = _bare(kind)
    return bare is str or (get_origin(bare) is Literal)


def _fits_number(kind: Any) -> bool:
    bare = _bare(kind)
    return bare in (int, float) or (get_origin(bare) is Literal)
