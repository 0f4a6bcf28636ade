"""What the Messages wire wants to see again: signatures of thinking, and thinking that is encrypted.

The replay state of a reply is `{response: {version: 1, behind?}, blocks: [entry or null per block]}`, an
entry `{type: "thinking", signature}` or `{type: "redacted_thinking", data}`. `behind` is a digest of what
was sent, for models whose thinking may come back behind nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dsh.unicode import valid

VERSION = 1
REPLACEMENT = "\ufffd"


def replay_state(
    entries: Sequence[Mapping[str, Any] | None], behind: str | None = None
) -> dict[str, Any] | None:
    """The state of a reply by its blocks; None where no block has any."""
    if not any(entries):
        return None
    response: dict[str, Any] = {"version": VERSION}
    if behind is not None:
        response["behind"] = behind
    return {"response": response, "blocks": [dict(entry) if entry else None for entry in entries]}


def read_entries(state: Any, blocks: int, behind: str | None = None) -> Sequence[Any]:
    """An entry or None for each of a message's blocks. State that is of no use says nothing.

    Args:
        behind: what the message stands behind now, where that matters.
    """
    nothing = (None,) * blocks
    if not isinstance(state, Mapping):
        return nothing
    response, entries = state.get("response"), state.get("blocks")
    if not isinstance(response, Mapping) or response.get("version") != VERSION:
        return nothing
    if not isinstance(entries, (list, tuple)) or len(entries) != blocks:
        return nothing
    if behind is not None and response.get("behind") != behind:
        return nothing
    return entries


def wire_thinking(text: str, entry: Any) -> dict[str, Any] | None:
    """The thinking block of a reasoning block; None where nothing usable was kept of it.

    Text in which a broken character became U+FFFD is not the text that was signed, and would be refused.
    """
    if not isinstance(entry, Mapping):
        return None
    if entry.get("type") == "redacted_thinking":
        data = entry.get("data")
        return {"type": "redacted_thinking", "data": data} if isinstance(data, str) and data else None
    signature = entry.get("signature")
    if entry.get("type") != "thinking" or not isinstance(signature, str) or not signature:
        return None
    if REPLACEMENT in valid(text):
        return None
    return {"type": "thinking", "thinking": text, "signature": signature}
