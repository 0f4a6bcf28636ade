"""Opens the place where sessions are: what `--root` names, else where the profile keeps them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsh.cli.argv import DEFAULT_PROFILE
from dsh.cli.report import describe
from dsh.cli.sessions.place import Place
from dsh.cli.stream import notice
from dsh.composition.home import home_path
from dsh.errors import CompositionError, UsageError
from dsh.persistence.backend import Backend

if TYPE_CHECKING:
    from dsh.cli.sessions.configured import Storage

USER_FILES = ("dsh.patch.yml", "profiles/{profile}/profile.yml", "profiles/{profile}/dsh.patch.yml")
"""What of a home can change a profile; named here too, so that a home without any costs no composition."""
JOURNAL_MODES: tuple[Literal["wal", "delete", "truncate", "persist"], ...] = (
    "wal", "delete", "truncate", "persist",
)  # fmt: skip
SQLITE_MAGIC = b"SQLite format 3\0"
"""How every SQLite database begins (sqlite.org/fileformat.html, section 1.3)."""


def open_place(place: Place, *, is_certain: bool = False) -> Backend[Any]:
    """The backend where sessions are. Nothing is created.

    Args:
        is_certain: refuse where the place can only be guessed, as what deletes has to.

    Raises:
        UsageError: `--root` names nothing that could hold sessions.
        CompositionError: no such profile; with `is_certain` also one that cannot be composed.
    """
    if place.root:
        return _opened(Path(place.root).absolute())
    home = home_path()
    default = home / "sessions"
    profile = place.profile or DEFAULT_PROFILE
    if not _may_differ(profile, home):
        return _jsonl(default)
    from dsh.composition.profile import find_profile

    if place.profile:
        find_profile(profile, home)
    try:
        return _backend(_configured(profile, home))
    except (CompositionError, OSError) as error:
        if is_certain:
            raise _as_composition_error(error) from error
        notice(f"dsh: profile {profile!r} does not tell where its sessions are: {describe(error)}")
        notice(f"hint: {default} is looked at instead; --root PATH names another place")
        return _jsonl(default)


def _as_composition_error(error: CompositionError | OSError) -> CompositionError:
    if isinstance(error, CompositionError):
        return error
    return CompositionError(describe(error), hint="say where the sessions are: --root PATH")


def _may_differ(profile: str, home: Path) -> bool:
    """Whether it could keep them elsewhere than the shipped bundles say; a few names are looked up."""
    if profile != DEFAULT_PROFILE:
        return True
    return any(os.path.lexists(home / name.format(profile=profile)) for name in USER_FILES)


def _configured(profile: str, home: Path) -> "Storage":
    from dsh.cli.sessions.configured import configured_storage

    return configured_storage(profile, home)


def _backend(storage: "Storage") -> Backend[Any]:
    if storage.kind == "sqlite":
        return _sqlite(storage.path, storage.journal_mode)
    return _jsonl(storage.path, storage.is_plain)


def _jsonl(root: Path, is_plain: bool = False) -> Backend[Any]:
    from dsh.persistence.jsonl.backend import JsonlBackend

    return JsonlBackend(root, encoding="plain" if is_plain else "zstd")


def _sqlite(path: Path, journal_mode: object) -> Backend[Any]:
    """A database, written in the journal mode that is asked for, else the one it has."""
    from dsh.persistence.sqlite.backend import SqliteBackend

    for mode in JOURNAL_MODES:
        if journal_mode == mode:
            return SqliteBackend(path, journal_mode=mode)
    return SqliteBackend(path, journal_mode="delete" if _has_rollback_journal(path) else "wal")


def _has_rollback_journal(path: Path) -> bool:
    """Whether the database is there and not in WAL mode: bytes 18 and 19 of the file are 1, not 2."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\1\1"
    except OSError:
        return False


def _opened(path: Path) -> Backend[Any]:
    """What `--root` names, told by what is there."""
    hint = "name a folder of sessions or a SQLite database of them"
    try:
        if path.is_dir():
            return _jsonl(path)
        if not path.exists():
            raise UsageError(f"--root {path} does not exist", hint=hint)
        if path.is_file():  # nothing else is opened: a pipe would wait
            with path.open("rb") as file:
                if file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
                    return _sqlite(path, None)
    except OSError as error:
        raise UsageError(f"--root {path}: {error.strerror}", hint=hint) from error
    raise UsageError(f"--root {path} is neither a folder nor a SQLite database", hint=hint)
