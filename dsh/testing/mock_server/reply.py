"""Free-form replies: what a test writes down instead of a behaviour's name."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from dsh.testing.mock_server.dialect.base import Dialect, streamed
from dsh.testing.mock_server.dialect.chat import DEEPSEEK
from dsh.testing.mock_server.dialect.sse import compact
from dsh.testing.mock_server.part import Call, Part, Reasoning, Redacted, Text, Usage, whole
from dsh.testing.mock_server.plan import JSON_HEADERS, Pause, Plan, Reset, Step, pieces

MAX_REPEAT = 10_000_000
FINISHES = {"tool_calls": "tool-calls", "length": "max-tokens", "content_filter": "refusal"}
"""The finish reasons of chat completions, where other dialects have words of their own."""


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call, its arguments as fragments or as text with the size of a fragment."""

    id: str | None
    name: str
    args: tuple[str, ...] | None = None
    raw: str = ""
    split: Annotated[int, msgspec.Meta(ge=1)] = 8

    def part(self) -> Call:
        fragments = tuple(pieces(self.raw, self.split)) or ("",) if self.args is None else self.args
        return Call(self.id, self.name, fragments)


class _Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The members of a free-form reply; see `scripted`."""

    reasoning: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    tools: tuple[_Call, ...] = ()
    finish: str | None = None
    usage: Any = msgspec.UNSET
    repeat: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPEAT)] = 1
    status: Annotated[int, msgspec.Meta(ge=200, le=999)] | None = None
    body: Any = msgspec.field(default_factory=lambda: {"error": {"message": "scripted"}})
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    raw: tuple[str, ...] | None = None
    cut: bool = False
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0

    def parts(self, dialect: Dialect) -> list[Part]:
        parts: list[Part] = [Redacted(data) for data in self.redacted]
        parts += [Reasoning(piece) for piece in self.reasoning]
        parts += [Text(piece) for piece in self.text] * self.repeat
        parts += [call.part() for call in self.tools]
        finish = self.finish or ("tool_calls" if self.tools else "stop")
        usage = Usage() if self.usage is msgspec.UNSET else self.usage
        if dialect.name == "anthropic":
            finish, usage = FINISHES.get(finish, finish), _counted(usage)
        return whole(*parts, reason=finish, usage=usage)


def check_reply(reply: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is no free-form reply.
    """
    _read(reply)


def scripted(reply: Mapping[str, Any], dialect: Dialect = DEEPSEEK) -> Plan:
    """The plan of a free-form reply, in the form of the recorded scenarios.

    `reasoning`, `text`: lists of deltas; `tools`: `{id, name, args: [str] | raw + split}`; `finish`; `usage`;
    `repeat`: how often the text is sent; or `status`, `body`, `headers`: an HTTP error; or `raw`: text to
    send as it is, and `cut`: reset afterwards. `delay_ms` stands between the deltas. `finish` and `usage`
    are as chat-completions servers spell them, and are told in the words of the dialect.

    Raises:
        ValueError: an unknown member, or one of the wrong kind.
    """
    read = _read(reply)
    if read.status is not None:
        raw = read.body.encode() if isinstance(read.body, str) else compact(read.body)
        return Plan(status=read.status, headers={**JSON_HEADERS, **read.headers}, steps=(raw,))
    if read.raw is not None:
        plan = Plan(steps=tuple(text.encode("utf-8", "surrogateescape") for text in read.raw))
    else:
        plan = streamed(dialect, read.parts(dialect))
    steps: list[Step] = []
    for item in plan.steps:
        steps += (item, Pause(read.delay_ms)) if read.delay_ms else (item,)
    if read.cut:
        steps.append(Reset())
    return Plan(steps=tuple(steps), calls=plan.calls)


def _read(reply: Mapping[str, Any]) -> _Reply:
    try:
        return msgspec.convert(dict(reply), _Reply)
    except msgspec.ValidationError as error:
        known = ", ".join(_Reply.__struct_fields__)
        raise ValueError(f"scripted reply: {error}; members are: {known}") from None


class _Counts(msgspec.Struct, frozen=True):
    """Usage in the names of chat completions."""

    prompt_tokens: int
    prompt_cache_hit_tokens: int = 0
    completion_tokens: int = 0


def _counted(usage: Any) -> Any:
    """Such counts with each token once; anything else as it is."""
    try:
        counts = msgspec.convert(usage, _Counts)
    except msgspec.ValidationError:
        return usage
    cached = counts.prompt_cache_hit_tokens
    return Usage(uncached=counts.prompt_tokens - cached, cache_read=cached, output=counts.completion_tokens)
