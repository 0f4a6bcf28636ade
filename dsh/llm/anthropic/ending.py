"""How a reply on the Messages wire ends: its stop reasons."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dsh.llm.failure import LlmFailure

MAX_CODE_CHARS = 64

_KINDS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool-calls", "max_tokens": "max-tokens"}
"""Finish reasons by `stop_reason`."""
_STOPPED = {
    "refusal": ("REFUSAL", "the model refused to answer"),
    "pause_turn": ("PAUSE_TURN", "the server paused a turn of its own tools, which are not used here"),
    "model_context_window_exceeded": (
        "CONTEXT_WINDOW_EXCEEDED",
        "the reply reached the end of the model's context window",
    ),
}


def finish_reason(
    wire: str | None,
    *,
    shown: Callable[[str], str],
    usage: Mapping[str, int],
    window: int | None,
    is_empty: bool,
    details: Any,
) -> dict[str, Any]:
    """The finish reason of a reply that came whole.

    Args:
        wire: its `stop_reason`; None for a server that gives none.
        shown: makes foreign text a part of a message.
        usage: what was reported, in the wire's names.
        window: the model's context window in tokens, where it is known.
        is_empty: there is no block with anything in it.
        details: `stop_details`, where a refusal explains itself.
    """
    prompt = sum(count for member, count in usage.items() if member != "output_tokens")
    if window is not None and prompt > window:
        return _failed(
            "CONTEXT_WINDOW_EXCEEDED",
            f"the prompt of {prompt} tokens is larger than the model's window of {window}",
        )
    kind = _KINDS.get(wire or "end_turn")
    if kind == "max-tokens" and is_empty and usage.get("output_tokens") == 0:
        return _failed("CONTEXT_WINDOW_EXCEEDED", "the prompt left the model no room for a single token")
    if kind in ("stop", "tool-calls") and is_empty:
        return _failed("EMPTY_RESPONSE", "the model's reply is empty")
    if kind is not None:
        return {"kind": kind}
    name = shown(wire or "")
    code, message = _STOPPED.get(wire or "", ("", f"model stopped: {name}"))
    if not code:
        code = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            code = "UNKNOWN_FINISH_REASON"
    said = details.get("explanation") if isinstance(details, dict) else None
    if isinstance(said, str) and said.strip():
        message += f": {shown(said)}"
    return _failed(code, message)


def _failed(code: str, message: str) -> dict[str, Any]:
    return {"kind": "error", "failure": LlmFailure(message, code).to_json()}
