"""Payloads of what is allowed (approvals, presets, sandbox and plan mode), and of commands and hooks."""

from typing import Literal, NotRequired, TypedDict

from dsh.session.payload.shape import Count, Number, Ordinal, Payload, payload


class ApprovalAsked(TypedDict):
    """A person is asked before a tool runs."""

    id: str
    """UUID."""
    toolName: str
    callId: NotRequired[str]
    reason: NotRequired[str]


class ApprovalDecided(TypedDict):
    """The answer, one for each question."""

    id: str
    outcome: Literal["allowed-once", "rejected", "cancelled", "unavailable"]


class ApprovalPolicy(TypedDict):
    """Whether anybody is asked; the last one holds."""

    policy: Literal["ask", "never"]
    source: NotRequired[Literal["delegation"]]


class PermissionPreset(TypedDict):
    """A named combination; the events of its parts follow in the same turn."""

    preset: str


class SandboxMode(TypedDict):
    """What tools may touch; the last one holds."""

    mode: Literal["read-only", "workspace-write", "danger-full-access"]
    source: NotRequired[Literal["delegation"]]


class PlanMode(TypedDict):
    """Whether only a plan is wanted; the last one holds, none is inactive."""

    active: bool


class UserSource(TypedDict):
    """Who gave a command."""

    kind: Literal["user"]


class CommandRun(TypedDict):
    """A slash command begins."""

    commandId: str
    """`cmd-<process token>-<n>`."""
    name: str
    args: NotRequired[str]
    """As typed, leading white space included; absent where the command does not record its input."""
    source: UserSource


class CommandDone(TypedDict):
    """A command is over."""

    commandId: str
    kind: Literal["success", "error"]
    text: NotRequired[str]
    sourceEventSeq: NotRequired[Count]
    """The earlier event that says more."""


class HookInvoked(TypedDict):
    """A hook of the user runs."""

    turn: Ordinal
    point: str
    dialect: Literal["claude-code", "codex"]
    handlerId: str
    matcher: NotRequired[str]


class HookResult(TypedDict):
    """What a hook decided."""

    turn: Ordinal
    point: str
    handlerId: str
    decision: str
    """The permission it gave, else `stop`, else `pass`."""
    exitCode: NotRequired[int]
    stderrSummary: NotRequired[str]
    durationMs: Number


PAYLOADS: dict[str, Payload] = {
    "approval/asked": payload(ApprovalAsked),
    "approval/decided": payload(ApprovalDecided),
    "approval/policy": payload(ApprovalPolicy),
    "permission/preset": payload(PermissionPreset),
    "sandbox/mode": payload(SandboxMode),
    "plan/mode": payload(PlanMode),
    "command/run": payload(CommandRun),
    "command/done": payload(CommandDone),
    "hook/invoked": payload(HookInvoked),
    "hook/result": payload(HookResult),
}
"""By event type."""
