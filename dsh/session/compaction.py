"""The bracket of a compaction: what may stand in it, and where (`spec/session-log.md` §10).

A bracket lies inside the turn that it names, or between turns if it names none, so it is over where a turn
begins or ends; and with the process that opened it, which `session/end-seed` marks.
"""

from typing import Any, NamedTuple

from dsh.session.error import InvalidEvent
from dsh.session.value import safe_int


class Bracket(NamedTuple):
    """A compaction that has begun and not ended."""

    compaction_id: object
    command_id: object
    """`sourceCommandId`, None where no command asked for it."""


def bracket_of(data: Any) -> Bracket:
    """The bracket that an event or the source of a message names."""
    if not isinstance(data, dict):
        return Bracket(None, None)
    return Bracket(data.get("compactionId"), data.get("sourceCommandId"))


def check_compaction(kind: str, data: Any, opened: Bracket | None, turn: int | None) -> None:
    """Refuse an event of a compaction that does not fit the bracket and the turn that are open.

    Raises:
        InvalidEvent: the message says what is open and what the candidate names.
    """
    if kind == "compaction/start":
        if opened is not None:
            raise InvalidEvent(f"{kind} while compaction {opened.compaction_id!r:.60} is open")
    else:
        _check_named(kind, bracket_of(data), opened)
    if kind != "compaction/summary":
        _check_turn(kind, data, turn)


def check_checkpoint(data: Any, opened: Bracket | None) -> None:
    """Refuse a user message that is the checkpoint of another compaction than the open one.

    Where none is open it passes: recorded logs hold checkpoints alone.

    Raises:
        InvalidEvent: as `check_compaction`.
    """
    source = data["source"]
    if opened is not None and source.get("plugin") == "compact" and "compactionId" in source:
        _check_named("user/message", bracket_of(source), opened)


def _check_named(kind: str, named: Bracket, opened: Bracket | None) -> None:
    if named != opened:
        found = "none is open" if opened is None else f"open is {_shown(opened)}"
        raise InvalidEvent(f"{kind} names compaction {_shown(named)}, {found}")


def _check_turn(kind: str, data: Any, turn: int | None) -> None:
    named = data.get("turn") if isinstance(data, dict) else None
    if (named if named is None else safe_int(named)) != turn or (named is not None and turn is None):
        raise InvalidEvent(f"{kind} names turn {named!r:.40}, open is {turn}")


def _shown(bracket: Bracket) -> str:
    command = "" if bracket.command_id is None else f" of command {bracket.command_id!r:.60}"
    return f"{bracket.compaction_id!r:.60}{command}"
