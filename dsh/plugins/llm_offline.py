"""Row `llm-offline`: route `offline`, model `demo`. A rule-based stand-in that calls real tools.

It lets the program run without a key and without a network. It says that it is no model, and it is used
only where a composition chooses it (`design.md` §4.10, §10.36).
"""

import json
from collections.abc import AsyncIterator, Sequence

import msgspec

from dsh.kernel import Context
from dsh.llm.adapter import LlmAdapter, ModelInfo, ProviderInfo
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM
from dsh.llm.request import LlmRequest
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.message import Message, text_in, text_of

PROVIDER = "offline"
MODEL = "demo"
CONTEXT_WINDOW = 128_000
DELTA_CHARS = 16
NOTICE = "offline/demo answers by fixed rules; it is not a model"

inject = [LLM]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    ctx.use(LLM).register_adapter([PROVIDER], OfflineAdapter(ctx))


class OfflineAdapter(LlmAdapter):
    """Answers by rule. State: whether it has said what it is."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._said = False

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, "Offline demo")

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return (self.resolve_model(provider, MODEL),)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(
            provider=provider,
            id=model,
            name="Offline demo",
            description="Rules instead of a model: `Run: COMMAND`, `Read: PATH`, else an echo",
            input_modalities=("text",),
            context_window=CONTEXT_WINDOW,
        )

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        if request.config.model != MODEL:
            raise LlmError.of(
                "UNKNOWN_MODEL", f"route {PROVIDER} has no model {request.config.model!r}; it has {MODEL}"
            )
        if not self._said:
            self._said = True
            self._ctx.logger.warning(NOTICE)
        for chunk in reply(request.messages, request.system):
            if request.signal is not None and request.signal.cancelled:
                raise LlmError.of("ABORTED", "the request was cancelled")
            yield chunk


def reply(messages: Sequence[Message], system: str | None = None) -> list[Chunk]:
    """The whole reply to a history, as chunks."""
    at = max((i for i, message in enumerate(messages) if message["source"]["kind"] == "user"), default=-1)
    prompt = text_of(messages[at]) if at >= 0 else ""
    results = [
        text_in(block["content"])
        for message in messages[at + 1 :]
        for block in message["content"]
        if block["type"] == "tool-result"
    ]
    words = len((system or "").split()) + sum(len(_all_text(message).split()) for message in messages)
    if results:
        return _text("".join(results), words)
    command, path = _after(prompt, "Run:"), _after(prompt, "Read:")
    number = 1 + sum(block["type"] == "tool-call" for message in messages for block in message["content"])
    if command:
        return _call(number, "bash", {"command": command, "description": "demo command"}, words)
    if path:
        return _call(number, "read", {"file_path": path}, words)
    return _text(f"offline demo model: {prompt}", words)


def _after(prompt: str, word: str) -> str:
    prompt = prompt.strip()
    return prompt.removeprefix(word).strip() if prompt.startswith(word) else ""


def _all_text(message: Message) -> str:
    pieces = []
    for block in message["content"]:
        if block["type"] == "tool-result":
            pieces.append(text_in(block["content"]))
        elif block["type"] == "tool-call":
            pieces.append(block["arguments"])
        elif block["type"] in ("text", "reasoning"):
            pieces.append(str(block.get("text", "")))
    return " ".join(pieces)


def _text(text: str, words: int) -> list[Chunk]:
    deltas = [TextDelta(0, text[at : at + DELTA_CHARS]) for at in range(0, len(text), DELTA_CHARS)]
    block = {"type": "text", "text": text}
    return [
        BlockStart(0, "text"),
        *deltas,
        BlockEnd(0, block),
        _usage(words, text),
        Finish({"kind": "stop"}),
    ]


def _call(number: int, name: str, arguments: dict[str, str], words: int) -> list[Chunk]:
    call_id, raw = f"demo-{number}", json.dumps(arguments, ensure_ascii=False)
    pieces = [raw[at : at + DELTA_CHARS] for at in range(0, len(raw), DELTA_CHARS)]
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": raw}
    return [
        BlockStart(0, "tool-call"),
        ToolCallDelta(0, call_id, name, ""),
        *(ToolCallDelta(0, call_id, arguments_delta=piece) for piece in pieces),
        BlockEnd(0, block),
        _usage(words, raw),
        Finish({"kind": "tool-calls"}),
    ]


def _usage(words: int, text: str) -> Chunk:
    return UsageChunk({"inputTokens": words, "outputTokens": len(text.split())})
