"""The replies of a scripted model as people write them: a list in YAML, one item a call.

    - reasoning: The file has to be read first.
      tools:
        - {name: read, args: {file_path: a.txt}}
    - expect: hello
      text: It says hello.

Strings may hold placeholders (`placeholder`).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dsh.capabilities.bounds import MAX_TIMER_MS, NonEmpty
from dsh.llm.failure import LlmFailure
from dsh.llm.request import LlmRequest, Purpose
from dsh.llm.script.entry import Chunks, Hang, ScriptEntry, Throw
from dsh.llm.script.error import UNEXPECTED_REQUEST, ScriptError
from dsh.llm.script.pattern import PatternError, compiled, is_found
from dsh.llm.script.placeholder import (
    check_placeholders,
    filled,
    filled_value,
    holds_placeholder,
    readable_text,
    request_text,
)
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session.message import Message
from dsh.session.value import MAX_SAFE_INT, encode

Count = Annotated[int, Meta(ge=0, le=MAX_SAFE_INT)]
MAX_REPEAT = 10_000
MAX_SHOWN = 200
"""How many characters of a request a message shows."""


class ToolCall(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One tool call of a reply."""

    name: NonEmpty
    """The tool's name; it need not exist."""
    args: dict[str, Any] | UnsetType = UNSET
    """The arguments as YAML."""
    arguments: str | UnsetType = UNSET
    """The arguments as raw text instead, for what is no JSON."""
    id: NonEmpty | None = None
    """Unset: `scripted-1`, `scripted-2`, …, counted over the whole run."""

    def __post_init__(self) -> None:
        if self.args is not UNSET and self.arguments is not UNSET:
            raise ValueError("give args or arguments, not both")


