"""The document `.credentials.yaml`: exactly of the known form, or refused without showing a value."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from dsh.capabilities.credentials import CredentialRecord
from dsh.capabilities.user_document import parse_private, plain
from dsh.composition.value import Map, Mark, MarkedError, type_name
from dsh.errors import CredentialError

VERSION = 1
REF = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
RECORD = re.compile(r"[a-z][a-z0-9-]*/[a-z][a-z0-9-]*\Z")
FORM = "names and keys stand under refs:, below version: 1"
_TOP = frozenset(["version", "refs", "records"])


class Keys(NamedTuple):
    """What a document holds."""

    refs: dict[str, str]
    records: dict[str, CredentialRecord]
    is_flat: bool = False
    """It has the form of early versions: names and keys at the top."""


def read_document(data: bytes, file: str) -> Keys:
    """The keys of a document; an empty one has none.

    Raises:
        CredentialError: the document is not exactly of the known form. Names key and place, no value.
    """
    try:
        return keys_of(parse_private(data, file), file)
    except MarkedError as error:
        raise CredentialError(error.message, hint=error.hint) from None


def keys_of(document: Any, file: str) -> Keys:
    """The keys in a document that has been parsed.

    Raises:
        CredentialError: see `read_document`.
    """
    if document is None:
        return Keys({}, {})
    if isinstance(document, Map) and document and all(map(REF.match, document)) and _TOP.isdisjoint(document):
        for name in document:
            _text(document, name)
        return Keys(dict(document), {}, is_flat=True)
    top = _mapping(document, "the document", Mark(file, 1, 1), known=_TOP)
    if top.get("version") != VERSION or isinstance(top["version"], bool):
        raise CredentialError(f"{top.value_at('version')}: version must be {VERSION}", hint=FORM)
    refs = _mapping(top.get("refs", Map(top.mark)), "refs", top.value_at("refs"))
    for name in refs:
        if not REF.match(name):
            raise CredentialError(f"{refs.key_at(name)}: a name is letters, digits and _ only")
        _text(refs, name)
    records = _mapping(top.get("records", Map(top.mark)), "records", top.value_at("records"))
    for name in records:
        if not RECORD.match(name):
            raise CredentialError(f"{records.key_at(name)}: a record is named scope/id")
        _check_record(_mapping(records[name], f"record {name}", records.value_at(name)))
    try:
        made = {name: msgspec.convert(plain(value), CredentialRecord) for name, value in records.items()}
    except MarkedError as error:
        raise CredentialError(error.message, hint=error.hint) from None
    return Keys(dict(refs), made)


def nested(text: str) -> str:
    """A document of the flat form as the known form: its lines as they are, below `refs`."""
    lines = (f"  {line}" if line.strip() else line for line in text.split("\n"))
    return f"version: {VERSION}\nrefs:\n" + "\n".join(lines)


def _check_record(record: Map) -> None:
    kind = record.get("kind")
    if kind == "api-key":
        known = {"kind", "key", "env"}
        for field in ("key", "env"):
            if field in record:
                _text(record, field)
    elif kind == "grant":
        known = {"kind", "payload"}
        if "payload" not in record:
            raise CredentialError(f"{record.mark}: a grant needs a payload")
    else:
        raise CredentialError(f"{record.value_at('kind')}: kind must be api-key or grant")
    _known(record, known)


def _mapping(value: Any, what: str, mark: Mark, *, known: Collection[str] | None = None) -> Map:
    if not isinstance(value, Map):
        raise CredentialError(f"{mark}: {what} must be a mapping, not {type_name(value)}", hint=FORM)
    if known is not None:
        _known(value, known)
    return value


def _known(mapping: Map, known: Collection[str]) -> None:
    for key in mapping:
        if key not in known:
            raise CredentialError(
                f"{mapping.key_at(key)}: unknown key; known are {', '.join(sorted(known))}",
                hint=FORM if known is _TOP else "",
            )


def _text(mapping: Map, key: str) -> None:
    value = mapping[key]
    if not isinstance(value, str):
        raise CredentialError(f"{mapping.value_at(key)}: {key} must be a string, not {type_name(value)}")
    if not value:
        raise CredentialError(f"{mapping.value_at(key)}: {key} is empty")
