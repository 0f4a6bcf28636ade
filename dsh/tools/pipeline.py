"""One call, stage by stage: policy, body, review. The scheduler drives the stages; `run` does all three.

    prepare    tools/pre-execute, approval, guards: may the call run?
    dispatch   tools/execute around the body
    finalize   tools/post-execute, the tool's last word, tools/result

No stage raises for what a tool or a listener does: failures are results. Outcomes of exceptions in a
policy skip the review; denials, unknown tools and failed bodies pass it (`spec/tools.md` §3).
"""

import inspect
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import msgspec

from dsh.capabilities.approval import APPROVAL, ApprovalRequest
from dsh.kernel import Cancelled, CancelToken, Context, ScopeTarget
from dsh.session.value import freeze
from dsh.tools.content import content_of, contexts_of
from dsh.tools.definition import ToolDefinition
from dsh.tools.error import ToolError, ToolNotFoundError
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    TOOLS_RESULT,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    PostDecision,
    PreDecision,
    Settled,
)
from dsh.tools.execution import ToolCall, ToolExecution, ToolFailure, ToolResult, ToolSuccess
from dsh.tools.foreign import called, exit_of
from dsh.tools.layer import Guard, Registered
from dsh.tools.outcome import aborted, blocked, checked_failure, failure_of, success_of
from dsh.tools.running import Running

T = TypeVar("T")

REFUSALS = {
    "rejected": "approval for this call was rejected",
    "cancelled": "the request to approve this call was cancelled",
    "unavailable": "this call needs an approval and nobody is there to give it",
}


class Tools(Protocol):
    """What the pipeline asks the registry."""

    owner_ctx: Context

    def get(self, name: str, scope: object | None = None) -> Registered | None: ...

    def guards(self, scope: object | None = None) -> list[Guard]: ...


