"""The event types of a session log and what each holds, from the types that check them."""

from collections.abc import Iterator
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import msgspec.inspect as kinds

from docs.generate.markdown import code, table
from docs.generate.schema import kind_in_words
from docs.generate.source import field_docs, first_paragraph
from dsh.session.event import SURFACE_TYPES
from dsh.session.vocabulary import KNOWN, payload_of

_BY_HAND = {"content": "list of blocks", "role": "text"}
"""Fields whose type the checker does not take as a whole."""


def payload_catalogue() -> str:
    """Every event type with its fields, by name."""
    return "\n".join(part for kind in sorted(KNOWN) for part in _entry(kind))


def _entry(kind: str) -> Iterator[str]:
    definition = payload_of(kind)
    assert definition is not None
    shown = ", shown to the model" if kind in SURFACE_TYPES else ""
    yield f"### {code(kind)}{shown}\n"
    for form in definition.forms:
        yield f"{first_paragraph(form.__doc__ or '')}\n"
        rows = list(_fields(form))
        if rows:
            yield table(("field", "type", "to know"), rows)


def _fields(form: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The fields of a form, those of forms inside it behind the name of their field."""
    docs = field_docs(form)
    for name, annotation in get_type_hints(form, include_extras=True).items():
        optional = name in form.__optional_keys__
        path = prefix + name
        words, nested = _told(name, annotation)
        yield code(path) + (" (optional)" if optional else ""), words, docs.get(name, "")
        for suffix, inner in nested:
            yield from _fields(inner, f"{path}{suffix}.")


def _told(name: str, annotation: Any) -> tuple[str, list[tuple[str, Any]]]:
    """A field's type in words, and the forms inside it."""
    if get_origin(annotation) is NotRequired:
        (annotation,) = get_args(annotation)
    try:
        kind = kinds.type_info(annotation)
    except TypeError:
        return _BY_HAND[name], []
    null = " or `null`" if _may_be_null(kind) else ""
    words = kind_in_words(kind).replace("`True`", "`true`")
    return words + null, list(_forms(kind))


def _may_be_null(kind: kinds.Type) -> bool:
    return isinstance(kind, kinds.UnionType) and any(isinstance(one, kinds.NoneType) for one in kind.types)


def _forms(kind: kinds.Type) -> Iterator[tuple[str, Any]]:
    match kind:
        case kinds.TypedDictType(cls=form):
            yield "", form
        case kinds.ListType(item_type=item) | kinds.CollectionType(item_type=item):
            yield from ((f"[]{suffix}", form) for suffix, form in _forms(item))
