"""Changes values in a YAML text and leaves every other byte of it alone: comments, order, quotes, line ends.

Each step is one change in the text, and after each the text is read back with the reader of `yaml.py`:
unless it says exactly what was wanted, the edit is refused and nothing has happened.
"""

import math
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from dsh.composition.text.splice import Splicer
from dsh.composition.text.syntax import Node, parse_syntax
from dsh.composition.text.yaml import parse_yaml
from dsh.composition.value import Expr, Mark, MarkedError, quoted, type_name

Path = tuple[str | int, ...]
"""Keys of mappings and indices of lists, from the top of the document; empty: the document itself."""


class Edit(NamedTuple):
    """One change. `set` makes missing mappings above it; `unset` of what is absent does nothing."""

    op: Literal["set", "unset"]
    path: Path
    value: Any = None
    """JSON data or `Expr`. An index equal to a list's length appends."""


class EditError(MarkedError):
    """A text cannot be changed in this way; it stays as it is."""


def edited(text: str, file: str, edits: Sequence[Edit]) -> str:
    """The text with all edits made, in their order. Made twice, they change nothing the second time.

    Where a mapping is set over a mapping, or a list over a list, only what differs between the two is
    touched. New lines are indented as the file's own are.

    Args:
        file: names the text in messages.

    Raises:
        YamlError: the text is not of our dialect.
        EditError: a path leads through something that holds nothing, a value is not JSON data, or the text is
            written in a way (an alias, for instance) that this change would spoil.
    """
    value = wanted = parse_yaml(text.encode(), file)
    for edit in edits:
        wanted = _applied(wanted, edit, file)
    while (step := _difference(value, wanted, ())) is not None:
        text, value = _stepped(text, value, step, file)
    return text


def _stepped(text: str, value: Any, step: "_Step", file: str) -> tuple[str, Any]:
    """The text after one step, and what it reads as.

    Raises:
        EditError: the result would not read as wanted.
    """
    expected = _step_applied(value, step)
    bom, body = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    problem = ""
    try:
        made = bom + _splice(body, value, step)
        if _same(read := parse_yaml(made.encode(), file), expected):
            return made, read
    except MarkedError as error:
        problem = f": {error.problem}"
    except ValueError as error:
        problem = f": {error}"
    where = ".".join(str(part) for part in step.path) or "the document"
    raise EditError(
        f"{where} cannot be changed in place{problem}",
        _mark(value, step.path, file),
        hint="change it by hand; aliases and unusual forms of YAML are left to their author",
    )


def _splice(text: str, value: Any, step: "_Step") -> str:
    """The text after one step, not yet read back. `value` is what the text reads as.

    Raises:
        ValueError: the value to be changed is not written out where it stands.
    """
    root = parse_syntax(text)
    splicer = Splicer(text, root)
    if not step.path:
        return splicer.replace_root(step.value)
    node = root
    for part in step.path[:-1]:
        node = _collection(node).items[_position(value, part)]
        value = value[part]
    holder, last = _collection(node), step.path[-1]
    if step.kind == "insert":
        return splicer.insert(holder, last, step.value)
    if step.kind == "unset":
        return splicer.remove(holder, _position(value, last))
    return splicer.replace(holder, _position(value, last), step.value)


def _collection(node: Node | None) -> Node:
    if node is None or node.kind not in ("map", "seq"):
        raise ValueError("it is an alias")
    return node


def _position(value: Any, part: str | int) -> int:
    return part if isinstance(part, int) else list(value).index(part)


class _Step(NamedTuple):
    """The smallest change: replace a value, insert a key or item, or take one out."""

    kind: Literal["replace", "insert", "unset"]
    path: Path
    value: Any = None


def _difference(old: Any, new: Any, path: Path) -> _Step | None:
    """The first step on the way from one value to another."""
    if _same(old, new):
        return None
    if isinstance(old, dict) and isinstance(new, dict) and old and new and not _is_rewritten(old, new):
        for key in old:
            if key not in new:
                return _Step("unset", (*path, key))
        for key, item in new.items():
            if key not in old:
                return _Step("insert", (*path, key), item)
            if (step := _difference(old[key], item, (*path, key))) is not None:
                return step
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return _list_difference(old, new, path)
    return _Step("replace", path, new)


