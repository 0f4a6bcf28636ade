"""Where a session's log lies: `<root>/<project>/<session>/session.jsonl[.zstd]` (`spec/persistence.md` §6).

Names are computed on UTF-16 code units, as the original does: a character outside the basic plane gives
two escapes, a lone surrogate gives one.
"""

import re
from pathlib import Path
from typing import Literal

Encoding = Literal["zstd", "plain"]

LOG_NAMES: dict[Encoding, str] = {"zstd": "session.jsonl.zstd", "plain": "session.jsonl"}
PROJECT_LIMIT = 251
"""Characters of a project slug; with the dashes around it a name stays within 255 bytes."""

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_SEPARATORS = frozenset(b"/\\:")


def _units(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")


def _escape(unit: int) -> str:
    return chr(unit) if unit in _SAFE else f"~{unit:04X}"


def project_name(cwd: str | None) -> str:
    """The folder of all sessions of one working directory. Lossy on purpose: several may share one."""
    if cwd is None:
        return "_no-cwd"
    out: list[str] = []
    in_run = False
    for unit in _units(cwd):
        if unit in _SEPARATORS:
            if not in_run:
                out.append("-")
            in_run = True
        else:
            out.append(_escape(unit))
            in_run = False
    slug = "".join(out).lstrip("-") or "root"
    return f"--{slug[:PROJECT_LIMIT]}--"


def session_name(session_id: str) -> str:
    """The folder of one session. Injective.

    Raises:
        ValueError: the id is empty.
    """
    if not session_id:
        raise ValueError("a session id must not be empty")
    name = "".join(map(_escape, _units(session_id)))
    return name.replace(".", "~002E") if name in (".", "..") else name


def session_id_of(name: str) -> str:
    """The id behind the name of a session's folder."""
    units = re.sub("~([0-9A-F]{4})", lambda found: chr(int(found[1], 16)), name)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def session_dir(root: Path, session_id: str, cwd: str | None) -> Path:
    return root / project_name(cwd) / session_name(session_id)


def log_path(root: Path, session_id: str, cwd: str | None, encoding: Encoding) -> Path:
    """The one place where a session with this header is stored in this encoding."""
    return session_dir(root, session_id, cwd) / LOG_NAMES[encoding]
