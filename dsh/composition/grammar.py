"""What is allowed in rows and patches, checked where they are read and once more when they are composed.

Rules beyond the original's are those that `spec/composition.md` §1 and §4 mark as ours.
"""

from collections.abc import Callable, ItemsView
from typing import Any

from dsh.composition.expression.language import ExpressionError, check, find_expressions
from dsh.composition.row import INCLUDE, Patch, Row, RowError
from dsh.composition.value import Expr, Map, Mark, Seq, quoted, type_name

Warn = Callable[[str], None]
"""Takes the text of a warning; whoever reads a layer adds its label."""

ROW_FIELDS = ("id", "name", "config", "disabled", "group", "optional", "inject", "isolate", "intercept")
PATCH_FIELDS = (*ROW_FIELDS, "insert", "merge", "remove", "require", "before", "after")
_INSERT_FIELDS = ("id", "insert", "require", "before", "after")
_REMOVE_FIELDS = ("id", "name", "remove", "require")


def read_patches(document: Any, file: str, warn: Warn) -> list[Patch]:
    """The patches of a parsed file; none for an empty one.

    Raises:
        CompositionError: it is not a list of patches that keep the rules.
    """
    if document is None:
        return []
    if not isinstance(document, Seq):
        mark = document.mark if isinstance(document, Map) else Mark(file, 1, 1)
        found = type_name(document)
        raise RowError(f"the file must be one top-level list of patches, found {found}", mark)
    return [_patch(item, n, document.item_at(n), warn) for n, item in enumerate(document)]


def _patch(item: Any, number: int, mark: Mark, warn: Warn) -> Patch:
    if not isinstance(item, Map):
        raise RowError(
            f"entry {number + 1} must be a mapping (a loader patch entry), found {type_name(item)}",
            mark,
            hint=_blank_is_missing(item),
        )
    patch = Patch(item.mark)
    _take_over(patch, item)
    _check_text(patch, "id", mark)
    _check_text(patch, "name", mark)
    for key in ("remove", "require"):
        if key in patch and not isinstance(patch[key], bool):
            raise RowError(f"{key} must be true or false, found {type_name(patch[key])}", patch.value_at(key))
    for key in ("before", "after"):
        if key in patch and not (isinstance(patch[key], str) and patch[key]):
            raise RowError(f"{key} must be the id of a row", patch.value_at(key))
    if "insert" in patch and patch["insert"] is not None:
        _check_insert(patch, warn)
    elif patch.get("remove"):
        if extra := [key for key in patch if key not in _REMOVE_FIELDS]:
            raise RowError(
                f"remove: true stands alone; {extra[0]} has no use beside it", patch.key_at(extra[0])
            )
    else:
        _check_row_patch(patch, warn)
    return patch


def _check_insert(patch: Patch, warn: Warn) -> None:
    rows = patch["insert"]
    if not isinstance(rows, Seq):
        raise RowError(f"insert must be a list of rows, found {type_name(rows)}", patch.value_at("insert"))
    if "before" in patch and "after" in patch:
        raise RowError("before and after exclude each other", patch.key_at("after"))
    for key in patch:
        if key not in _INSERT_FIELDS:
            warn(f"patch insert: {key} beside insert has no effect ({_line(patch.key_at(key))})")
    patch["insert"] = rows_of(rows, warn)


def _check_row_patch(patch: Patch, warn: Warn) -> None:
    for key in ("before", "after"):
        if key in patch:
            raise RowError(f"{key} belongs to an insert", patch.key_at(key))
    if "merge" in patch:
        if "config" in patch:
            raise RowError("merge and config exclude each other", patch.key_at("merge"))
        if not isinstance(patch["merge"], Map):
            found = type_name(patch["merge"])
            raise RowError(f"merge must be a mapping, found {found}", patch.value_at("merge"))
    _check_fields(patch, warn, PATCH_FIELDS)


def rows_of(items: Seq, warn: Warn) -> Seq:
    """The same list with checked `Row`s in it.

    Raises:
        CompositionError: an item is not a mapping, or breaks a rule of rows.
    """
    rows = Seq(items.mark)
    rows.items_at = items.items_at
    for n, item in enumerate(items):
        rows.append(item if isinstance(item, Row) else _row(item, items.item_at(n), warn))
    return rows


def _row(item: Any, mark: Mark, warn: Warn) -> Row:
    if not isinstance(item, Map):
        raise RowError(
            f"a row must be a mapping, found {type_name(item)}", mark, hint=_blank_is_missing(item)
        )
    row = Row(item.mark)
    _take_over(row, item)
    if "id" in row:
        _check_text(row, "id", mark, is_required=True)
    name = row.get("name")
    if not isinstance(name, str) or not name:
        found = f", found {type_name(name)}" if "name" in row else ""
        raise RowError(
            f"row {row.get('id') or '(no id)'} needs a name, a non-empty string{found}", row.key_at("name")
        )
    _check_fields(row, warn, ROW_FIELDS)
    adopt_children(row, warn)
    return row


def adopt_children(row: Row, warn: Warn) -> None:
    """Make the children of a group row `Row`s, if they are not yet.

    Raises:
        CompositionError: `config` is not a list of rows.
    """
    if not row.carries_rows:
        return
    config = row.get("config")
    if config is None:
        return
    if not isinstance(config, Seq):
        raise RowError(
            f"config of group {row.label} must be a list of rows, found {type_name(config)}",
            row.value_at("config"),
        )
    row["config"] = rows_of(config, warn)


