"""Payloads of work that others do: delegated sessions, workflows, teams."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.payload.shape import (
    Count,
    Misfit,
    Payload,
    at,
    choice,
    closed,
    mapped,
    payload,
    shape,
)


class OneShotDescriptor(TypedDict):
    """This session was delegated one task. No other keys."""

    version: Literal[2]
    mode: Literal["one-shot"]
    provider: str
    label: NotRequired[str]


class ToolFilter(TypedDict):
    """The tools of a delegated session; at least one of the two."""

    allow: NotRequired[Sequence[str]]
    deny: NotRequired[Sequence[str]]


class ContinuableDescriptor(TypedDict):
    """This session was delegated and can be given more. No other keys."""

    version: Literal[2]
    mode: Literal["continuable"]
    provider: str
    label: str
    agentProvider: NotRequired[str]
    agentModel: NotRequired[str]
    persona: NotRequired[str]
    toolFilter: NotRequired[ToolFilter]


class RunStart(TypedDict):
    """A workflow begins."""

    runId: str
    name: str


class AgentStart(TypedDict):
    """A workflow starts an agent."""

    runId: str
    seq: Count
    label: str
    phase: NotRequired[str]
    childId: str
    """Id of the agent's session."""


class AgentEnd(TypedDict):
    """An agent of a workflow is done."""

    runId: str
    seq: Count
    outcome: Literal["completed", "failed", "cancelled"]


class RunEnd(TypedDict):
    """A workflow is over."""

    runId: str
    stopReason: Literal["completed", "cancelled", "error"]


class Member(TypedDict):
    """A member as it stands."""

    id: str
    name: str
    description: str
    provider: str
    context: Literal["fresh", "fork"]
    phase: Literal["provisioning", "active", "failed"]
    error: NotRequired[Any]


class TeamMember(TypedDict):
    """A member of a team came or changed."""

    version: Literal[1]
    teamId: str
    member: Member


class Task(TypedDict):
    """A task as it stands."""

    id: str
    revision: Count
    subject: str
    description: str
    status: Literal["pending", "in_progress", "completed", "deleted"]
    ownerId: NotRequired[str]
    blockedBy: Sequence[str]
    writeScopes: Sequence[str]


class TeamTask(TypedDict):
    """A task of a team came or changed."""

    version: Literal[1]
    teamId: str
    task: Task


class QueuedMessage(TypedDict):
    """A message on its way."""

    id: str
    senderId: str
    senderName: str
    targetId: str
    delivery: Literal["quiet", "wakeup"]
    content: Any


class MessageQueued(TypedDict):
    """A message within a team was sent."""

    version: Literal[1]
    teamId: str
    message: QueuedMessage


class MessageDelivered(TypedDict):
    """A message within a team has arrived."""

    version: Literal[1]
    teamId: str
    messageId: str
    targetId: str


def _filters(value: Any) -> None:
    if not mapped(value).keys() & {"allow", "deny"}:
        raise Misfit("a tool filter has allow or deny")


_filter = shape(ToolFilter, closed("allow", "deny"), _filters)
_MODES = {
    "one-shot": shape(OneShotDescriptor, closed(*OneShotDescriptor.__annotations__)),
    "continuable": shape(
        ContinuableDescriptor, closed(*ContinuableDescriptor.__annotations__), at("toolFilter", _filter)
    ),
}
_mode = choice("mode", _MODES)


def _descriptor(data: Any) -> None:
    """Another version number says nothing to this program, and is no fault."""
    version = mapped(data).get("version")
    if type(version) is not int:
        raise Misfit(f"expected int, found {version!r:.60}", ".version")
    if version == 2:
        _mode(data)


PAYLOADS: dict[str, Payload] = {
    "subagent/descriptor": Payload((OneShotDescriptor, ContinuableDescriptor), _descriptor),
    "tool-workflow/run-start": payload(RunStart),
    "tool-workflow/agent-start": payload(AgentStart),
    "tool-workflow/agent-end": payload(AgentEnd),
    "tool-workflow/run-end": payload(RunEnd),
    "team/member": payload(TeamMember),
    "team/task": payload(TeamTask),
    "team/message/queued": payload(MessageQueued),
    "team/message/delivered": payload(MessageDelivered),
}
"""By event type."""
