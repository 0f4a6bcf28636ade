"""The composed rows as one YAML document with their provenance in comments.

Written by hand: our own reader has to read it back to the same rows, and the library's writer would
choose other forms.
"""

import re
from collections.abc import Iterator
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.row import Row
from dsh.composition.value import Expr, quoted
from dsh.masking import masked

_SAFE = re.compile(r"(?:\.{0,2}/|[A-Za-z_])[A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*\Z")
_BLOCK = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WORDS = frozenset(["true", "false", "null"])
_LONGEST_KEY = 120
"""YAML reads a key of 1,024 characters at most, unless it stands on a line of its own."""


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


def dump_rows(rows: list[Row]) -> Iterator[str]:
    """The lines of a list of rows, without comments; what looks like a key or a password is masked."""
    return _sequence([shown(canonical(row)) for row in rows], "")


def dump_mapping(items: dict[str, Any]) -> Iterator[str]:
    """The lines of any other document, masked in the same way."""
    return _mapping(shown(items), "")


def shown(value: Any) -> Any:
    """The value with `***` for what looks like a key or a password, in expressions too."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Expr):
        return Expr(masked(value.text), value.mark)
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("id", "name") else shown(item) for key, item in value.items()}
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


def _sequence(items: list[Any], indent: str) -> Iterator[str]:
    for item in items:
        lines = list(_value(item, indent + "  "))
        yield f"{indent}- {lines[0].removeprefix(indent + '  ')}"
        yield from lines[1:]


def _mapping(items: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in items.items():
        lines = list(_value(value, indent + "  "))
        if len(_text(key)) > _LONGEST_KEY:
            yield f"{indent}? {_text(key)}"
            yield f"{indent}: {lines[0].strip(' ')}"
            yield from lines[1:]
        elif isinstance(value, dict | list) and value:
            yield f"{indent}{_text(key)}:"
            yield from lines
        else:
            yield f"{indent}{_text(key)}: {lines[0].strip(' ')}"
            yield from lines[1:]


def _value(value: Any, indent: str) -> Iterator[str]:
    """The lines of a value, each with its indentation; the first of a scalar too."""
    if isinstance(value, dict) and value:
        yield from _mapping(value, indent)
    elif isinstance(value, list) and value:
        yield from _sequence(value, indent)
    elif isinstance(value, str) and _is_block(value):
        yield f"{indent}|{'' if value.endswith(chr(10)) else '-'}"
        for line in value.removesuffix("\n").split("\n"):
            yield indent + line if line else ""
    else:
        yield indent + _scalar(value)


def _is_block(text: str) -> bool:
    """Whether a text is easier to read, and safe, as a literal block."""
    if "\n" not in text.rstrip("\n") or text.endswith("\n\n") or _BLOCK.search(text):
        return False
    first = text.split("\n", 1)[0]
    return bool(first) and not first.startswith(" ")


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Expr):
        return f"!expr {_expression(value.text)}"
    if isinstance(value, str):
        return _text(value)
    return "[]" if isinstance(value, list) else "{}"


def _text(text: str) -> str:
    return text if _SAFE.match(text) and text.lower() not in _WORDS else quoted(text)


def _expression(text: str) -> str:
    """Verbatim where YAML takes it plain, else quoted."""
    plain = re.fullmatch(r"[A-Za-z0-9(][^\n\r\t\x00-\x1f\x7f-\x9f]*", text)
    if plain and text == text.strip() and ": " not in text and " #" not in text and not text.endswith(":"):
        return text
    return quoted(text)
