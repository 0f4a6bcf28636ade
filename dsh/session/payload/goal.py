"""Payloads of goals and of what is scheduled."""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

from dsh.session.payload.shape import Count, Misfit, Number, Payload, SafeInt, at, choice, shape
from dsh.session.value import JsonObject

ScheduleId: TypeAlias = Annotated[str, Meta(pattern=r"\Aschedule-[0-9]+\Z")]
"""`schedule-<n>`, never used again in a session."""
UtcTime: TypeAlias = Annotated[
    str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z\Z")
]
"""RFC 3339 in UTC with a year of four digits."""


class BlockedReason(TypedDict):
    """Why a goal is blocked."""

    code: str
    message: str


class Goal(TypedDict):
    """A goal as it stands."""

    id: str
    revision: Count
    objective: str
    phase: Literal["active", "paused", "blocked", "complete"]
    maxGoalRounds: Count
    blockedReason: NotRequired[BlockedReason]
    """There if and only if the phase is `blocked`."""


class GoalRevision(TypedDict):
    """Which goal."""

    id: str
    revision: Count


class GoalSet(TypedDict):
    """A goal was created or changed; its whole new state."""

    kind: Literal["goal/change"]
    version: Literal[1]
    operation: Literal["create", "edit", "pause", "resume", "complete", "block"]
    goal: Goal
    roundsStarted: Count
    createdAt: SafeInt
    """Epoch milliseconds."""
    updatedAt: SafeInt
    """Epoch milliseconds."""


class GoalCleared(TypedDict):
    """The goal is gone."""

    kind: Literal["goal/change"]
    version: Literal[1]
    operation: Literal["clear"]
    cleared: GoalRevision
    clearedAt: SafeInt
    """Epoch milliseconds."""


class ScheduleAfter(TypedDict):
    """A reminder after some time."""

    id: ScheduleId
    kind: Literal["after"]
    prompt: str
    afterSeconds: Number
    scheduledAt: UtcTime


class ScheduleAt(TypedDict):
    """A reminder at a time."""

    id: ScheduleId
    kind: Literal["at"]
    prompt: str
    scheduledAt: UtcTime


class ScheduleEvery(TypedDict):
    """A reminder again and again."""

    id: ScheduleId
    kind: Literal["every"]
    prompt: str
    everySeconds: Annotated[float, Meta(ge=300)]
    scheduledAt: UtcTime


class ScheduleCreated(TypedDict):
    """A reminder was set."""

    version: Literal[1]
    operation: Literal["create"]
    schedule: JsonObject
    """`{id, kind, prompt, scheduledAt}` with `afterSeconds` or `everySeconds` (from 300) as the kind asks."""


class ScheduleDeleted(TypedDict):
    """A reminder was taken back."""

    version: Literal[1]
    operation: Literal["delete"]
    id: ScheduleId


class ScheduleDispatched(TypedDict):
    """A reminder has come."""

    version: Literal[1]
    operation: Literal["dispatch"]
    id: ScheduleId
    acceptedAt: NotRequired[UtcTime]
    """Of one that comes again."""


def _blocked_reason(goal: Any) -> None:
    if ("blockedReason" in goal) != (goal["phase"] == "blocked"):
        raise Misfit("a blockedReason is there if and only if the phase is blocked")


_set = shape(GoalSet, at("goal", _blocked_reason))
_GOAL = {
    **dict.fromkeys(("create", "edit", "pause", "resume", "complete", "block"), _set),
    "clear": shape(GoalCleared),
}
_KINDS = {"after": shape(ScheduleAfter), "at": shape(ScheduleAt), "every": shape(ScheduleEvery)}
_SCHEDULE = {
    "create": shape(ScheduleCreated, at("schedule", choice("kind", _KINDS))),
    "delete": shape(ScheduleDeleted),
    "dispatch": shape(ScheduleDispatched),
}

PAYLOADS: dict[str, Payload] = {
    "goal/change": Payload((GoalSet, GoalCleared), choice("operation", _GOAL)),
    "schedule/change": Payload(
        (ScheduleCreated, ScheduleDeleted, ScheduleDispatched), choice("operation", _SCHEDULE)
    ),
}
"""By event type."""
