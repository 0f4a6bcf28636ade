"""One attempt on the chat-completions wire: the body out, the reply in. Loaded with the first call."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from dsh.capabilities.http import HttpClient
from dsh.llm.chat.body import WireHistory, request_body
from dsh.llm.chat.dialect import DEEPSEEK, Dialect
from dsh.llm.chat.translator import USUAL, ChatTranslator, ReplyRules
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.llm.transport.attempt import Attempt
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.translator import Failures
from dsh.session.chunk import Chunk


async def stream_chat(
    http: HttpClient,
    endpoint: Endpoint,
    request: LlmRequest,
    dialect: Dialect,
    *,
    owner: object,
    thinking: bool | None,
    effort: str | None,
    known_models: Callable[[], Awaitable[Sequence[str]]],
    rules: ReplyRules = USUAL,
) -> AsyncIterator[Chunk]:
    """The chunks of the reply.

    Args:
        owner: whose memory of the conversation is used; it stands for one route and dialect.
        thinking: as for `request_body`.
        effort: the same.
        known_models: asked where the server knows no such model, for names that it does know.

    Raises:
        LlmError: any failure of `spec/llm.md` §4.5.
    """
    config = request.config

    def history() -> WireHistory:
        return WireHistory(dialect, config.provider)

    def translator(failures: Failures) -> ChatTranslator:
        return ChatTranslator(failures, rules=rules)

    known = history() if request.memo is None else request.memo.of(owner, history)
    body = request_body(request, dialect, known, thinking=thinking, effort=effort)
    chunks = Attempt(http, endpoint, translator, signal=request.signal).stream(body)
    try:
        async for chunk in chunks:
            yield chunk
    except LlmError as error:
        if error.failure.status not in (400, 404, 422):
            raise
        from dsh.llm.chat.advice import advised
        from dsh.llm.unknown_model import is_unknown_model, told

        if dialect != DEEPSEEK and (better := advised(error, config.provider, dialect)) is not None:
            raise better from error
        if not is_unknown_model(error.failure, config.model):
            raise
        raise told(error, config.provider, config.model, await known_models()) from error
    finally:
        await close_stream(chunks)
