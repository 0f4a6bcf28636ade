"""The rows of a `cordis:include`: another file's, as a tree of its own with its own patches."""

from pathlib import Path

from dsh.composition.grammar import Warn, read_patches, rows_of
from dsh.composition.patch import Layer, apply_layers
from dsh.composition.row import Patch, Row, RowError
from dsh.composition.value import Map, Mark, Seq, type_name
from dsh.composition.yaml import read_yaml
from dsh.errors import CompositionError

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
        raise RowError(f"{row.label}: config.path must name a file", row.value_at("config"))
    for key in config:
        if key not in _KEYS:
            raise RowError(
                f"{row.label}: unknown key {key!r} in the config of an include", config.key_at(key)
            )
    path = row.folder.joinpath(config["path"]).resolve()
    if path.suffix not in EXTENSIONS:
        raise RowError(f'extension "{path.suffix}" not supported', config.value_at("path"))
    if path in open_files:
        raise RowError(f"{row.label}: {path} includes itself", config.value_at("path"))
    initial = config.get("initial")
    document = read_yaml(path, missing_ok=initial is not None) if path.exists() else initial
    if document is None:
        problem = "failed to validate config file" if path.exists() else "config file not found:"
        raise CompositionError(f"{row.label}: {problem} {path}", hint="write [] for no rows")
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
