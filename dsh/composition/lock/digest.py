"""What a composition comes to, and the digest over it: its rows, the versions of their plugins, that of dsh.

Nothing in it depends on the machine: neither the paths of the layers nor the values of expressions, which
count with their text. Nor does it depend on the order of rows, which means nothing to a start.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dsh import __version__
from dsh.composition.compose import Composition
from dsh.composition.lock.plugin_version import plugin_version
from dsh.composition.mount.include import included_rows
from dsh.composition.profile import site_folder
from dsh.composition.row import GROUP, INCLUDE, Row
from dsh.composition.value import Expr
from dsh.errors import CompositionError

ALGORITHM = "sha256"
INCLUDED = "included"
"""Field of an include row here: the rows of its file, patched."""
Included = Mapping[int, list[Row]]
"""The rows of includes that have been read already, by the `id()` of the include's row."""


class Contents(NamedTuple):
    """Everything the digest covers, and the profile it was composed for."""

    dsh: str
    """Version of dsh."""
    profile: str
    plugins: dict[str, str]
    """Version or hash of each plugin that a row may load (`plugin_version`), by the row's `name`; by name and
    ids where rows of one name load different ones."""
    rows: list[dict[str, Any]]
    """The effective rows in order, groups with their children; values as written, secrets too."""


def contents_of(composition: Composition, home: Path, known: Included | None = None) -> Contents:
    """Gather what is mounted when this composition is booted.

    Args:
        home: the home directory, for the profile's own packages.
        known: includes that are mounted; the files of all others are read.

    Raises:
        CompositionError: the file of an include that is not disabled cannot be read or is wrong.
    """
    gathering = _Gathering(site_folder(home, composition.profile), known or {})
    rows = [gathering.row(row, (), "") for row in composition.rows]
    return Contents(__version__, composition.profile, gathering.plugins(), rows)


def digest_of(contents: Contents) -> str:
    """`sha256:<64 hex digits>` over compact JSON with sorted keys of dsh, plugins and rows."""
    import hashlib

    covered = {"dsh": contents.dsh, "plugins": contents.plugins, "rows": _unordered(contents.rows)}
    return f"{ALGORITHM}:{hashlib.new(ALGORITHM, _json(covered).encode()).hexdigest()}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def inner_lists(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a gathered row that hold rows."""
    return ("config", INCLUDED) if row.get("group") is True or row.get("name") == GROUP else (INCLUDED,)


def _unordered(rows: list[Any]) -> list[Any]:
    """Rows as JSON data, those of one list in an order that does not depend on how they were written."""
    made = []
    for row in rows:
        inside = {key: _unordered(row[key]) for key in inner_lists(row) if isinstance(row.get(key), list)}
        made.append({**_plain({key: row[key] for key in row if key not in inside}), **inside})
    return sorted(made, key=_json)


def _plain(value: Any) -> Any:
    """JSON data in which an expression is unlike every mapping that somebody may write."""
    if isinstance(value, Expr):
        return {"!expr": value.text.strip()}
    if isinstance(value, dict):
        return {f"!{k}" if k.startswith("!") else k: _plain(item) for k, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


class _Gathering:
    """Walks the rows; holds the versions found so far."""

    def __init__(self, site: Path, known: Included) -> None:
        self._site, self._known = site, known
        self._found: dict[str, dict[str, list[str]]] = {}
        """The ids of rows, by the version of their plugin, by its name."""

    def plugins(self) -> dict[str, str]:
        """The versions, by the names that the document gives them."""
        made = {}
        for name, versions in self._found.items():
            for version, ids in versions.items():
                made[name if len(versions) == 1 else f"{name} ({', '.join(sorted(ids))})"] = version
        return dict(sorted(made.items()))

    def row(
        self, row: Row, open_files: tuple[Path, ...], prefix: str, *, is_off: bool = False
    ) -> dict[str, Any]:
        """The row's fields in canonical order, what is inside it in place.

        Args:
            prefix: what stands before the ids of rows here, as in the mounted tree.
        """
        is_off = is_off or row.disabled is True
        made = dict(_fields(row))
        if row.carries_rows:
            made["config"] = [self.row(child, open_files, prefix, is_off=is_off) for child in row.children]
        elif row.name == INCLUDE:
            if not is_off and (found := self._included(row, open_files)) is not None:
                files, rows = found
                made[INCLUDED] = [self.row(child, files, f"{prefix}{row.id}:") for child in rows]
        elif not is_off:
            version = plugin_version(row.name, row.folder, self._site)
            known = self._found.setdefault(row.name, {}).setdefault(version, [])
            known.append(f"{prefix}{row.id or version}")
        return made

    def _included(self, row: Row, open_files: tuple[Path, ...]) -> tuple[tuple[Path, ...], list[Row]] | None:
        if (rows := self._known.get(id(row))) is not None:
            return open_files, rows
        try:
            path, rows = included_rows(row, open_files, lambda text: None)
        except CompositionError:
            if isinstance(row.disabled, Expr):  # perhaps it is not read on this machine
                return None
            raise
        return (*open_files, path), rows


def _fields(row: Row) -> Iterator[tuple[str, Any]]:
    first = [key for key in ("id", "name") if key in row]
    last = ["config"] if "config" in row else []
    for key in (*first, *sorted(key for key in row if key not in (*first, *last)), *last):
        yield key, row[key]
