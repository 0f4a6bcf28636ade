"""A recorded session as a file: a log as it is stored, or a fixture of which `seq` and `time` are taken out.

Only what model calls are made of is looked at; a fixture need not be a log that opens. zstd is read as well.
"""

import errno
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsh.llm.adapter import ModelInfo, RetryPolicy
from dsh.llm.script.call import Call, check_whole
from dsh.llm.script.derive import derived_calls
from dsh.llm.script.error import INVALID, ScriptError
from dsh.llm.script.player import Script, Scripts, opening_of
from dsh.llm.script.route import recorded_models, recorded_policies
from dsh.persistence.jsonl.frames import MAGIC, FrameDefect, decode_frame, scan_frames
from dsh.session.chunk_row import is_row, row_to_run
from dsh.session.error import InvalidEvent, JsonError
from dsh.session.event import SessionEvent
from dsh.session.value import JsonObject, decode_strict, freeze, safe_int


class Recording(msgspec.Struct, frozen=True):
    """What a script needs of a recorded session."""

    name: str
    session_id: str
    created_at: int
    calls: tuple[Call, ...]
    """As derived: some may be without an end (`check_whole`)."""
    models: tuple[ModelInfo, ...]
    policies: dict[str, RetryPolicy]
    opening: str | None = None
    """What the user had said last when the first call was made."""


def read_recording(path: Path, *, is_child: bool = False) -> Recording:
    """Read a recording.

    Args:
        is_child: it plays a child session, which begins behind its `seedLength`; a parent is played whole.

    Raises:
        ScriptError: `SCRIPT_INVALID`, with file and line; or the file cannot be read.
    """
    try:
        text = _text(path)
    except (OSError, ValueError, FrameDefect) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise ScriptError(INVALID, f"{path}: cannot be read: {told}") from None
    lines = text.split(b"\n")
    header = _object(path, 1, lines[0])
    events = list(_events(path, lines))
    start = (safe_int(header.get("seedLength")) or 0) if is_child else 0
    try:
        calls = derived_calls(events, start=start)
        models, policies = recorded_models(events), recorded_policies(events)
    except ScriptError as error:
        raise ScriptError(INVALID, f"{path}: {error}", hint=error.hint) from None
    created_at = safe_int(header.get("createdAt")) or 0
    return Recording(
        name=str(path),
        session_id=str(header.get("id", "")),
        created_at=created_at,
        calls=tuple(calls),
        models=models,
        policies=policies,
        opening=_opening(events, calls),
    )


def scripts_of(parent: Recording, children: Sequence[Recording]) -> Scripts:
    """The scripts in the order in which live sessions claim them where their opening words do not decide: the
    parent's, then those of children by the time they were made, ids deciding between equals.

    Raises:
        ScriptError: `SCRIPT_UNFINISHED_CALL`.
    """
    ordered = [parent, *sorted(children, key=lambda child: (child.created_at, child.session_id))]
    for recording in ordered:
        check_whole(recording.calls)
    return Scripts([Script(each.calls, name=each.name, opening=each.opening) for each in ordered])


def _opening(events: Sequence[SessionEvent], calls: Sequence[Call]) -> str | None:
    """What the user had said last when the first call was made; None where the log does not tell."""
    if not calls or calls[0].seq is None:
        return None
    said = [event.data for event in events[: calls[0].seq] if event.type == "user/message"]
    try:
        return opening_of(said)
    except (KeyError, TypeError, AttributeError):
        return None


def read_regular(path: Path) -> bytes:
    """The bytes of a file that is one; a device or a pipe may never end.

    Raises:
        OSError: it cannot be read, or is none.
        ValueError: the path holds a NUL.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_bytes()


def _text(path: Path) -> bytes:
    data = read_regular(path)
    if not data:
        raise ScriptError(INVALID, f"{path}: the file is empty; a session begins with a header")
    if not data.startswith(MAGIC):
        return data
    frames, torn = scan_frames(data)
    if torn is not None:
        raise ScriptError(INVALID, f"{path}: the file ends inside the zstd frame at byte {torn}")
    return b"".join(decode_frame(data, frame) for frame in frames)


def _object(path: Path, number: int, line: bytes) -> JsonObject:
    try:
        value = decode_strict(line)
    except JsonError as error:
        raise ScriptError(INVALID, f"{path}:{number}: {error}") from None
    if not isinstance(value, dict):
        raise ScriptError(INVALID, f"{path}:{number}: an object is expected, one a line")
    return value


def _events(path: Path, lines: Sequence[bytes]) -> Iterator[SessionEvent]:
    """The events behind the header. Either every row says where it stands, or none does."""
    seq = 0
    is_projected: bool | None = None
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            if number < len(lines):
                raise ScriptError(INVALID, f"{path}:{number}: the line is empty")
            return
        row = dict(_object(path, number, line))
        keys = ("seq0", "time0") if is_row(row) else ("seq", "time")
        lacks = not any(key in row for key in keys)
        if is_projected is not None and lacks != is_projected:
            raise ScriptError(
                INVALID,
                f"{path}:{number}: this row is {'without' if lacks else 'with'} {keys[0]}, others are not",
                hint="take seq and time out of every row, or of none",
            )
        is_projected = lacks
        row = {**row, **(dict(zip(keys, (seq, 0), strict=True)) if lacks else {})}
        for event in _of_row(path, number, row):
            if event.seq != seq:
                raise ScriptError(INVALID, f"{path}:{number}: expected seq {seq}, found {event.seq}")
            seq += 1
            yield event


def _of_row(path: Path, number: int, row: dict[str, Any]) -> Iterator[SessionEvent]:
    try:
        if is_row(row):
            yield from row_to_run(row).events()
            return
        seq, time, kind = safe_int(row.get("seq")), safe_int(row.get("time")), row.get("type")
        if seq is None or time is None or type(kind) is not str or "data" not in row:
            raise InvalidEvent("an event has a type, data, and the integers seq and time")
        yield SessionEvent(kind, seq, time, freeze(row["data"], f"{kind}: data", stored=True))
    except (InvalidEvent, JsonError) as error:
        raise ScriptError(INVALID, f"{path}:{number}: {error}") from None