class Invocation:
    """The state of one call. Its stages are called once each, in order."""

    def __init__(self, tools: Tools, call: ToolCall) -> None:
        self._tools = tools
        self._call = call
        self._subject = ScopeTarget(call.agent)
        visible = tools.get(call.name, call.agent)
        self._finalizer = visible.finalize_content if visible is not None else None
        self._outcome: ToolResult | None = None
        self._is_final = False
        self._stage = 0
        self._produced: ToolResult | None = None
        try:
            arguments = freeze(call.arguments, "arguments", stored=True)
        except Exception as error:
            arguments = None
            self._settle(failure_of(error), final=True)
        self.execution = ToolExecution(call, arguments)

    @property
    def body_started(self) -> bool:
        """The tool's own code has begun: from here on the call may have had effects."""
        return self.execution.body is not None

    async def prepare(self) -> None:
        """Ask the policies. Overlaps with no other call's `prepare`; the scheduler sees to that."""
        self._enter(1)
        if self._outcome is not None:
            return
        if self._call.signal.cancelled:
            self._settle(aborted(started=False), final=True)
            return
        try:
            refusal = await self._refusal()
        except Exception as error:
            self._settle(failure_of(error), final=True)
            return
        if refusal is not None:
            self._settle(refusal)

    async def dispatch(self) -> None:
        """Run the body inside its wrappers, unless the call is decided. Always waits for a started body."""
        self._enter(2)
        if self._outcome is not None:
            return
        try:
            ctx = self._tools.owner_ctx
            answer = ctx.waterfall(TOOLS_EXECUTE, self.execution, self._run_body, subject=self._subject)
            result = self._normalised(await _contained(answer, "a listener of tools/execute"))
            is_final = False
        except Exception as error:
            result, is_final = failure_of(error), True
        finally:
            self.execution.signal = self._call.signal
        contexts = (*self.execution.deferred, *result.additional_contexts)
        if self._call.signal.cancelled and not result.is_error:
            result = aborted(started=self.body_started)
        self._settle(msgspec.structs.replace(result, additional_contexts=contexts), final=is_final)

    async def finalize(self) -> ToolResult:
        """Let the listeners review the outcome, and give it out."""
        self._enter(3)
        result = self._outcome
        if result is None:
            raise RuntimeError(f"{self.execution!r} has no outcome to finalize")
        if not self._is_final:
            result = await self._reviewed(result)
        result = self._finished(result)
        self._tools.owner_ctx.emit(TOOLS_RESULT, Settled(self.execution, result), subject=self._subject)
        return result

    # -- policy ----------------------------------------------------------------------------------

    async def _refusal(self) -> ToolFailure | None:
        async def allow() -> PreDecision:
            return Allow()

        ctx = self._tools.owner_ctx
        answer = ctx.waterfall(TOOLS_PRE_EXECUTE, self.execution, allow, subject=self._subject)
        decision: object = await _contained(answer, "a listener of tools/pre-execute")
        said: object = decision.reason if isinstance(decision, Ask | Deny) else ""
        if not (isinstance(said, str) or (said is None and isinstance(decision, Ask))):
            raise ToolError(
                f"a listener of tools/pre-execute gave a reason of type {type(said).__name__}, "
                "expected a text"
            )
        if isinstance(decision, Ask):
            decision = await self._asked(decision)
            if decision is None:
                return aborted(started=False)
        if isinstance(decision, Deny):
            return ToolFailure.of(decision.reason)
        if not isinstance(decision, Allow):
            raise ToolError(
                f"a listener of tools/pre-execute answered {type(decision).__name__}, "
                "expected Allow, Deny or Ask"
            )
        for guard in self._tools.guards(self._call.agent):
            reason: object = called("a guard", guard, self.execution)
            if reason is not None:
                if not isinstance(reason, str):
                    raise ToolError(f"a guard answered {type(reason).__name__}, expected a reason or None")
                return ToolFailure.of(reason)
        return aborted(started=False) if self._call.signal.cancelled else None

    async def _asked(self, ask: Ask) -> Allow | Deny | None:
        """What the approval service makes of it; None when the turn was cancelled meanwhile."""
        approval = self._tools.owner_ctx.get(APPROVAL)
        agent, call = self._call.agent, self._call
        if approval is None:
            return Deny(ask.reason or "this call needs an approval and no approval service is there")
        if agent is None:
            return Deny("this call needs an approval, which only an agent can ask for")
        request = ApprovalRequest(
            agent=agent,
            tool_name=call.name,
            call_id=call.call_id,
            reason=ask.reason,
            signal=call.signal,
        )
        outcome: str = await _contained(approval.request(request), "the approval service")
        if outcome == "allowed-once":
            return Allow()
        if outcome == "cancelled" and call.signal.cancelled:
            return None
        return Deny(REFUSALS.get(outcome, REFUSALS["unavailable"]))

    # -- body ------------------------------------------------------------------------------------

    async def _run_body(self) -> ToolResult:
        execution, caller = self.execution, self._call.signal
        given = execution.signal
        fused = caller if given is caller else CancelToken.any_of(caller, given)
        if fused.cancelled:
            return aborted(started=False)
        execution.signal = fused
        try:
            definition = self._definition()
            with Running(definition.owner, definition.name) as execution.body:
                value = await _contained(_run(definition, execution), f'tool "{definition.name}"')
            result: ToolResult = success_of(definition, execution, value)
            if _is_cancelled(fused):
                result = aborted(started=True)
        except Exception as error:
            stopped = isinstance(error, Cancelled) and _is_cancelled(fused)
            result = aborted(started=True) if stopped else failure_of(error)
        finally:
            if execution.signal is fused:  # not where a wrapper has gone on without the body
                execution.signal = given
            if fused is not caller:
                fused.detach()
        self._produced = result
        return result

    def _normalised(self, result: object) -> ToolResult:
        """The outcome of the wrappers: one they made themselves is held to the tool's own contract."""
        if not isinstance(result, ToolSuccess | ToolFailure):
            raise ToolError(
                f"a listener of tools/execute answered {type(result).__name__}, "
                "expected ToolSuccess or ToolFailure"
            )
        if result is not self._produced:
            checked = (
                checked_failure(result)
                if isinstance(result, ToolFailure)
                else self._with_value(result, result.value)
            )
            contexts = contexts_of(result.additional_contexts)
            result = msgspec.structs.replace(checked, additional_contexts=contexts)
        if isinstance(result, ToolSuccess) and self.execution.concludes_turn:
            result = msgspec.structs.replace(result, concludes_turn=True)
        return result

    # -- review ----------------------------------------------------------------------------------

    async def _reviewed(self, result: ToolResult) -> ToolResult:
        async def accept() -> PostDecision:
            return Accept()

        ctx, seen = self._tools.owner_ctx, Settled(self.execution, result)
        try:
            answer = ctx.waterfall(TOOLS_POST_EXECUTE, seen, accept, subject=self._subject)
            reviewed = self._decided(result, await _contained(answer, "a listener of tools/post-execute"))
        except Exception as error:
            return msgspec.structs.replace(failure_of(error), additional_contexts=result.additional_contexts)
        if self._call.signal.cancelled and not reviewed.is_error:
            return aborted(started=self.body_started, contexts=reviewed.additional_contexts)
        return reviewed

    def _decided(self, result: ToolResult, decision: object) -> ToolResult:
        if isinstance(decision, Block):
            return blocked(decision.feedback, decision.additional_contexts)
        if not isinstance(decision, Accept):
            raise ToolError(
                f"a listener of tools/post-execute answered {type(decision).__name__}, "
                "expected Accept or Block"
            )
        if decision.value is not msgspec.UNSET:
            if decision.content is not None:
                raise ToolError("a listener of tools/post-execute replaced content and value at once")
            if not isinstance(result, ToolSuccess):
                raise ToolError("a listener of tools/post-execute gave a failed call a value")
            result = self._with_value(result, decision.value)
        elif decision.content is not None:
            result = msgspec.structs.replace(result, content=content_of(decision.content))
        contexts = (*result.additional_contexts, *contexts_of(decision.additional_contexts))
        return msgspec.structs.replace(result, additional_contexts=contexts)

    def _finished(self, result: ToolResult) -> ToolResult:
        if self._finalizer is None:
            return result
        try:
            content = called("finalize_content", self._finalizer, self.execution, result)
            return result if content is None else msgspec.structs.replace(result, content=content_of(content))
        except Exception as error:
            return failure_of(error)

    def _definition(self) -> Registered:
        definition = self._tools.get(self._call.name, self._call.agent)
        if definition is None:
            raise ToolNotFoundError(self._call.name)
        return definition

    def _with_value(self, result: ToolSuccess, value: object) -> ToolSuccess:
        """The result with a value that the tool did not give: checked and rendered like its own."""
        checked = success_of(self._definition(), self.execution, value)
        return msgspec.structs.replace(
            result, value=checked.value, content=checked.content, meta=checked.meta
        )

    # -- state -----------------------------------------------------------------------------------

    def _enter(self, stage: int) -> None:
        if stage != self._stage + 1:
            raise RuntimeError(f"{self.execution!r}: stage {stage} follows stage {self._stage}")
        self._stage = stage

    def _settle(self, result: ToolResult, *, final: bool = False) -> None:
        self._outcome, self._is_final = result, final


def _is_cancelled(token: CancelToken) -> bool:
    """Read anew: between two reads the body ran."""
    return token.cancelled


async def _run(definition: ToolDefinition, execution: ToolExecution) -> object:
    return await definition.execute(execution.arguments, execution)


async def _contained(answer: Awaitable[T], who: str) -> T:
    """Wait for foreign code. Whatever ends it is its failure, unless this task is going down."""
    if not inspect.isawaitable(answer):
        raise ToolError(f"{who} is no `async def`: it answered {type(answer).__name__}")
    try:
        return await answer
    except BaseException as error:
        raise exit_of(error, who)  # noqa: B904 -- the same one, or made of it
