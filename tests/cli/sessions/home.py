"""A home with stored sessions, and calling the bodies of session commands on it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dsh.persistence.jsonl.frames import encode_frame
from dsh.persistence.jsonl.layout import LOG_NAMES, session_dir
from tests.persistence.golden import turn_end, turn_start

CREATED = 1_700_000_000_000
HOUR_S = 3_600


class Told(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


class Home:
    """`$DSH_HOME` in a temporary folder; the working directory is `work` beside it."""

    def __init__(self, root: Path) -> None:
        self.path, self.work = root / "home", root / "work"
        self.sessions = self.path / "sessions"
        self.path.mkdir()
        self.work.mkdir()

    def store(
        self,
        session_id: str,
        body: bytes | None = None,
        *,
        cwd: str | None = "",
        age_s: float = 0,
        is_plain: bool = True,
        root: Path | None = None,
        **fields: object,
    ) -> Path:
        """Store a session of the working directory, last written so long ago.

        Args:
            body: its rows; one whole turn by default.
            cwd: empty for the working directory.
            fields: further ones of the header.
        """
        where = str(self.work) if cwd == "" else cwd
        header = {"type": "session", "version": 0, "id": session_id, "createdAt": CREATED}
        header |= {"cwd": where} if where is not None else {}
        header |= fields | {"delegationDepth": 0}
        text = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        rows = turn_start(0) + turn_end(1) if body is None else body
        path = session_dir(root or self.sessions, session_id, where)
        path.mkdir(parents=True)
        path /= LOG_NAMES["plain" if is_plain else "zstd"]
        path.write_bytes(
            text + rows if is_plain else encode_frame(text) + (encode_frame(rows) if rows else b"")
        )
        then = path.stat().st_mtime - age_s
        os.utime(path, (then, then))
        return path

    def profile(self, patch: str, name: str = "headless") -> None:
        """Write a profile's patch file."""
        folder = self.path / "profiles" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "dsh.patch.yml").write_text(patch)

    def ids(self) -> list[str]:
        """The sessions that have a log."""
        return sorted(path.parent.name for path in self.sessions.glob("*/*/session.jsonl*"))


Call = Callable[[Callable[[], int]], Told]
