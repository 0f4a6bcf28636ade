"""Server-sent events and JSON as the mock servers write them."""

import json
from typing import Any


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: Any, name: str = "") -> bytes:
    """One event with a JSON payload, named where the dialect names its events."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + compact(value) + b"\n\n"
