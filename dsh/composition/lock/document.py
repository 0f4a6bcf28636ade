"""A composition written down so that nothing else is run by mistake: `--lock` writes it, `--locked` compares.

The document holds what the digest covers (`digest.py`), with masked secrets. The digest covers the secrets
themselves, so that a changed one is noticed though it cannot be shown.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.dump import dump_mapping, shown
from dsh.composition.lock.digest import ALGORITHM, Contents, contents_of, digest_of, inner_lists
from dsh.composition.row import RowError
from dsh.composition.text.yaml import read_yaml
from dsh.composition.value import Expr, Map, Mark, quoted, type_name
from dsh.errors import CompositionError

VERSION = 1
MAX_LINES = 30
"""How many differences are told one by one."""
MAX_VALUE = 60
_DIGEST = re.compile(f"{ALGORITHM}:[0-9a-f]{{64}}")
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
    return "\n".join(dump_mapping(_document(contents_of(composition, home)))) + "\n"


def _document(contents: Contents) -> dict[str, Any]:
    return {"version": VERSION, "digest": digest_of(contents), **contents._asdict()}


def require_locked(composition: Composition, home: Path, path: Path) -> None:
    """Refuse a composition that is not the one in this lock.

    Raises:
        LockMismatch: they differ; says in what.
        CompositionError: the lock cannot be read or is none, or an include cannot be read.
    """
    lock = _read(path)
    here = shown(_document(contents_of(composition, home)))
    found = list(_differences(lock, here))
    is_same = lock["digest"] == here["digest"]
    if is_same and not found:
        return
    again = f"write a new lock: {_command(composition)} > {shlex.quote(str(path))}"
    if is_same and lock["profile"] == here["profile"]:
        found.insert(0, "its digest is that of this composition, so the rest of it has been edited or cut:")
        raise LockMismatch(path, found, hint=f"get the lock as it was written, or {again}")
    if not found:
        found.append("a value that the lock does not show, or the digest in the lock, has changed")
    raise LockMismatch(path, found, hint=f"if the change is meant, {again}")


def _command(composition: Composition) -> str:
    """What prints the lock of this composition."""
    patches = [str(layer.path) for layer in composition.layers if layer.kind == "patch"]
    flags = [word for path in patches for word in ("--patch", path)]
    return shlex.join(["dsh", "--profile", composition.profile, *flags, "--dump-config", "--lock"])


def _read(path: Path) -> Map:
    document = read_yaml(path)
    start = Mark(str(path), 1, 1)
    hint = "a lock is written by dsh --dump-config --lock"
    if not isinstance(document, Map):
        raise RowError(f"a lock must be a mapping, found {type_name(document)}", start, hint=hint)
    if (version := document.get("version")) != VERSION or isinstance(version, bool):
        is_newer = isinstance(version, int) and version > VERSION
        raise RowError(
            f"version of the lock must be {VERSION}, found {shortened(version)}",
            document.value_at("version"),
            hint=f"a newer dsh wrote it: use that one; {hint}" if is_newer else hint,
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
    if not _DIGEST.fullmatch(document["digest"]):
        raise RowError(
            f"digest of the lock must be {ALGORITHM}: and 64 hex digits",
            document.value_at("digest"),
            hint=hint,
        )
    for n, row in enumerate(document["rows"]):
        if not isinstance(row, Map):
            raise RowError(f"rows of a lock holds {type_name(row)}", document["rows"].item_at(n), hint=hint)
    return document


_KIND = {str: "a string", dict: "a mapping", list: "a list"}


def _differences(lock: Map, here: dict[str, Any]) -> Iterator[str]:
    for key in ("dsh", "profile"):
        if lock[key] != here[key]:
            yield f"{key}: {_change(lock[key], here[key])}"
    for name in sorted({*lock["plugins"], *here["plugins"]}):
        before, now = lock["plugins"].get(name, _ABSENT), here["plugins"].get(name, _ABSENT)
        if before != now:
            yield f"plugin {name}: {_change(before, now)}"
    yield from _rows(lock["rows"], here["rows"], "")


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


def _by_id(rows: list[Any], around: str) -> dict[str, dict[str, Any]]:
    """Rows by id; those without one by name and a number, which does not depend on their order."""
    found: dict[str, dict[str, Any]] = {}
    nameless: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(row, dict) and row.get("id") is not None:
            found[f"{around}{row['id']}"] = row
        elif isinstance(row, dict):
            nameless.setdefault(f"{around}{row.get('name')}", []).append(row)
    for name, alike in nameless.items():
        for n, row in enumerate(sorted(alike, key=_inline), 1):
            found[f"{name} number {n}, without id"] = row
    return found


def _row(key: str, locked: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    for field in sorted({*locked, *here}):
        one, other = locked.get(field, _ABSENT), here.get(field, _ABSENT)
        if field in inner_lists(here) and isinstance(one, list) and isinstance(other, list):
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
    elif isinstance(one, Expr) and isinstance(other, Expr):
        if one.text.strip() != other.text.strip():
            yield path, _change(one, other)
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
