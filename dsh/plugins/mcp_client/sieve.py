"""What servers answer, made ready for the SDK, whose models refuse a whole answer for one wrong piece.

Pure functions over raw JSON. Each piece that the protocol knows stays as it is.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from dsh.unicode import valid

SHOWN_CHARS = 200
"""Of a name, a reason or a line of noise."""
NEEDED = ("name", "description", "inputSchema", "execution")
"""What a tool is made of."""


def shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """A foreign text in one line without control characters, cut at a whole character."""
    line = " ".join(valid(text).split())
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line[: limit + 1])
    return line if len(line) <= limit else f"{line[:limit]}…"


def tools_page(
    page: dict[str, Any], problem_of: Callable[[Any], str | None], skip: Callable[[str, str], None]
) -> dict[str, Any]:
    """A page of `tools/list` with the entries that are tools.

    What only decorates a tool (annotations, icons, the schema of its output) is left out where it is wrong.

    Args:
        problem_of: says what is wrong with an entry, None where nothing is.
        skip: is told name and reason of each that is left out.
    """
    listed = page.get("tools")
    if not isinstance(listed, list):
        return page
    kept = []
    for given in listed:
        entry = _typed(given)
        reason = problem_of(entry)
        if reason is not None and isinstance(entry, dict):
            bare = {key: entry[key] for key in NEEDED if key in entry}
            if bare.keys() != entry.keys() and problem_of(bare) is None:
                entry, reason = bare, None
        if reason is None:
            kept.append(entry)
        else:
            name = entry.get("name") if isinstance(entry, dict) else None
            skip(shown(name) if isinstance(name, str) else "(no name)", shown(reason))
    return {**page, "tools": kept}


def _typed(entry: Any) -> Any:
    """An entry whose parameters say that they are an object, where they say nothing of what they are."""
    if not isinstance(entry, dict):
        return entry
    schema = entry.get("inputSchema")
    if schema is None or (isinstance(schema, dict) and "type" not in schema):
        return {**entry, "inputSchema": {"type": "object", **(schema or {})}}
    return entry


def call_result(
    result: dict[str, Any], is_block: Callable[[Any], bool], *, is_any_structured: bool
) -> dict[str, Any]:
    """An answer to `tools/call` with a content of known blocks; what is none becomes a line of text.

    So does structured content that is no object, which the protocol did not always allow. A null is nothing.
    """
    if result.get("resultType", "complete") not in ("complete", None):
        return result
    result = {key: value for key, value in result.items() if value is not None}
    content = result.setdefault("content", [])
    if not isinstance(content, list):
        return result
    content = [block if is_block(block) else _left_out(block) for block in content]
    if not is_any_structured and not isinstance(result.get("structuredContent", {}), dict):
        structured = result.pop("structuredContent")
        content.append({"type": "text", "text": json.dumps(structured, ensure_ascii=False)})
    return {**result, "content": content}


def _left_out(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    named = f'of type "{shown(kind, 40)}" ' if isinstance(kind, str) else ""
    return {"type": "text", "text": f"[content {named}left out: it is of no kind that is known here]"}
