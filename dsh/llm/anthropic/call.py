"""One attempt on the Messages wire: the body out, the reply in. Loaded with the first call."""

from collections.abc import AsyncIterator

from dsh.capabilities.http import HttpClient
from dsh.llm.anthropic.body import request_body
from dsh.llm.anthropic.history import WireHistory
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.anthropic.translator import MessagesTranslator
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.llm.transport.attempt import Attempt
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.translator import Failures
from dsh.session.chunk import Chunk, UsageChunk


async def stream_messages(
    http: HttpClient,
    endpoint: Endpoint,
    request: LlmRequest,
    route: AnthropicRoute,
    *,
    owner: object,
    context_window: int | None,
) -> AsyncIterator[Chunk]:
    """The chunks of the reply. One that breaks off reports the usage that is known by then.

    Args:
        owner: whose memory of the conversation is used.
        context_window: of the model, where somebody said it.

    Raises:
        LlmError: any failure of `spec/llm.md` §4.5 and §5.1.
    """
    history = WireHistory() if request.memo is None else request.memo.of(owner, WireHistory)
    body = request_body(request, route, history)
    behind = history.digest
    reading: MessagesTranslator | None = None

    def translator(failures: Failures) -> MessagesTranslator:
        nonlocal reading
        reading = MessagesTranslator(failures, context_window=context_window, behind=behind)
        return reading

    chunks = Attempt(http, endpoint, translator, signal=request.signal).stream(body)
    try:
        async for chunk in chunks:
            yield chunk
    except LlmError:
        if reading is not None and (usage := reading.usage) is not None:
            yield UsageChunk(usage)  # what broke off is paid for all the same
        raise
    finally:
        await close_stream(chunks)
