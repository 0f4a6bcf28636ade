"""What a start would say of the files that rows include, told without mounting or evaluating anything.

Loaded where a row includes a file at all.
"""

from pathlib import Path

from dsh.composition.mount.include import included_rows
from dsh.composition.patch import Warned
from dsh.composition.row import INCLUDE, Row
from dsh.errors import CompositionError


def warnings_of_includes(rows: list[Row]) -> list[Warned]:
    """The misses inside every file that is included for sure: by a row that nothing disables.

    Where an expression decides, nobody can tell before the start. A file that an `optional` row includes and
    that cannot be read is a warning as well.

    Raises:
        CompositionError: an included file cannot be read or applied.
    """
    found: list[Warned] = []
    _visit(rows, "", (), found)
    return found


def _visit(rows: list[Row], prefix: str, open_files: tuple[Path, ...], found: list[Warned]) -> None:
    for row in rows:
        if row.disabled:  # true, or an expression
            continue
        if row.name == INCLUDE:
            _include(row, prefix, open_files, found)
        _visit(row.children, prefix, open_files, found)


def _include(row: Row, prefix: str, open_files: tuple[Path, ...], found: list[Warned]) -> None:
    label = prefix + (row.id or INCLUDE)
    try:
        path, rows = included_rows(row, open_files, lambda text: found.append(Warned(label, text)))
    except CompositionError as error:
        if not row.is_optional:
            raise
        found.append(Warned(label, error.message))
        return
    _visit(rows, f"{label}:", (*open_files, path), found)
