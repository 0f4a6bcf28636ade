"""Where a profile keeps its sessions: what its persistence row says, without starting or importing any row.

Loaded only where a file of the home could say something else than the shipped bundles.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dsh.composition.compose import Composition, compose
from dsh.composition.environment import load_environment
from dsh.composition.expression.evaluation import config_data
from dsh.composition.mount.facts import Facts, says_disabled, scope_of
from dsh.composition.mount.include import included_rows
from dsh.composition.plugin_name import normalise
from dsh.composition.row import INCLUDE, Row
from dsh.composition.value import Map
from dsh.errors import CompositionError


class Storage(NamedTuple):
    """What holds the sessions: a folder of logs, or a database."""

    kind: Literal["jsonl", "sqlite"]
    path: Path
    is_plain: bool = False
    """New logs are not compressed."""
    journal_mode: Any = None
    """What the row says of the database, if it does."""


MEMORY = ":memory:"
_ROWS: dict[str, tuple[Literal["jsonl", "sqlite"], str]] = {
    "session-persistence-jsonl": ("jsonl", "root"),
    "session-persistence-sqlite": ("sqlite", "path"),
}
"""The rows that store sessions, and the key that says where."""


def configured_storage(profile: str, home: Path) -> Storage:
    """Where a run of this profile in this directory would keep its session.

    Raises:
        CompositionError: the profile does not compose, no row or more than one stores sessions, or a start
            alone can tell where: the place depends on a service.
    """
    cwd = Path.cwd()
    environment, _ = load_environment(cwd, home, os.environ)
    composition = compose(profile, [], home)
    facts = Facts(home, profile, str(cwd), environment.mapping())
    found = list(_persistence_rows(composition, facts))
    if len(found) != 1:
        what = "no row" if not found else "more than one row"
        raise CompositionError(
            f"{what} of profile {profile!r} stores sessions in a way that dsh sessions can read",
            hint="say where they are: --root PATH",
        )
    return _storage(found[0], facts)


def _persistence_rows(composition: Composition, facts: Facts) -> Iterator[Row]:
    return _enabled(composition.rows, facts, ())


def _enabled(rows: list[Row], facts: Facts, open_files: tuple[Path, ...]) -> Iterator[Row]:
    for row in rows:
        if normalise(row.name) not in _ROWS and row.name != INCLUDE and not row.carries_rows:
            continue
        if says_disabled(row, facts):
            continue
        if row.carries_rows:
            yield from _enabled(row.children, facts, open_files)
        elif row.name == INCLUDE:
            path, inside = included_rows(row, open_files, lambda text: None)
            yield from _enabled(inside, facts, (*open_files, path))
        else:
            yield row


def _storage(row: Row, facts: Facts) -> Storage:
    kind, key = _ROWS[normalise(row.name)]
    config = row.config
    if isinstance(config, Map):  # the rest may need services
        config = {name: config[name] for name in (key, "compression", "journalMode") if name in config}
    said = config_data(config, scope_of(facts))
    value = said.get(key) if isinstance(said, dict) else None
    if not isinstance(value, str) or not value:
        raise CompositionError(f"{row.value_at('config')}: {key} of row {row.label} names no place")
    if kind == "sqlite" and value == MEMORY:
        raise CompositionError(
            f"{row.value_at('config')}: row {row.label} keeps sessions in memory only: none is stored"
        )
    return Storage(kind, Path(value).absolute(), said.get("compression") == "none", said.get("journalMode"))
