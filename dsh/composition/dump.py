"""The composed rows as one YAML document with their provenance in comments.

Our own reader has to read it back to the same rows.
"""

from collections.abc import Iterator
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.row import Row
from dsh.composition.text.render import Layout, block
from dsh.composition.value import Expr
from dsh.masking import masked, masked_value

_LAYOUT = Layout(has_literals=True)


def dump(composition: Composition) -> str:
    """One loadable document of rows, ending in a newline; `[]` for an empty tree.

    Expressions are printed verbatim and never evaluated. Each run of rows with one provenance is
    preceded by `# == <origin>[, patched by <layer>, …]`; a row that lost keys to a replaced `config` by
    a line that names them. For `--dump-default-config` compose with `default_only=True`.
    """
    if not composition.rows:
        return "[]\n"
    lines: list[str] = []
    previous = ""
    for row in composition.rows:
        if (provenance := _provenance(row)) != previous:
            lines.append(provenance)
            previous = provenance
        lines += _losses(row)
        lines += dump_rows([row])
    return "\n".join(lines) + "\n"


def dump_rows(rows: list[Row]) -> list[str]:
    """The lines of a list of rows, without comments; what looks like a key or a password is masked."""
    return block([shown(canonical(row)) for row in rows], _LAYOUT)


def dump_mapping(items: dict[str, Any]) -> list[str]:
    """The lines of any other document, masked in the same way."""
    return block(shown(items), _LAYOUT)


def shown(value: Any, key: str = "") -> Any:
    """The value with `***` for what looks like a key or a password, in expressions too.

    Args:
        key: what it stands under: text under `token` or `dbPassword` is one, whatever it looks like.
    """
    if isinstance(value, str):
        return masked_value(key, value)
    if isinstance(value, Expr):
        return Expr(masked(value.text), value.mark)
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("id", "name") else shown(item, key) for key, item in value.items()}
    return value


def canonical(row: Row) -> dict[str, Any]:
    """The row with its keys in canonical order: id, name, the others by alphabet, config."""
    first = [key for key in ("id", "name") if key in row]
    last = ["config"] if "config" in row else []
    others = sorted(key for key in row if key not in (*first, *last))
    made = {key: row[key] for key in (*first, *others, *last)}
    if row.children:
        made["config"] = [canonical(child) for child in row.children]
    return made


def _provenance(row: Row) -> str:
    patched = f", patched by {', '.join(row.patched)}" if row.patched else ""
    return _comment(f"# == {row.origin}{patched}")


def _losses(row: Row) -> Iterator[str]:
    lost: dict[str, list[str]] = {}
    for label, path in row.dropped:
        if not _has(row.config, path):
            lost.setdefault(label, []).append(".".join(path))
    for label, paths in lost.items():
        yield _comment(f"# -- {row.id}: the config of {label} drops {', '.join(paths)}")
    for child in row.children:
        yield from _losses(child)


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _has(config: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(config, dict) or key not in config:
            return False
        config = config[key]
    return True