def _is_rewritten(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Nothing would be left of the old mapping on the way."""
    return not any(key in new for key in old)


def _list_difference(old: list[Any], new: list[Any], path: Path) -> _Step:
    matcher = SequenceMatcher(a=[_key(one) for one in old], b=[_key(one) for one in new], autojunk=False)
    for tag, i1, _, j1, _ in matcher.get_opcodes():
        if tag == "insert":
            return _Step("insert", (*path, i1), new[j1])
        if tag == "delete":
            return _Step("unset", (*path, i1)) if len(old) > 1 else _Step("replace", path, new)
        if tag == "replace":
            step = _difference(old[i1], new[j1], (*path, i1))
            if step is not None:
                return step
    return _Step("replace", path, new)


def _key(value: Any) -> str:
    """Equal for equal values, and for no others."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(key)}:{_key(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_key, value)) + "]"
    return quoted(value) if isinstance(value, str) else f"{type(value).__name__}:{value!r}"


def _same(one: Any, other: Any) -> bool:
    """Equal also in type: true is not 1. The order of keys does not count."""
    return _key(one) == _key(other)


def _step_applied(value: Any, step: _Step) -> Any:
    """A copy of the value with one step made."""
    if not step.path:
        return step.value
    made: Any = dict(value) if isinstance(value, dict) else list(value)
    part, rest = step.path[0], step.path[1:]
    if rest:
        made[part] = _step_applied(made[part], step._replace(path=rest))
    elif step.kind == "unset":
        del made[part]
    elif step.kind == "insert" and isinstance(part, int):
        made.insert(part, step.value)
    else:
        made[part] = step.value
    return made


def _applied(value: Any, edit: Edit, file: str, depth: int = 0) -> Any:
    """A copy of the value with one edit made.

    Raises:
        EditError: the path leads through something that holds nothing.
    """
    if depth == len(edit.path):
        return _plain(edit.value) if edit.op == "set" else None
    part = edit.path[depth]
    if value is None and isinstance(part, str):
        if edit.op == "unset":
            return None
        return {part: _applied(None, edit, file, depth + 1)}
    is_last = depth + 1 == len(edit.path)
    if isinstance(value, dict) and isinstance(part, str):
        if edit.op == "unset" and part not in value:
            return value
        made: Any = dict(value)
        if edit.op == "unset" and is_last:
            del made[part]
        else:
            made[part] = _applied(value.get(part), edit, file, depth + 1)
        return made
    if isinstance(value, list) and isinstance(part, int) and 0 <= part <= len(value):
        return _list_applied(value, edit, file, depth)
    where = ".".join(map(str, edit.path[:depth])) or "the document"
    wanted = "mapping" if isinstance(part, str) else f"list of {part} or more items"
    mark = getattr(value, "mark", Mark(file, 1, 1))
    raise EditError(f"{where} is {type_name(value)}, not a {wanted}, so {part!r} cannot be in it", mark)


def _list_applied(value: list[Any], edit: Edit, file: str, depth: int) -> list[Any]:
    made, part = list(value), edit.path[depth]
    assert isinstance(part, int)
    if part == len(made):
        return made if edit.op == "unset" else [*made, _applied(None, edit, file, depth + 1)]
    if edit.op == "unset" and depth + 1 == len(edit.path):
        del made[part]
    else:
        made[part] = _applied(made[part], edit, file, depth + 1)
    return made


def _plain(value: Any) -> Any:
    """The value as our reader gives it back: integral floats are integers.

    Raises:
        EditError: it is not JSON data.
    """
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    elif isinstance(value, float):
        if math.isfinite(value):
            return int(value) if value.is_integer() else value
    elif value is None or isinstance(value, bool | int | str | Expr):
        return value
    raise EditError(f"{value!r:.60} is not JSON data", Mark("the new value", 1, 1))


def _mark(value: Any, path: Path, file: str) -> Mark:
    """The nearest place in the file to a path."""
    mark = getattr(value, "mark", Mark(file, 1, 1))
    for part in path:
        if isinstance(value, dict) and part in value and hasattr(value, "key_at"):
            mark, value = value.key_at(part), value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            mark, value = value.item_at(part) if hasattr(value, "item_at") else mark, value[part]
        else:
            break
    return mark
