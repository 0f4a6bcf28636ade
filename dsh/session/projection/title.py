"""The title of a session: the last one that was written."""

from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.unit import Unit, text_at

TITLE_EVENT = "session/title"


def _init() -> str | None:
    return None


def _apply(title: str | None, entry: Entry) -> str | None:
    found = text_at(entry.data, "title") if isinstance(entry, SessionEvent) else None
    return title if found is None or found == title else found


def _view(title: str | None) -> str | None:
    return title


TITLE: Unit[str | None] = Unit(
    key="title",
    version=1,
    state_type=str | None,
    init=_init,
    apply=_apply,
    types=frozenset({TITLE_EVENT}),
    view=_view,
)
"""State and view: the title, null before the first."""
