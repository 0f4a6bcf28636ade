"""What a server says of one tool, without the types of the SDK."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.session.value import encode
from dsh.unicode import valid

MAX_PAGES = 200
"""Pages of one list."""
MAX_TOOLS = 1_000
"""Tools of one server."""
MAX_SCHEMA_BYTES = 64 * 1024
"""Of one tool's parameters: every request carries them."""
MAX_DESCRIPTION_CHARS = 8_000
"""Of one tool's description; a longer one is cut."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a server."""

    name: str
    """As the server calls it."""
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""
    output_schema: Mapping[str, Any] | None
    is_read_only: bool
    """The server says that it changes nothing."""

    @property
    def print(self) -> bytes:
        """The same for the same tool, whatever the order of keys."""
        return msgspec.json.encode(msgspec.to_builtins(self), order="deterministic")


def problem_of(entry: Any) -> str | None:
    """Why no model can be told of a tool that the protocol allows; None where one can."""
    schema = entry["inputSchema"]
    if schema.get("type", "object") != "object":
        return "its inputSchema is not of an object"
    if (entry.get("execution") or {}).get("taskSupport") == "required":
        return "it can only be called as a task, which dsh does not do"
    if not entry["name"].strip():
        return "it has no name"
    try:
        size = len(encode(schema))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return "its inputSchema is no JSON"
    if size > MAX_SCHEMA_BYTES:
        return f"its inputSchema has {size} bytes, at most {MAX_SCHEMA_BYTES} are taken"
    return None


def description_of(text: str) -> str:
    """A description of bounded length; it says where it was cut."""
    text = valid(text)
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    return f"{text[:MAX_DESCRIPTION_CHARS]}\n[cut: {len(text)} characters]"
