"""One step: ask the model until it answers, log what it said, run the tools it asked for.

Per chunk the loop looks at the token, appends to the log and feeds the assembler; nothing else happens
there (`spec/agent-loop.md` §7).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from dsh.agent.contract import AGENT_REQUEST_ERROR, RequestFailed, RetryRequest
from dsh.agent.prompt import PromptAssembly
from dsh.agent.request import BuiltRequest
from dsh.agent.scheduler import run_tool_calls
from dsh.agent.step_scope import StepScope
from dsh.kernel import ScopeTarget
from dsh.llm.assembler import BlockAssembler
from dsh.llm.failure import LlmError, LlmFailure
from dsh.session.chunk import Chunk
from dsh.session.message import assistant_message

StepOutcome = Literal["completed", "max-tokens"]


async def run_step(scope: StepScope, assembly: PromptAssembly) -> StepOutcome | None:
    """Run an open step to its end. None: the model still owes an answer to tool results.

    Raises:
        LlmError: the model failed and nobody asked for a retry.
        Cancelled: the turn's token.
    """
    await asyncio.sleep(0)  # observers of the entering messages defer their own rows by one tick
    scope.signal.raise_if_cancelled()
    while True:
        built = await scope.agent.requests.build(scope, assembly)
        assembler, seqs = await _receive(scope, built)
        failure = _failure_in(assembler)
        if failure is None:
            break
        answer = await _ask_for_retry(scope, built, failure)
        scope.signal.raise_if_cancelled()
        if answer is None or answer["kind"] != "retry":
            raise LlmError(failure)
    blocks = assembler.blocks()
    _log_message(scope, built, assembler, seqs)
    if assembler.finish["kind"] == "max-tokens":
        return "max-tokens"
    calls = [block for block in blocks if block["type"] == "tool-call"]
    if not calls:
        return "completed"
    concluded = await run_tool_calls(scope, calls)
    return "completed" if concluded else None


async def _receive(scope: StepScope, built: BuiltRequest) -> tuple[BlockAssembler, list[int]]:
    """Log and assemble one attempt. Visible text that a cancellation cuts off is kept as interrupted."""
    assembler = BlockAssembler()
    seqs: list[int] = []
    turn, step, signal = scope.turn, scope.step, scope.signal
    append, push, note = scope.session.append_chunk, assembler.push, seqs.append
    try:
        signal.raise_if_cancelled()
        async with _stream(scope, built) as chunks:
            async for chunk in chunks:
                if signal.cancelled:
                    break
                note(append(turn, step, chunk))
                push(chunk)
        signal.raise_if_cancelled()
    except Exception:
        if signal.cancelled and (blocks := assembler.interrupted_blocks()):
            _log_interrupted(scope, built, assembler, blocks, seqs)
        raise
    return assembler, seqs


@asynccontextmanager
async def _stream(scope: StepScope, built: BuiltRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
    """The attempt's chunks; an iterator that is left early is closed."""
    subject = ScopeTarget(scope.agent)
    if built.prepared is not None:
        chunks = built.prepared.stream(built.request, subject=subject)
    else:
        chunks = scope.agent.services.llm.stream(built.request, subject=subject)
    try:
        yield chunks
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def _failure_in(assembler: BlockAssembler) -> LlmFailure | None:
    finish = assembler.finish
    if finish["kind"] in ("error", "aborted"):
        return LlmFailure.from_json(finish["failure"])
    return None


async def _ask_for_retry(scope: StepScope, built: BuiltRequest, failure: LlmFailure) -> RetryRequest | None:
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

    return await scope.waterfall(AGENT_REQUEST_ERROR, payload, nobody)


def _log_message(scope: StepScope, built: BuiltRequest, assembler: BlockAssembler, seqs: list[int]) -> None:
    """Log the reply, also an empty one: it carries the usage."""
    config = built.request.config
    message = assistant_message(
        assembler.blocks(),
        provider=config.provider,
        model=config.model,
        replay_state=assembler.replay_state,
    )
    data: dict[str, Any] = {"turn": scope.turn, "step": scope.step, "message": message}
    if assembler.usage is not None:
        data["usage"] = assembler.usage
    scope.session.append("assistant/message", data, surface="append", sources=seqs)


def _log_interrupted(
    scope: StepScope, built: BuiltRequest, assembler: BlockAssembler, blocks: Any, seqs: list[int]
) -> None:
    config = built.request.config
    message = assistant_message(blocks, provider=config.provider, model=config.model)
    data: dict[str, Any] = {
        "turn": scope.turn,
        "step": scope.step,
        "message": message,
        "interrupted": True,
    }
    if assembler.usage is not None:
        data["usage"] = assembler.usage
    scope.session.append("assistant/message", data, surface="append", sources=seqs)
