"""Payloads of the session's own state: the inbox, the end of a seed, titles, todos, feedback, the preset."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.payload.block import any_message, user_message
from dsh.session.payload.request import ModelRoute
from dsh.session.payload.shape import Count, Payload, at, choice, each, payload, shape
from dsh.session.value import JsonObject


class InboxSpliced(TypedDict):
    """Waiting messages were put in, taken or cancelled: one splice of one of two lists."""

    target: Literal["next-turn", "next-step"]
    start: Count
    removedCount: NotRequired[Count]
    """Left out where nothing is removed."""
    inserted: Sequence[Any]
    """Messages of role `user`, often none."""
    outcome: NotRequired[Literal["canceled"]]
    """What was removed is discarded; without it the loop has taken it."""


class EndSeed(TypedDict):
    """What was given to the session ends here. Only the construction of a session writes it."""


class TodoItem(TypedDict):
    """One task."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoWrite(TypedDict):
    """The whole list of tasks; the last one holds."""

    todos: Sequence[TodoItem]


class SessionTitle(TypedDict):
    """The title of the session; the last one holds."""

    title: str
    messageSeqs: Sequence[Count]
    """The events it was made from."""
    source: JsonObject
    """`{kind}`: `fallback`, `user`, or `provider` with a `provider` and perhaps a `model` route."""


class PlainTitleSource(TypedDict):
    """A title cut from the first prompt, or given by the user."""

    kind: Literal["fallback", "user"]


class ProviderTitleSource(TypedDict):
    """A title that a title provider made."""

    kind: Literal["provider"]
    provider: str
    model: NotRequired[ModelRoute]


class TitleRequest(TypedDict):
    """A model is asked for a title."""

    titleProvider: str
    messageSeqs: Sequence[Count]
    route: ModelRoute
    system: str
    messages: Sequence[Any]
    maxTokens: Count


class Feedback(TypedDict):
    """What the user thinks of it."""

    text: str


class PresetSelected(TypedDict):
    """The composition for later turns; it overrides the header's."""

    agentPreset: str


_TITLE_SOURCES = {
    "fallback": shape(PlainTitleSource),
    "user": shape(PlainTitleSource),
    "provider": shape(ProviderTitleSource),
}

PAYLOADS: dict[str, Payload] = {
    "agent/inbox/spliced": payload(InboxSpliced, at("inserted", each(user_message))),
    "session/end-seed": payload(EndSeed),
    "todo/write": payload(TodoWrite),
    "session/title": payload(SessionTitle, at("source", choice("kind", _TITLE_SOURCES))),
    "session/title-llm-request": payload(TitleRequest, at("messages", each(any_message))),
    "feedback/record": payload(Feedback),
    "agent-preset/selected": payload(PresetSelected),
}
"""By event type."""
