"""A composition written down so that nothing else is run by mistake: `--lock` writes it, `--locked` compares.

The document holds what the digest covers (`digest.py`), with masked secrets. The digest covers the secrets
themselves, so that a changed one is noticed though it cannot be shown.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.dump import dump_mapping, shown
from dsh.composition.lock.digest import INCLUDED, Contents, contents_of, digest_of
from dsh.composition.row import GROUP, RowError
from dsh.composition.text.yaml import read_yaml
from dsh.composition.value import Expr, Map, Mark, quoted, type_name
from dsh.errors import CompositionError

VERSION = 1
MAX_LINES = 30
"""How many differences are told one by one."""
MAX_VALUE = 60
_KEYS = ("version", "digest", "dsh", "profile", "plugins", "rows")


class LockMismatch(CompositionError):
    """The composition is not the one that a lock holds. `differences` names each, in one line."""

    def __init__(self, path: Path, differences: list[str], *, hint: str) -> None:
        self.differences = differences
        told = differences[:MAX_LINES]
        if len(differences) > MAX_LINES:
            told.append(f"and {len(differences) - MAX_LINES} more")
        super().__init__("\n".join([f"the composition is not the one locked in {path}:", *told]), hint=hint)


def lock_text(composition: Composition, home: Path) -> str:
    """The lock of a composition: a YAML document that ends in a newline.

    Raises:
        CompositionError: an include cannot be read.
    """
    contents = contents_of(composition, home)
    document = {"version": VERSION, "digest": digest_of(contents), **contents._asdict()}
    return "\n".join(dump_mapping(document)) + "\n"


def require_locked(composition: Composition, home: Path, path: Path) -> None:
    """Refuse a composition that is not the one in this lock.

    Raises:
        LockMismatch: they differ; says in what.
        CompositionError: the lock cannot be read or is none, or an include cannot be read.
    """
    lock = _read(path)
    contents = contents_of(composition, home)
    if lock["digest"] == digest_of(contents) and lock["profile"] == contents.profile:
        return
    found = list(_differences(lock, contents))
    if not found:
        found.append("a value that the lock does not show, or the digest in the lock, has changed")
    again = f"dsh --profile {contents.profile} --dump-config --lock"
    raise LockMismatch(path, found, hint=f"if the change is meant, write a new lock: {again} > {path}")


def _read(path: Path) -> Map:
    document = read_yaml(path)
    start = Mark(str(path), 1, 1)
    hint = "a lock is written by dsh --dump-config --lock"
    if not isinstance(document, Map):
        raise RowError(f"a lock must be a mapping, found {type_name(document)}", start, hint=hint)
    if (version := document.get("version")) != VERSION or isinstance(version, bool):
        raise RowError(
            f"version of the lock must be {VERSION}, found {shortened(version)}",
            document.value_at("version"),
            hint=hint,
        )
    for key, kind in (("digest", str), ("dsh", str), ("profile", str), ("plugins", dict), ("rows", list)):
        if not isinstance(value := document.get(key), kind):
            found = f"found {type_name(value)}" if key in document else "which is missing"
            raise RowError(
                f"{key} of the lock must be {_KIND[kind]}, {found}", document.value_at(key), hint=hint
            )
    for key in document:
        if key not in _KEYS:
            raise RowError(f"unknown key {quoted(key)} in a lock", document.key_at(key), hint=hint)
    for n, row in enumerate(document["rows"]):
        if not isinstance(row, Map):
            raise RowError(f"rows of a lock holds {type_name(row)}", document["rows"].item_at(n), hint=hint)
    return document


_KIND = {str: "a string", dict: "a mapping", list: "a list"}


def _differences(lock: Map, contents: Contents) -> Iterator[str]:
    for key in ("dsh", "profile"):
        here = getattr(contents, key)
        if lock[key] != here:
            yield f"{key}: locked {shortened(lock[key])}, here {shortened(here)}"
    for name in sorted({*lock["plugins"], *contents.plugins}):
        before, here = lock["plugins"].get(name, _ABSENT), contents.plugins.get(name, _ABSENT)
        if before != here:
            yield f"plugin {name}: {_change(before, here)}"
    yield from _rows(lock["rows"], shown(contents.rows), "")


def _rows(locked: list[Any], here: list[Any], around: str) -> Iterator[str]:
    before, now = _by_id(locked, around), _by_id(here, around)
    for key in now:
        if key not in before:
            yield f"row {key}: not in the lock"
    for key, row in before.items():
        if key not in now:
            yield f"row {key}: locked, and not here"
        else:
            yield from _row(key, row, now[key])
    if list(before) != list(now) and before.keys() == now.keys():
        yield f"the rows{f' in {around}' if around else ''} are in another order"


def _by_id(rows: list[Any], around: str) -> dict[str, dict[str, Any]]:
    """Rows by id; those without one by name and position."""
    found: dict[str, dict[str, Any]] = {}
    for n, row in enumerate(rows):
        if isinstance(row, dict):
            found[f"{around}{row.get('id') or '{} number {}'.format(row.get('name'), n + 1)}"] = row
    return found


def _row(key: str, locked: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    for field in sorted({*locked, *here}):
        one, other = locked.get(field, _ABSENT), here.get(field, _ABSENT)
        holds_rows = here.get("group") is True or here.get("name") == GROUP
        is_rows = field == INCLUDED or (field == "config" and holds_rows)
        if is_rows and isinstance(one, list) and isinstance(other, list):
            yield from _rows(one, other, f"{key}/")
        else:
            for path, change in _values(one, other, field):
                yield f"row {key}: {path}: {change}"


def _values(one: Any, other: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _values(one.get(key, _ABSENT), other.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for n, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _values(left, right, f"{path}.{n}")
    elif isinstance(one, bool) != isinstance(other, bool) or one != other:
        yield path, _change(one, other)


_ABSENT = object()


def _change(before: Any, here: Any) -> str:
    words = ["nothing" if value is _ABSENT else shortened(value) for value in (before, here)]
    return f"locked {words[0]}, here {words[1]}"


def shortened(value: Any) -> str:
    """A value in one line, cut where it is long."""
    text = _inline(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _inline(value: Any) -> str:
    if isinstance(value, Expr):
        return value.shown
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
