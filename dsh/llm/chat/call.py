"""One attempt on the chat-completions wire: the body out, the reply in. Loaded with the first call."""

from collections.abc import AsyncIterator

from dsh.capabilities.http import HttpClient
from dsh.llm.chat.body import WireHistory, request_body
from dsh.llm.chat.dialect import Dialect
from dsh.llm.chat.translator import ChatTranslator, ReplyRules
from dsh.llm.request import LlmRequest
from dsh.llm.transport.attempt import Attempt
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.translator import Failures
from dsh.session.chunk import Chunk


def stream_chat(
    http: HttpClient,
    endpoint: Endpoint,
    request: LlmRequest,
    dialect: Dialect,
    *,
    owner: object,
    thinking: bool | None,
    effort: str | None,
    rules: ReplyRules,
) -> AsyncIterator[Chunk]:
    """The chunks of the reply. Raises, and they raise, the failures of `spec/llm.md` §4.5.

    Args:
        owner: whose memory of the conversation is used; it stands for one route and dialect.
        thinking: as for `request_body`.
        effort: the same.
    """

    def new_history() -> WireHistory:
        return WireHistory(dialect, request.config.provider)

    def translator(failures: Failures) -> ChatTranslator:
        return ChatTranslator(failures, rules=rules)

    history = new_history() if request.memo is None else request.memo.of(owner, new_history)
    body = request_body(request, dialect, history, thinking=thinking, effort=effort)
    return Attempt(http, endpoint, translator, signal=request.signal).stream(body)
