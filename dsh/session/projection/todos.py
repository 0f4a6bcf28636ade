"""The to-do list of a session: the last one that was written, whole."""

from typing import Any, Literal, TypeAlias

import msgspec

from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.unit import Unit

TODO_EVENT = "todo/write"


class Todo(msgspec.Struct, frozen=True):
    """One thing to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


Todos: TypeAlias = tuple[Todo, ...]


def _init() -> Todos:
    return ()


def _apply(todos: Todos, entry: Entry) -> Todos:
    """The list of this event; one that is none leaves what was there."""
    data = entry.data if isinstance(entry, SessionEvent) else None
    if not isinstance(data, dict):
        return todos
    try:
        found = msgspec.convert(data.get("todos"), Todos)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return todos
    return todos if found == todos else found


def _view(todos: Todos) -> list[dict[str, Any]]:
    return [{"content": todo.content, "status": todo.status} for todo in todos]


TODOS: Unit[Todos] = Unit(
    key="todos",
    version=1,
    state_type=Todos,
    init=_init,
    apply=_apply,
    types=frozenset({TODO_EVENT}),
    view=_view,
)
"""State and view: a list of `{content, status}`, empty before the first."""
