"""Replies for the scripted model."""

import json
from typing import Any

Reply = dict[str, Any]


def text(*deltas: str, **changes: Any) -> Reply:
    """A reply of text only."""
    return {"text": list(deltas), **changes}


def bash(command: str, call_id: str = "call_1") -> Reply:
    """A reply that calls bash once."""
    arguments = json.dumps({"command": command, "description": "test command"})
    return {"tools": [{"id": call_id, "name": "bash", "args": [arguments]}]}


def failure(status: int, message: str) -> Reply:
    """An HTTP error."""
    return {"status": status, "body": {"error": {"message": message}}}
