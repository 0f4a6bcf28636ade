"""The random id of a home: tells one installation from another and says nothing of who it is."""

import os
import uuid
from pathlib import Path

FILE = ".anonymous-user-id"
"""Where it is kept, in the home."""


def anonymous_id(path: Path) -> str:
    """The id that stands in the file, which is made when it is first asked for."""
    try:
        return str(uuid.UUID(path.read_text("ascii").strip()))
    except (OSError, ValueError):
        made = str(uuid.uuid4())
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(made + "\n")
    return made
