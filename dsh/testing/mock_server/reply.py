"""Free-form replies: what a test writes down instead of a behaviour's name."""

from collections.abc import Mapping
from typing import Any

from dsh.testing.mock_server.dialect.base import Dialect, streamed
from dsh.testing.mock_server.dialect.chat import DEEPSEEK
from dsh.testing.mock_server.dialect.sse import compact
from dsh.testing.mock_server.part import Call, Part, Reasoning, Redacted, Text, Usage, whole
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Pause, Plan, Reset, Step, pieces

KNOWN = frozenset(
    {
        "reasoning",
        "redacted",
        "text",
        "tools",
        "finish",
        "usage",
        "repeat",
        "status",
        "body",
        "headers",
        "raw",
        "cut",
        "delay_ms",
        "batch",
    }
)


def scripted(reply: Mapping[str, Any], dialect: Dialect = DEEPSEEK) -> Plan:
    """The plan of a free-form reply, in the form of the recorded scenarios.

    `reasoning`, `text`: lists of deltas; `tools`: `{id, name, args: [str] | raw + split}`; `finish`; `usage`;
    `repeat`: how often the text is sent; or `status`, `body`, `headers`: an HTTP error; or `raw`: text to
    send as it is, and `cut`: reset afterwards. `delay_ms` stands between the deltas. `finish` and `usage`
    are as chat-completions servers spell them, and are told in the words of the dialect.

    Raises:
        ValueError: an unknown member.
    """
    if unknown := set(reply) - KNOWN:
        raise ValueError(f"scripted reply: unknown members {sorted(unknown)}; known are {sorted(KNOWN)}")
    if "status" in reply:
        body = reply.get("body", {"error": {"message": "scripted"}})
        raw = body.encode() if isinstance(body, str) else compact(body)
        headers = {**JSON_HEADERS, **reply.get("headers", {})}
        return Plan(status=reply["status"], headers=headers, steps=(raw,))
    sent: tuple[Step, ...]
    calls: Mapping[str, str] = {}
    if "raw" in reply:
        sent = tuple(text.encode("utf-8", "surrogateescape") for text in reply["raw"])
    else:
        plan = streamed(dialect, _parts(reply, dialect), MockOptions())
        sent, calls = plan.steps, plan.calls
    steps: list[Step] = []
    for item in sent:
        steps.append(item)
        if reply.get("delay_ms"):
            steps.append(Pause(reply["delay_ms"]))
    if reply.get("cut"):
        steps.append(Reset())
    return Plan(steps=tuple(steps), calls=calls)


def _parts(reply: Mapping[str, Any], dialect: Dialect) -> list[Part]:
    parts: list[Part] = [Redacted(data) for data in reply.get("redacted", ())]
    parts += [Reasoning(piece) for piece in reply.get("reasoning", ())]
    parts += [Text(piece) for piece in reply.get("text", ())] * reply.get("repeat", 1)
    for call in reply.get("tools", ()):
        arguments = call["args"] if "args" in call else pieces(call["raw"], call["split"]) or [""]
        parts.append(Call(call["id"], call["name"], tuple(arguments)))
    finish = reply.get("finish") or ("tool_calls" if reply.get("tools") else "stop")
    usage: Any = reply.get("usage", Usage())
    if dialect.name == "anthropic":
        finish = {"tool_calls": "tool-calls", "length": "max-tokens", "content_filter": "refusal"}.get(
            finish, finish
        )
        usage = _counted(usage)
    return whole(*parts, reason=finish, usage=usage)


def _counted(usage: Any) -> Any:
    """Counts in the names of chat completions, each token once; anything else as it is."""
    if not isinstance(usage, Mapping) or "prompt_tokens" not in usage:
        return usage
    cached = usage.get("prompt_cache_hit_tokens", 0)
    return Usage(
        uncached=usage["prompt_tokens"] - cached,
        cache_read=cached,
        output=usage.get("completion_tokens", 0),
        reasoning=usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0),
    )
