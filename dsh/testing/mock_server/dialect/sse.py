"""Server-sent events and JSON as the mock servers write them."""

import json
from typing import Any


def compact(value: Any) -> bytes:
    """JSON without spaces; halves of a surrogate pair, which UTF-8 cannot hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def event(value: Any, name: str = "") -> bytes:
    """One event with a JSON payload, named where the dialect names its events."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + compact(value) + b"\n\n"
