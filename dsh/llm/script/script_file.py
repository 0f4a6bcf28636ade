"""Reads the replies of a scripted model from a file or a row, every mistake with its place."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsh.composition.text.yaml import read_yaml
from dsh.composition.value import Expr, Map, Mark, MarkedError, Seq
from dsh.kernel.schema import ValidationError, resolve_config
from dsh.llm.script.reply import Reply


class PlacedReply(msgspec.Struct, frozen=True):
    """A reply and where it is written, for messages."""

    reply: Reply
    place: str


def read_replies(path: Path) -> list[PlacedReply]:
    """The replies of a YAML file, which is a list of them.

    Raises:
        CompositionError: it cannot be read, or a reply is wrong; with file, line and column.
    """
    value = read_yaml(path)
    if not isinstance(value, Seq):
        mark = value.mark if isinstance(value, Map) else Mark(str(path), 1, 1)
        raise MarkedError(
            "a script is a list of replies", mark, hint="begin each reply with a dash: - text: …"
        )
    return [_placed(item, value.item_at(index)) for index, item in enumerate(value)]


def given_replies(values: Sequence[Any]) -> list[PlacedReply]:
    """The replies that stand in a row, under `replies`.

    Raises:
        ValidationError: one is wrong; with its path in the row's config.
    """
    out = []
    for index, value in enumerate(values):
        try:
            out.append(PlacedReply(resolve_config(Reply, value), f"replies[{index}]"))
        except ValidationError as error:
            at = ".".join(filter(None, ("replies", str(index), error.path)))
            raise ValidationError(error.problem, at, unknown=error.unknown, hint=error.hint) from None
    return out


def _placed(item: Any, mark: Mark) -> PlacedReply:
    _refuse_expressions(item)
    try:
        return PlacedReply(resolve_config(Reply, item), str(mark))
    except ValidationError as error:
        at = _place(item, mark, error.path, error.unknown)
        raise MarkedError(error.problem, at, hint=error.hint) from None


def _place(value: Any, mark: Mark, path: str, unknown: str) -> Mark:
    """The place of what a dotted path leads to; of its last part that is written where it leads nowhere."""
    for part in path.split(".") if path else ():
        if isinstance(value, Map) and part in value:
            value, mark = value[part], value.value_at(part)
        elif isinstance(value, Seq) and part.isdecimal() and int(part) < len(value):
            value, mark = value[int(part)], value.item_at(int(part))
        else:
            break
    return value.key_at(unknown) if unknown and isinstance(value, Map) else mark


def _refuse_expressions(value: Any) -> None:
    if isinstance(value, Expr):
        raise MarkedError("a script has no expressions", value.mark, hint="quote it if text is meant")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_expressions(item)