def _take_over(target: Map, item: Map) -> None:
    target.update(item)
    target.keys_at, target.values_at = item.keys_at, item.values_at


def _check_text(item: Map, key: str, mark: Mark, *, is_required: bool = False) -> None:
    value = item.get(key)
    if (value is None or value == "") and not is_required:
        return
    if not isinstance(value, str) or not value:
        raise RowError(f"{key} must be a non-empty string, found {type_name(value)}", item.value_at(key))
    if key == "id" and ":" in value:
        raise RowError(f"id {quoted(value)} must not hold a colon", item.value_at(key))


def _check_fields(item: Map, warn: Warn, known: tuple[str, ...]) -> None:
    for key, value in item.items():
        at = item.value_at(key)
        if key not in known:
            warn(f"unknown field {quoted(key)} ({item.key_at(key)}){_meant(key, known)}")
        if key in ("config", "merge"):
            _check_expressions(value)
            continue
        if key == "disabled":
            if isinstance(value, Expr):
                value.checked = check(value, allow_services=False)
            elif value is not None and not isinstance(value, bool):
                raise RowError(
                    f"disabled must be true, false, null or an expression, found {type_name(value)}",
                    at,
                    hint="true and false are the only booleans here",
                )
            continue
        for _, expr in find_expressions(value):
            raise RowError(
                f"an expression has no place in {key}; only config and disabled take one", expr.mark
            )
        if key in ("group", "optional") and value is not None and not isinstance(value, bool):
            raise RowError(f"{key} must be true, false or null, found {type_name(value)}", at)
        if key == "inject":
            _check_inject(value, at)
        elif key == "isolate":
            _check_isolate(value, at)
        elif key == "intercept":
            _check_intercept(value, at)


def _check_expressions(value: Any) -> None:
    for _, expr in find_expressions(value):
        expr.checked = check(expr)


def services_of(inject: Any) -> list[Any]:
    """The services that the `inject` of a row names: one, or those of a list or mapping."""
    return [inject] if isinstance(inject, str) else list(inject or ())


def _check_inject(value: Any, at: Mark) -> None:
    if value is None:
        return
    if not isinstance(value, str | list | dict):
        raise RowError(
            f"inject must be a service's name, or a list or mapping of them, found {type_name(value)}", at
        )
    for name in services_of(value):
        if not isinstance(name, str) or not name:
            found = "an empty text" if name == "" else type_name(name)
            raise RowError(f"inject holds {found}, not the name of a service", at)


def _check_isolate(value: Any, at: Mark) -> None:
    for name, label in _by_service("isolate", value, at):
        if label is not True and not (isinstance(label, str) and label):
            raise RowError(f"isolate of {name} must be true or a label, found {type_name(label)}", at)


def _check_intercept(value: Any, at: Mark) -> None:
    for name, settings in _by_service("intercept", value, at):
        if settings is not None and not isinstance(settings, dict):
            raise RowError(f"intercept of {name} must be a mapping, found {type_name(settings)}", at)


def _by_service(field: str, value: Any, at: Mark) -> ItemsView[str, Any]:
    """The items of a mapping of service names; none where the field is null."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise RowError(f"{field} must be a mapping of service names, found {type_name(value)}", at)
    if "" in value:
        raise RowError(f"{field} holds an empty text, not the name of a service", at)
    return value.items()


def check_tree(rows: list[Row]) -> None:
    """Judge the composed rows as a whole.

    Raises:
        CompositionError: an id stands twice in the tree, or a group's or include's config is an expression.
    """
    seen: dict[str, Row] = {}

    def visit(row: Row) -> None:
        if isinstance(row.config, Expr) and (row.carries_rows or row.name == INCLUDE):
            raise ExpressionError(f"the config of {row.label} cannot be an expression as a whole", row.config)
        if row.id is not None:
            if other := seen.get(row.id):
                raise RowError(
                    f"duplicate loader entry id: {row.id} (first at {other.mark})",
                    row.value_at("id"),
                    hint="give one of the two rows another id",
                )
            seen[row.id] = row
        for child in row.children:
            visit(child)

    for row in rows:
        visit(row)


FULL_WIDTH_COLON = "\uff1a"
"""What a Chinese or Japanese keyboard gives for a colon; to YAML it is a letter."""
LONGEST_WORD = 100
"""Of longer words nobody asks which other one is like them: comparing takes the square of their length."""


def closest(word: str, known: list[str]) -> list[str]:
    """Up to three known words that look like this one."""
    from difflib import get_close_matches

    if len(word) > LONGEST_WORD:
        return []
    return get_close_matches(word, [one for one in known if len(one) <= LONGEST_WORD], n=3, cutoff=0.6)


def _meant(key: str, known: tuple[str, ...]) -> str:
    found = closest(key, list(known))
    return (
        f"; did you mean {quoted(found[0])}?"
        if found
        else "; options of the plugin stand under merge or config"
    )


def _blank_is_missing(item: Any) -> str:
    """The hint for `id:llm` and `id：llm`, which read as one text."""
    if isinstance(item, str) and item.partition(FULL_WIDTH_COLON)[0].strip() in PATCH_FIELDS:
        return f"{quoted(FULL_WIDTH_COLON)} is a full-width colon; YAML knows only : with a blank behind it"
    key, colon, value = item.partition(":") if isinstance(item, str) else ("", "", "")
    return f"a blank follows the colon: {key}: {value}" if colon and key in PATCH_FIELDS else ""


def _line(mark: Mark) -> str:
    return f"line {mark.line}"
