"""The two rows of a tool call in the log (`spec/tools.md` §3)."""

from typing import Any

import msgspec

from dsh.agent.step_scope import StepScope
from dsh.session.message import tool_result_message
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult


def log_call(scope: StepScope, call: ToolCall, raw: str) -> int:
    """Append `tool/call` with the model's own argument text; answers its seq."""
    data = {
        "turn": scope.turn,
        "step": scope.step,
        "callId": call.call_id,
        "name": call.name,
        "arguments": raw,
    }
    return scope.session.append("tool/call", data).seq


def log_result(scope: StepScope, call_id: str, result: ToolResult, call_seq: int | None) -> None:
    """Append `tool/result`, citing its `tool/call` where there is one."""
    message = tool_result_message(call_id, result.content, is_error=result.is_error)
    data: dict[str, Any] = {"turn": scope.turn, "step": scope.step, "message": message}
    if isinstance(result, ToolFailure) and result.info is not None:
        data["error"] = result.info
    if result.meta is not msgspec.UNSET:
        data["meta"] = result.meta
    sources = None if call_seq is None else (call_seq,)
    scope.session.append("tool/result", data, surface="append", sources=sources)
