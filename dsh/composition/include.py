"""The rows of a `cordis:include`: another file's, as a tree of its own with its own patches."""

import os
from pathlib import Path

from dsh.composition.grammar import Warn, read_patches, rows_of
from dsh.composition.patch import Layer, apply_layers
from dsh.composition.row import Patch, Row, RowError
from dsh.composition.value import Map, Mark, Seq, type_name
from dsh.composition.yaml import read_yaml

MAX_FILES = 32
"""How long a chain of includes may be."""
EXTENSIONS = (".yml", ".yaml", ".json")
_KEYS = ("path", "initial", "patches", "enableLogs")


def included_rows(row: Row, open_files: tuple[Path, ...], warn: Warn) -> tuple[Path, list[Row]]:
    """Read the file that an include row names and apply the row's patches.

    `initial` stands in for a file that is absent; nothing is written. Patches from outside never reach in.

    Raises:
        CompositionError: wrong config, an unreadable file, or a file that includes itself.
    """
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
    if os.path.lexists(path):
        document = read_yaml(path)
        if document is None:
            raise RowError(
                "the file must be one top-level list of rows", Mark(str(path), 1, 1), hint="write []"
            )
    elif (document := config.get("initial")) is None:
        raise RowError(f"config file not found: {path}", at)
    if not isinstance(document, Seq):
        found = type_name(document)
        raise RowError("the file must be one top-level list of rows, found " + found, Mark(str(path), 1, 1))
    base = Patch(document.mark)
    base["insert"] = rows_of(document, warn)
    patches = read_patches(config.get("patches"), str(path), warn)
    rows, missed = apply_layers([Layer(str(path), [base]), Layer(row.label, patches)])
    for miss in missed:
        warn(miss.text)
    return path, rows
