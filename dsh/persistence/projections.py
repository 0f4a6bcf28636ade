"""The stored states of a session's projections: `projections.json` beside its log.

A cache: it can be deleted at any time, and whatever is wrong with it means that there is none. Reading it
takes neither a lock nor the log (`spec/persistence.md` §9).
"""

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsh.session.error import JsonError
from dsh.session.header import SessionHeader
from dsh.session.projection.fold import Row, Rows, row_from_json
from dsh.session.value import decode_strict, encode, freeze, json_equal, safe_int

FILE = "projections.json"
VERSION = 1
"""Of the file's shape; another one counts as no file."""
MAX_BYTES = 16 * 1024 * 1024
"""A larger file is none of ours."""
MAX_ROW_BYTES = 1024 * 1024
"""A larger state is not stored, it is folded again: it would be written at every end of a turn."""


def sidecar_path(log: Path) -> Path:
    """Where the states of the session in this log file are stored."""
    return log.with_name(FILE)


def read_rows(path: Path, header: SessionHeader) -> dict[str, Row]:
    """The rows that belong to the session with this header; empty where there are none.

    An id names a place, not a life: rows of an earlier session with the same id are not this one's.
    """
    value = _read(path)
    if (
        value is None
        or safe_int(value.get("version")) != VERSION
        or not _is_of(value.get("identity"), header)
    ):
        return {}
    rows = value.get("rows")
    found = {key: row_from_json(row) for key, row in rows.items()} if isinstance(rows, dict) else {}
    return {key: row for key, row in found.items() if row is not None}


def write_rows(path: Path, header: SessionHeader, rows: Rows) -> bool:
    """Put these rows in place of those that are there, in one step, and leave out those that are too large.

    Answers False where the folder is gone.

    Not synced to disk: what a crash of the machine loses is folded again. The folder is not made, so that a
    session which was deleted meanwhile stays so.

    Raises:
        OSError: it cannot be written; what was there is there.
    """
    stored = {key: {"ver": row.ver, "seq": row.seq, "val": row.val} for key, row in rows.items()}
    kept = {key: row for key, row in stored.items() if len(encode(row)) <= MAX_ROW_BYTES}
    data = encode({"version": VERSION, "identity": _identity(header), "rows": kept})
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return False
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return True


def title_of(rows: Rows) -> str | None:
    """The title among stored rows, None where none is known."""
    from dsh.session.projection.title import TITLE

    row = rows.get(TITLE.key)
    return row.val if row is not None and row.ver == TITLE.version and isinstance(row.val, str) else None


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        data = _bytes(path)
    except OSError:
        return None
    if len(data) > MAX_BYTES:
        return None
    try:
        value = freeze(decode_strict(data), path.name, stored=True)
    except JsonError:
        return None
    return value if isinstance(value, dict) else None


def _bytes(path: Path) -> bytes:
    """The beginning of a file, one byte more than it may have; nothing of what is no file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _identity(header: SessionHeader) -> dict[str, Any]:
    identity: dict[str, Any] = {"createdAt": header.created_at}
    if header.cwd is not None:
        identity["cwd"] = header.cwd
    return identity


def _is_of(identity: object, header: SessionHeader) -> bool:
    return isinstance(identity, dict) and json_equal(identity, _identity(header))
