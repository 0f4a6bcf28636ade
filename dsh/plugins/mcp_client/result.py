"""What the model reads of an answer to `tools/call`."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dsh.plugins.mcp_client.sieve import shown
from dsh.session.value import MAX_SAFE_INT

NOTHING = "(the tool returned no model-visible content)"

VALUE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"content": {"type": "array", "items": {"type": "object"}}, "structuredContent": {}},
    "required": ["content"],
    "additionalProperties": False,
}
"""Of a call's value: the content blocks as the server gave them, and its structured content."""


def text_of(content: Sequence[Mapping[str, Any]], structured: Any = None) -> str:
    """The blocks as text, one below the other; structured content where there is no text among them."""
    lines = [_line(block) for block in content]
    has_text = any(block.get("type") in ("text", "resource") for block in content)
    if structured is not None and not has_text:
        lines.append(json.dumps(structured, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(lines) if any(lines) else NOTHING


def _line(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "resource_link", "uri": uri}:
            name = block.get("title") or block.get("name") or ""
            return f"[resource {shown(str(name))}: {shown(str(uri), 2_000)}]"
        case {"type": "resource", "resource": {"uri": uri, "text": str() as text}}:
            return f"[resource {shown(str(uri), 2_000)}]\n{text}"
        case {"type": "resource", "resource": {"uri": uri, **rest}}:
            kind = rest.get("mimeType") or "unknown type"
            size = _size(rest.get("blob"))
            return f"[resource {shown(str(uri), 2_000)}: {size} of {shown(str(kind))}, not shown]"
        case {"type": "image" | "audio" as what}:
            kind = block.get("mimeType") or "unknown type"
            return f"[{what}: {_size(block.get('data'))} of {shown(str(kind))}, not shown]"
        case _:
            return f"[content of type {shown(str(block.get('type')), 40)}, not shown]"


def _size(data: Any) -> str:
    """How much base64 text stands for."""
    if not isinstance(data, str):
        return "something"
    return f"{max(0, len(data.rstrip('=')) * 3 // 4)} bytes"


def lossless(value: Any) -> Any:
    """Foreign JSON as a value of ours may be: what no reader of the log would keep exact becomes a text.

    Integers keep every digit; NaN and the infinities, which some servers write, their names.
    """
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if abs(value) <= MAX_SAFE_INT else str(value)
        case float():
            return (value or 0.0) if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): lossless(item) for key, item in value.items()}
        case list() | tuple():
            return [lossless(item) for item in value]
        case _:
            return str(value)
