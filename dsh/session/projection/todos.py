"""The to-do list of a session: the last one that was written, whole, until the next turn begins."""

from typing import Any, Literal, TypeAlias

import msgspec

from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.unit import Unit

TODO_EVENT = "todo/write"
TURN_EVENT = "turn/start"


class Todo(msgspec.Struct, frozen=True):
    """One thing to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


Todos: TypeAlias = tuple[Todo, ...]


def _init() -> Todos | None:
    return None


def _apply(todos: Todos | None, entry: Entry) -> Todos | None:
    """The list of this event, none for a turn that begins; what is no list leaves what was there."""
    if not isinstance(entry, SessionEvent):
        return todos
    if entry.type == TURN_EVENT:
        return None
    data = entry.data
    if not isinstance(data, dict):
        return todos
    try:
        found = msgspec.convert(data.get("todos"), Todos)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return todos
    return todos if found == todos else found


def _view(todos: Todos | None) -> list[dict[str, Any]] | None:
    if todos is None:
        return None
    return [{"content": todo.content, "status": todo.status} for todo in todos]


TODOS: Unit[Todos | None] = Unit(
    key="todos",
    version=2,
    state_type=Todos | None,
    init=_init,
    apply=_apply,
    types=frozenset({TODO_EVENT, TURN_EVENT}),
    view=_view,
)
"""State and view: a list of `{content, status}`; null before the first, and again when a turn begins."""
