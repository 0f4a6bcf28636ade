"""The rows of a `cordis:include`: another file's, as a tree of its own with its own patches."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from dsh.composition.grammar import Warn, read_patches, rows_of
from dsh.composition.patch import Layer, apply_layers
from dsh.composition.row import Patch, Row, RowError
from dsh.composition.text.source import read_bytes
from dsh.composition.text.yaml import parse_yaml
from dsh.composition.value import Map, Mark, Seq, type_name
from dsh.errors import CompositionError

MAX_FILES = 32
"""How long a chain of includes may be."""
EXTENSIONS = (".yml", ".yaml", ".json")
_KEYS = ("path", "initial", "patches", "enableLogs")


class Included(NamedTuple):
    """What an include row brings: the file as it was read, and its rows with the row's patches applied."""

    path: Path
    rows: list[Row]
    document: Seq
    """The rows as they are written, never changed."""
    data: bytes | None
    """The bytes of the file; None where there is none and `initial` stands in."""


def included_rows(row: Row, open_files: tuple[Path, ...], warn: Warn) -> tuple[Path, list[Row]]:
    """Read the file that an include row names and apply the row's patches (see `read_included`)."""
    found = read_included(row, open_files, warn)
    return found.path, found.rows


def read_included(
    row: Row, open_files: tuple[Path, ...], warn: Warn, known: Included | None = None
) -> Included:
    """The rows of an include: its file's, with the row's own patches applied.

    `initial` stands in for a file that is absent; nothing is written. Patches from outside never reach in.

    Args:
        open_files: the files around it, from the outermost.
        known: what the row brought before; its document is used again if the path is still the same.

    Raises:
        CompositionError: wrong config, an unreadable file, or a file that includes itself.
    """
    path = _path_of(row, open_files)
    if known is not None and known.path == path:
        document, data = known.document, known.data
    else:
        document, data = _read(row, path)
    base = Patch(document.mark)
    base["insert"] = rows_of(document, warn)
    patches = read_patches(row.config.get("patches"), str(path), warn)
    rows, missed = apply_layers([Layer(str(path), [base]), Layer(row.label, patches)])
    for miss in missed:
        warn(miss.text)
    return Included(path, rows, document, data)


def _path_of(row: Row, open_files: tuple[Path, ...]) -> Path:
    config = row.config
    if not isinstance(config, Map) or not isinstance(config.get("path"), str):
        raise RowError("config.path must name a file", row.value_at("config"))
    for key in config:
        if key not in _KEYS:
            raise RowError(
                f"unknown key {key!r} in the config of an include",
                config.key_at(key),
                hint=f"known keys: {', '.join(_KEYS)}",
            )
    _check_switch(config)
    at = config.value_at("path")
    try:
        path = row.folder.joinpath(config["path"]).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a loop of links
        raise RowError(f"config.path names no file ({error})", at) from None
    if path.suffix not in EXTENSIONS:
        raise RowError(
            f'extension "{path.suffix}" not supported', at, hint="name a .yml, .yaml or .json file"
        )
    if path in open_files:
        raise RowError(f"{path} includes itself", at)
    if len(open_files) >= MAX_FILES:
        raise RowError(f"more than {MAX_FILES} files include each other", at)
    return path


def _check_switch(config: Map) -> None:
    if not isinstance(config.get("enableLogs"), bool | None):
        found = type_name(config["enableLogs"])
        raise RowError(f"enableLogs must be true or false, found {found}", config.value_at("enableLogs"))


def _read(row: Row, path: Path) -> tuple[Seq, bytes | None]:
    document: Any = None
    data: bytes | None = None
    if os.path.lexists(path):
        try:
            data = read_bytes(path)
        except OSError as error:
            raise CompositionError(f"failed to read config file {path}: {error.strerror}") from None
        document = parse_yaml(data, str(path))
        if document is None:
            raise RowError(
                "the file must be one top-level list of rows", Mark(str(path), 1, 1), hint="write []"
            )
    elif (document := row.config.get("initial")) is None:
        raise RowError(f"config file not found: {path}", row.config.value_at("path"))
    if not isinstance(document, Seq):
        found = type_name(document)
        raise RowError("the file must be one top-level list of rows, found " + found, Mark(str(path), 1, 1))
    return document, data
