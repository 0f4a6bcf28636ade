"""The blocks a message is made of, and where a message comes from, field by field.

Both are open: a block or source of an unknown kind passes.
"""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.message import ReasoningBlock, TextBlock, ToolCallBlock
from dsh.session.payload.shape import (
    Check,
    Count,
    Misfit,
    Ordinal,
    at,
    choice,
    each,
    mapped,
    shape,
)
from dsh.session.value import JsonObject


class Dimensions(TypedDict):
    """Size of an image in pixels."""

    width: Count
    height: Count


class Attachment(TypedDict):
    """An image in the attachment store."""

    attachmentId: str
    mediaType: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    bytes: Count
    width: Count
    height: Count
    name: NotRequired[str]
    originalDimensions: NotRequired[Dimensions]


class _Image(TypedDict):
    attachment: Attachment


def _tool_result(block: Any) -> None:
    if type(block.get("toolCallId")) is not str:
        raise Misfit(f"expected str, found {block.get('toolCallId')!r:.60}", ".toolCallId")
    if "isError" in block and type(block["isError"]) is not bool:
        raise Misfit(f"expected bool, found {block['isError']!r:.60}", ".isError")
    if "content" not in block:
        raise Misfit("object missing required field `content`")


def _nested(block: Any) -> None:
    """The blocks of a tool result: one level, so that the depth of a value costs no stack."""
    _tool_result(block)
    _inner(block)


_PLAIN: dict[str, Check] = {
    "text": shape(TextBlock),
    "reasoning": shape(ReasoningBlock),
    "image": shape(_Image),
    "tool-call": shape(ToolCallBlock),
}
_inner = at("content", each(choice("type", {**_PLAIN, "tool-result": _tool_result}, is_open=True)))
blocks: Check = each(choice("type", {**_PLAIN, "tool-result": _nested}, is_open=True))
"""A list of content blocks."""


class UserSource(TypedDict):
    """A person; the web host adds what it needs to answer."""

    kind: Literal["user"]
    rpcId: NotRequired[str | int]
    clientTimeZone: NotRequired[str]


class ModelSource(TypedDict):
    """A model."""

    kind: Literal["model"]
    provider: str
    model: str
    replayState: NotRequired[Any]
    """What the adapter wants to see again with the next request."""


class ToolSource(TypedDict):
    """The tool call that is answered."""

    kind: Literal["tool"]
    callId: str


class PluginSource(TypedDict):
    """A plugin. A checkpoint of compaction has plugin `compact` and the id of its bracket."""

    kind: Literal["plugin"]
    plugin: str
    compactionId: NotRequired[str]
    sourceCommandId: NotRequired[str]


class GoalSource(TypedDict):
    """A round of work on a goal."""

    kind: Literal["goal"]
    goalId: str
    revision: Count
    round: Ordinal


class RelaySource(TypedDict):
    """A message that another session passed on."""

    kind: Literal["coordinator", "subagent-report"]
    form: Literal["relay"]
    senderSessionId: str


class SettledSource(TypedDict):
    """A delegated session has ended."""

    kind: Literal["subagent-settled"]
    form: Literal["notice"]
    summary: str
    senderSessionId: str


class TeamSource(TypedDict):
    """A message within a team."""

    kind: Literal["team-message"]
    teamId: str
    messageId: str
    senderId: str
    senderName: str


class SkillEntry(TypedDict):
    """One skill of a catalogue."""

    name: str
    description: str


class SkillCatalogSource(TypedDict):
    """The skills that there are."""

    kind: Literal["skill-catalog"]
    form: Literal["catalog"]
    update: NotRequired[Literal[True]]
    entries: Sequence[SkillEntry]


class SkillInvocationSource(TypedDict):
    """The instructions of one skill."""

    kind: Literal["skill-invocation"]
    name: str
    form: Literal["instructions"]


class InstructionChange(TypedDict):
    """One instruction file that came, changed or went."""

    action: Literal["set", "replace", "remove"]
    scope: str
    path: str
    digest: NotRequired[str]


class InstructionsSource(TypedDict):
    """Instruction files of the workspace."""

    kind: Literal["agent-instructions"]
    form: Literal["instructions"]
    baseline: NotRequired[Literal[True]]
    baselineIdentity: NotRequired[str]
    changes: Sequence[InstructionChange]


class SessionReference(TypedDict):
    """What was recalled of another session."""

    sessionId: str
    label: str
    capturedThroughSeq: Count | None
    compacted: bool
    originalMessages: Count
    retainedMessages: Count
    omittedMessages: Count
    omittedBytes: Count
    truncated: bool
    inputIndex: Count


class ReferenceSource(TypedDict):
    """Parts of other sessions."""

    kind: Literal["session-reference"]
    form: Literal["recall"]
    version: Literal[1]
    references: Sequence[SessionReference]


class Section(TypedDict):
    """One part of a snapshot."""

    name: str
    text: str


class _Snapshot(TypedDict):
    sections: Sequence[Section]


class _Notice(TypedDict):
    summary: str


_FORMS: dict[str, Check] = {
    "snapshot": shape(_Snapshot),
    "notice": shape(_Notice),
    **dict.fromkeys(("instructions", "catalog", "relay", "recall"), lambda _: None),
}
_SOURCES: dict[str, Check] = {
    "user": shape(UserSource),
    "model": shape(ModelSource),
    "tool": shape(ToolSource),
    "plugin": shape(PluginSource),
    "goal": shape(GoalSource),
    "coordinator": shape(RelaySource),
    "subagent-report": shape(RelaySource),
    "subagent-settled": shape(SettledSource),
    "team-message": shape(TeamSource),
    "skill-catalog": shape(SkillCatalogSource),
    "skill-invocation": shape(SkillInvocationSource),
    "agent-instructions": shape(InstructionsSource),
    "session-reference": shape(ReferenceSource),
}
_kind = choice("kind", _SOURCES, is_open=True)
_form = choice("form", _FORMS, is_open=True)


def source(value: Any) -> None:
    """Where a message comes from: the fields of its kind, and those of its form."""
    _kind(value)
    if "form" in value:
        _form(value)


def is_name(value: object) -> bool:
    """True for a string that is not empty."""
    return type(value) is str and value != ""


def message_of(value: Any, role: str) -> JsonObject:
    """Check what all messages share and answer the source. Raises `Misfit`, with the path in the message."""
    message = mapped(value)
    if not is_name(message.get("id")):
        raise Misfit(f"the message has a non-empty id, found {message.get('id')!r:.60}")
    if message.get("role") != role:
        raise Misfit(f"the role is {role!r}, found {message.get('role')!r:.60}")
    origin = message.get("source")
    if not isinstance(origin, dict) or not is_name(origin.get("kind")):
        raise Misfit("the message has a source with a kind")
    if not isinstance(message.get("content"), list | tuple):
        raise Misfit(f"the content is a list, found {type(message.get('content')).__name__}")
    return origin


_content = at("content", blocks)
_source = at("source", source)


def details(message: Any) -> None:
    """The blocks and the source of a message whose outer shape is known."""
    _content(message)
    _source(message)


def user_message(value: Any) -> None:
    """A whole message of role user, as it waits in the inbox or stands in the log."""
    message_of(value, "user")
    details(value)


def any_message(value: Any) -> None:
    """A message of any role, as in a recorded request."""
    role = mapped(value).get("role")
    if role not in ("user", "assistant", "system"):
        raise Misfit(f"expected user, assistant or system, found {role!r:.60}", ".role")
    message_of(value, role)
    details(value)