class ReplyError(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The failure that a reply ends with, after what it has said."""

    code: NonEmpty
    """Such as `SERVER`, `RATE_LIMIT`, `CONTEXT_WINDOW_EXCEEDED`; decides about a retry."""
    message: NonEmpty = "the script says that this call fails"
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    """HTTP status."""
    retry_after_ms: Annotated[float, Meta(gt=0, le=MAX_TIMER_MS)] | None = None
    """How long the provider asks to wait, in milliseconds."""
    request_id: NonEmpty | None = None

    def failure(self) -> LlmFailure:
        """The same as a failed call reports it."""
        return LlmFailure(self.message, self.code, self.status, self.retry_after_ms, self.request_id)


class Usage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a reply consumed, in tokens. Input and cached tokens are counted apart."""

    input_tokens: Count | UnsetType = UNSET
    output_tokens: Count | UnsetType = UNSET
    cache_read_tokens: Count | UnsetType = UNSET
    cache_write_tokens: Count | UnsetType = UNSET
    reasoning_tokens: Count | UnsetType = UNSET

    def to_json(self) -> dict[str, Any]:
        """As the log holds it; input and output are always there."""
        return {"inputTokens": 0, "outputTokens": 0, **msgspec.to_builtins(self)}


class Reply(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One reply. Reasoning comes first, then text, then tool calls."""

    text: str | None = None
    """What the model answers."""
    reasoning: str | None = None
    """What it thinks before."""
    tools: list[ToolCall] = msgspec.field(default_factory=list)
    """The tools it calls."""
    finish: Literal["stop", "tool-calls", "max-tokens"] | None = None
    """Why it ends; unset: `tool-calls` where there are some, else `stop`."""
    usage: Usage | None = None
    """What is reported as consumed; unset: nothing is."""
    error: ReplyError | None = None
    """The call fails so, after what the reply says, whose last block stays open."""
    hang: bool = False
    """After what the reply says nothing comes until the caller cancels."""
    ready_file: NonEmpty | None = None
    """With `hang`: a file that is written when nothing more will come."""
    delay_ms: Annotated[float, Meta(ge=0, le=MAX_TIMER_MS)] = 0
    """How long to wait before the first chunk, in milliseconds."""
    expect: NonEmpty | list[NonEmpty] = msgspec.field(default_factory=list)
    """Regular expressions, each of which must match somewhere in what the request says: system text, texts,
    reasoning, calls and results; else the call fails with `SCRIPT_UNEXPECTED_REQUEST`."""
    purpose: Purpose | None = None
    """Answers requests of this purpose only; unset: whatever is asked next."""
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEAT)] = 1
    """How many calls in a row it answers."""

    def __post_init__(self) -> None:
        ends = [name for name in ("finish", "error", "hang") if getattr(self, name)]
        if len(ends) > 1:
            raise ValueError(f"{ends[0]} and {ends[1]} are two ways to end; keep one")
        if self.text is None and self.reasoning is None and not (self.tools or ends):
            raise ValueError("the reply is empty; give text, reasoning, tools, error, hang or finish")
        if self.ready_file is not None and not self.hang:
            raise ValueError("readyFile goes with hang: true")
        for pattern in self.patterns:
            try:
                compiled(pattern)
            except PatternError as error:
                raise ValueError(f"expect: {error}") from None
        try:
            check_placeholders(self._texts())
        except ScriptError as error:
            raise ValueError(str(error)) from None

    @property
    def patterns(self) -> Sequence[str]:
        """`expect` as a list."""
        return [self.expect] if isinstance(self.expect, str) else self.expect

    def _texts(self) -> Any:
        return msgspec.to_builtins((self.text, self.reasoning, self.tools, self.error))

    def check_request(self, request: LlmRequest, place: str) -> None:
        """Check a request against `expect`.

        Args:
            place: of this reply in its file, for the message.

        Raises:
            ScriptError: `SCRIPT_UNEXPECTED_REQUEST`.
        """
        if not self.patterns:
            return
        said = readable_text(request.messages)
        searched = said if request.system is None else f"{request.system}\n{said}"
        for pattern in self.patterns:
            try:
                if is_found(pattern, searched):
                    continue
            except PatternError as error:
                raise ScriptError(UNEXPECTED_REQUEST, f"{place}: expect: {error}") from None
            end = said if len(said) <= MAX_SHOWN else "…" + said[-MAX_SHOWN:]
            raise ScriptError(
                UNEXPECTED_REQUEST,
                f"{place}: the request does not hold what is expected, {pattern!r:.200}; it ends {end!r}",
            )

    def entry(
        self, messages: Sequence[Message], new_id: Callable[[], str], *, delta_chars: int
    ) -> ScriptEntry:
        """What is played for one request.

        Args:
            messages: those of the request, for placeholders.
            new_id: makes the id of a call that has none.
            delta_chars: how many characters go into one delta.
        """
        searched = request_text(messages) if holds_placeholder(self._texts()) else ""
        is_whole = not (self.error or self.hang)
        chunks: list[Chunk] = []
        for index, block in enumerate(self._blocks(searched, new_id)):
            chunks += _streamed(index, block, delta_chars)
        if not is_whole and chunks:
            del chunks[-1]
        if self.usage is not None:
            chunks.append(UsageChunk(self.usage.to_json()))
        if self.error is not None:
            message = filled(self.error.message, searched)
            return Throw(tuple(chunks), msgspec.structs.replace(self.error.failure(), message=message))
        if self.hang:
            return Hang(tuple(chunks), self.ready_file)
        kind = self.finish or ("tool-calls" if self.tools else "stop")
        return Chunks((*chunks, Finish({"kind": kind})))

    def _blocks(self, searched: str, new_id: Callable[[], str]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self.reasoning is not None:
            blocks.append({"type": "reasoning", "text": self.reasoning})
        if self.text is not None:
            blocks.append({"type": "text", "text": self.text})
        for call in self.tools:
            arguments = call.arguments if isinstance(call.arguments, str) else call.args or {}
            blocks.append(
                {"type": "tool-call", "id": call.id or new_id(), "name": call.name, "arguments": arguments}
            )
        blocks = filled_value(blocks, searched)
        for block in blocks:
            if not isinstance(block.get("arguments", ""), str):
                block["arguments"] = encode(block["arguments"]).decode()
        return blocks


def _streamed(index: int, block: dict[str, Any], delta_chars: int) -> list[Chunk]:
    """The chunks of a block."""
    kind, text = block["type"], block["arguments" if block["type"] == "tool-call" else "text"]
    pieces = [text[at : at + delta_chars] for at in range(0, len(text), delta_chars)]
    deltas: list[Chunk]
    if kind == "tool-call":
        call_id, name = block["id"], block["name"]
        deltas = [ToolCallDelta(index, call_id, name, pieces[0] if pieces else "")]
        deltas += [ToolCallDelta(index, call_id, arguments_delta=piece) for piece in pieces[1:]]
    elif kind == "reasoning":
        deltas = [ReasoningDelta(index, piece) for piece in pieces]
    else:
        deltas = [TextDelta(index, piece) for piece in pieces]
    return [BlockStart(index, kind), *deltas, BlockEnd(index, block)]
