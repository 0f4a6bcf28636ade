"""What a call of `bash` comes to: its value, the schema of that, and the text for the model.

The markers are protocol: displays and policies parse them. How the command ended is the last line.
"""

from collections.abc import Mapping
from typing import Any

from dsh.capabilities.retention import tail
from dsh.capabilities.shell import ShellResult, StreamText
from dsh.tools.escalation import Escalation

BACKGROUND_NOTE = (
    "[processes of this command still run in the background; what they print is no longer shown, and they "
    "are ended with the run]"
)
ENDED_NOTE = (
    "[processes that this command left in the background were ended with it; what is to go on running needs "
    "run_in_background]"
)
DETACHED_NOTE = "[a process that this command detached still runs; it is not ended with the run]"
UNKILLABLE_NOTE = "[the command was killed but has not ended: the system does not let go of it]"
TAIL_BYTES = 24_000
"""Shown of a stream that was cut and is whole in a file: two of them fit into one result of 50,000 bytes."""

_STREAM = {
    "type": "object",
    "required": True,
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "required": True},
        "truncated": {"type": "boolean", "required": True},
        "spillPath": {"type": "string"},
    },
}
_FOREGROUND = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "enum": ["foreground"], "required": True},
        "exitCode": {"type": "json", "required": True},
        "signal": {"type": "json", "required": True},
        "timedOut": {"type": "boolean", "required": True},
        "aborted": {"type": "boolean", "required": True},
        "timeoutMs": {"type": "number", "required": True},
        "stdout": _STREAM,
        "stderr": _STREAM,
        "leftRunning": {"type": "boolean", "required": True},
        "detached": {"type": "boolean", "required": True},
        "endedChildren": {"type": "boolean"},
        "sandbox": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "mode": {"type": "string", "required": True},
                "denied": {"type": "boolean", "required": True},
            },
        },
    },
}
_BACKGROUND = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "enum": ["background"], "required": True},
        "jobId": {"type": "string", "required": True},
    },
}
SCHEMA = {"oneOf": [_FOREGROUND, _BACKGROUND]}


def foreground_value(result: ShellResult) -> dict[str, Any]:
    value: dict[str, Any] = {
        "kind": "foreground",
        "exitCode": result.exit_code,
        "signal": result.signal,
        "timedOut": result.timed_out,
        "aborted": result.aborted,
        "timeoutMs": result.timeout_ms,
        "stdout": _stream_value(result.stdout),
        "stderr": _stream_value(result.stderr),
        "leftRunning": result.left_running,
        "detached": result.detached,
    }
    if result.ended_children:
        value["endedChildren"] = True
    if result.sandbox is not None:
        value["sandbox"] = {"mode": result.sandbox.mode, "denied": result.sandbox.denied}
    return value


def background_value(job_id: str) -> dict[str, Any]:
    return {"kind": "background", "jobId": job_id}


def render(value: Mapping[str, Any], escalation: Escalation) -> str:
    """What the model sees: the output, then a marker for each thing that was out of the ordinary."""
    if value["kind"] == "background":
        return f"started background job {value['jobId']}"
    text = _shown(value["stdout"])
    if stderr := _shown(value["stderr"]):
        text = on_new_line(text, f"[stderr]\n{stderr}")
    text = text or "(no output)"
    sandbox = value.get("sandbox")
    if sandbox is not None and sandbox["denied"]:
        text = on_new_line(text, escalation.denial(sandbox["mode"]))
    is_over = value["exitCode"] is not None or value["signal"] is not None
    if not is_over:
        text = on_new_line(text, UNKILLABLE_NOTE)
    elif value["leftRunning"]:
        text = on_new_line(text, BACKGROUND_NOTE)
    elif value.get("endedChildren"):
        text = on_new_line(text, ENDED_NOTE)
    if value["detached"]:
        text = on_new_line(text, DETACHED_NOTE)
    if value["timedOut"]:
        text = on_new_line(text, f"[timed out after {value['timeoutMs']}ms]")
    if value["signal"] is not None:
        text = on_new_line(text, f"[killed by signal: {value['signal']}]")
    elif value["exitCode"]:
        text = on_new_line(text, f"[exit code: {value['exitCode']}]")
    return text


def on_new_line(text: str, line: str) -> str:
    return text + ("" if not text or text.endswith("\n") else "\n") + line


def _stream_value(stream: StreamText) -> dict[str, Any]:
    value: dict[str, Any] = {"text": stream.text, "truncated": stream.truncated}
    return value | ({"spillPath": stream.spill_path} if stream.spill_path else {})


def _shown(stream: Mapping[str, Any]) -> str:
    text: str = stream["text"]
    if not stream["truncated"]:
        return text
    path = stream.get("spillPath")
    if path is not None:
        kept = tail(text, TAIL_BYTES)
        text = kept.head + kept.tail
    return on_new_line(text, f"[output truncated; full output: {path or '(unavailable)'}]")
