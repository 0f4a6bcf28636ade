"""The golden log of `spec/session-log.md` §16 (17 events, 15 lines and a header), and ways to make others."""

import hashlib
import json
from pathlib import Path

from dsh.persistence.jsonl.frames import encode_frame
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import LogView, build_view

SHA256 = "920611d4142ca34cde8b3492051ccd819ffa9e7f75b0bce213117e286163980f"
TEXT = Path(__file__).with_name("golden.jsonl").read_bytes()
assert hashlib.sha256(TEXT).hexdigest() == SHA256
HEADER, *BODY = TEXT.splitlines(keepends=True)


def view_of(path: Path) -> LogView:
    """What `inspect` makes of a file."""
    return build_view(read_log(path))


def types_of(view: LogView) -> list[str]:
    return [event.type for event in view.events()]


def line(kind: str, seq: int, data: object, **more: object) -> bytes:
    """One stored event."""
    event = {"type": kind, "seq": seq, "time": 1_700_000_000_000 + seq, "data": data, **more}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def turn_start(seq: int, turn: int = 1) -> bytes:
    return line("turn/start", seq, {"turn": turn})


def turn_end(seq: int, turn: int = 1) -> bytes:
    return line("turn/end", seq, {"turn": turn, "reason": {"kind": "completed"}})


def step_start(seq: int) -> bytes:
    return line("step/start", seq, {"turn": 1, "step": 1})


def text_row(seq0: int, texts: list[str], dt: list[int] | None = None) -> bytes:
    """A packed run of text deltas."""
    gaps = [1] * (len(texts) - 1) if dt is None else dt
    data = {"turn": 1, "step": 1, "index": 0, "dt": gaps, "texts": texts}
    row = {"type": "text-chunks", "seq0": seq0, "time0": 1_700_000_000_000, "data": data}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def framed(*batches: bytes) -> bytes:
    """Each batch as a zstd frame, the header's first."""
    return b"".join(map(encode_frame, (HEADER, *batches)))
