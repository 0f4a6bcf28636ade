"""One step: ask the model until it answers, log what it said, run the tools it asked for.

Per chunk the loop looks at the token, appends to the log and feeds the assembler; nothing else happens
there (`spec/agent-loop.md` §7).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from dsh.agent.contract import AGENT_REQUEST_ERROR, RequestFailed, RetryRequest
from dsh.agent.prompt import PromptAssembly
from dsh.agent.request import BuiltRequest, RequestBuilder
from dsh.agent.scheduler import run_tool_calls
from dsh.agent.step_scope import StepScope
from dsh.kernel import ScopeTarget
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.stream import close_stream
from dsh.session.assembler import BlockAssembler
from dsh.session.message import assistant_message
from dsh.session.projection.request_usage import REQUEST_USAGE, usage_payload

_NO_REFUSAL = frozenset({*DEFAULT_RETRYABLE_CODES, "CONTEXT_WINDOW_EXCEEDED"})
StepOutcome = Literal["completed", "max-tokens"]


async def run_step(
    scope: StepScope,
    assembly: PromptAssembly,
    requests: RequestBuilder,
    consumed: Callable[[Mapping[str, Any] | None], None],
) -> StepOutcome | None:
    """Run an open step to its end. None: the model still owes an answer to tool results.

    Args:
        consumed: told once per attempt what the provider reported of it, None where it reported nothing.

    Raises:
        LlmError: the model failed and nobody asked for a retry.
        Cancelled: the turn's token.
    """
    scope.signal.raise_if_cancelled()
    while True:
        attempt = _Attempt(scope, await requests.build(scope, assembly))
        try:
            await attempt.receive()
        finally:
            consumed(attempt.reply.usage)
        attempt.log_usage()
        if attempt.failure is None:
            break
        if not await attempt.may_be_repeated(attempt.failure):
            attempt.keep_refused_text(attempt.failure)
            raise LlmError(attempt.failure)
    attempt.log_message()
    if attempt.reply.finish["kind"] == "max-tokens":
        return "max-tokens"
    calls = [block for block in attempt.reply.blocks() if block["type"] == "tool-call"]
    if not calls:
        return "completed"
    is_concluded = await run_tool_calls(scope, calls)
    return "completed" if is_concluded else None


class _Attempt:
    """One request and what came back of it."""

    def __init__(self, scope: StepScope, built: BuiltRequest) -> None:
        self._scope = scope
        self._built = built
        self._seqs: list[int] = []
        self.reply = BlockAssembler()

    @property
    def failure(self) -> LlmFailure | None:
        finish = self.reply.finish
        return LlmFailure.from_json(finish["failure"]) if finish["kind"] in ("error", "aborted") else None

    async def receive(self) -> None:
        """Log and assemble the reply. Visible text that a cancellation cuts off is kept as interrupted."""
        signal = self._scope.signal
        try:
            signal.raise_if_cancelled()
            route = self._built.request.config.provider
            await self._scope.grace.wait(self._receive(), f"the stream of route {route}")
            signal.raise_if_cancelled()
        except Exception:
            self.log_usage()
            if signal.cancelled and (blocks := self.reply.interrupted_blocks()):
                self._log(blocks, interrupted=True)
            raise

    async def _receive(self) -> None:
        scope, built = self._scope, self._built
        turn, step, signal = scope.turn, scope.step, scope.signal
        append, push, note = scope.session.append_chunk, self.reply.push, self._seqs.append
        open_stream = scope.services.llm.stream if built.prepared is None else built.prepared.stream
        chunks = open_stream(built.request, subject=ScopeTarget(scope.agent))
        try:
            async for chunk in chunks:
                if signal.cancelled:
                    break
                note(append(turn, step, chunk))
                push(chunk)
        finally:
            await close_stream(chunks)

    async def may_be_repeated(self, failure: LlmFailure) -> bool:
        """Whether a listener wants the same step to try again."""
        scope, built = self._scope, self._built
        payload = RequestFailed(
            agent=scope.agent,
            turn=scope.turn,
            step=scope.step,
            provider=built.request.config.provider,
            failure=failure,
            retry_policy=built.prepared.retry_policy if built.prepared is not None else None,
            signal=scope.signal,
        )

        async def nobody() -> RetryRequest | None:
            return None

        answer = await scope.ask(AGENT_REQUEST_ERROR, payload, nobody, _is_word, 'None or {"kind": "retry"}')
        return answer is not None

    def keep_refused_text(self, failure: LlmFailure) -> None:
        """Log what can be read of a reply that the model itself broke off, where the loop's row asks for it.

        Its blocks are all closed, which tells it from a stream that broke, and neither a fault of the service
        nor a full window made the attempt fail. Tool calls are never kept.
        """
        if failure.code in _NO_REFUSAL or not self._scope.services.keeps_refused_text():
            return
        if self.reply.is_closed and (blocks := self.reply.interrupted_blocks()):
            self._log(blocks, interrupted=True)

    def log_usage(self) -> None:
        """Log what the attempt used, and what that cost at the price it was made for."""
        scope, built, usage = self._scope, self._built, self.reply.usage
        if usage is None:
            return
        config = built.request.config
        payload = usage_payload(
            usage,
            provider=config.provider,
            model=config.model,
            price=built.prepared.price if built.prepared is not None else None,
            turn=scope.turn,
            step=scope.step,
            attempt=built.attempt,
        )
        scope.session.append(REQUEST_USAGE, payload, ignorable=True)

    def log_message(self) -> None:
        """Log the reply, also an empty one: it carries the usage."""
        self._log(self.reply.blocks(), interrupted=False)

    def _log(self, blocks: Sequence[Mapping[str, Any]], *, interrupted: bool) -> None:
        scope, config = self._scope, self._built.request.config
        message = assistant_message(
            blocks,
            provider=config.provider,
            model=config.model,
            replay_state=None if interrupted else self.reply.replay_state,
        )
        data: dict[str, Any] = {"turn": scope.turn, "step": scope.step, "message": message}
        if interrupted:
            data["interrupted"] = True
        if self.reply.usage is not None:
            data["usage"] = self.reply.usage
        scope.session.append("assistant/message", data, surface="append", sources=self._seqs)


def _is_word(answer: object) -> bool:
    return answer is None or answer == {"kind": "retry"}
