"""In process: open a log of 50,019 events in 27 rows and derive its messages; prints the median in ms.

The log is one job whose reply has 50,000 text deltas (`spec/session-log.md` §11 packs them by batch), as
the JSONL backend writes it, uncompressed so that no decompression is timed. `python -m benchmarks.open_log`.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.value import encode

DELTAS = 50_000
BATCHES = 8
"""Packed rows the deltas fall into, one a write."""


def entries() -> Iterator[dict[str, Any]]:
    """27 rows behind the header: 11 events before the deltas, 8 packed rows, 8 events after them."""
    seq, time_ms = 0, 1_700_000_000_000

    def row(kind: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
        nonlocal seq
        made = {"type": kind, "seq": seq, "time": time_ms, "data": data, **more}
        seq += 1
        return made

    def chunk(chunk: dict[str, Any]) -> dict[str, Any]:
        return row("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})

    message = {"content": [{"type": "text", "text": "go"}], "source": {"kind": "user"}, "role": "user"}
    task = message | {"id": "m-1"}
    yield row("permission/preset", {"preset": "danger-full-access"})
    yield row("sandbox/mode", {"mode": "danger-full-access"})
    yield row("approval/policy", {"policy": "never"})
    yield row("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [task]})
    yield row("turn/start", {"turn": 1})
    yield row("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
    yield row("step/start", {"turn": 1, "step": 1})
    yield row("user/message", task, surfaceOp="append")
    config = {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
    yield row("request/header", {"header": {"config": config}, "reason": "initial"})
    yield row("request/context", config)
    yield chunk({"type": "block-start", "index": 0, "blockType": "text"})
    first_delta, per_batch = seq, DELTAS // BATCHES
    texts = [f" tok{n % 997}" for n in range(DELTAS)]
    while (done := seq - first_delta) < DELTAS:
        size = min(per_batch, DELTAS - done) if DELTAS - done < 2 * per_batch else per_batch
        part = texts[done : done + size]
        data = {"turn": 1, "step": 1, "index": 0, "dt": [0] * (size - 1), "texts": part}
        yield {"type": "text-chunks", "seq0": seq, "time0": time_ms, "data": data}
        seq += size
    block = {"type": "text", "text": "".join(texts)}
    yield chunk({"type": "block-end", "index": 0, "block": block})
    usage = {"inputTokens": 100, "outputTokens": DELTAS}
    yield chunk({"type": "usage", "usage": usage})
    yield chunk({"type": "finish", "reason": {"kind": "stop"}})
    reply = {"role": "assistant", "content": [block], "source": {"kind": "model", **config}, "id": "m-2"}
    cited = list(range(first_delta - 1, seq))
    yield row(
        "assistant/message",
        {"turn": 1, "step": 1, "message": reply, "usage": usage},
        sourceEventSeqs=cited,
        surfaceOp="append",
    )
    yield row("step/end", {"turn": 1, "step": 1})
    yield row("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    yield row("session/title", {"title": "go", "messageSeqs": [7], "source": {"kind": "fallback"}})
    yield row("sandbox/mode", {"mode": "danger-full-access"})


def write_log(path: Path) -> tuple[int, int]:
    """Write the log; returns its events and its rows."""
    header = {"type": "session", "version": 0, "id": "bench", "createdAt": 0, "delegationDepth": 0}
    rows = [header, *entries()]
    path.write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    last = rows[-1]
    return int(last["seq"]) + 1, len(rows) - 1


def open_ms(path: Path) -> float:
    """Open the log and derive its messages, once."""
    begin = time.perf_counter()
    messages = build_view(read_log(path)).derive_messages()
    spent = (time.perf_counter() - begin) * 1000
    assert len(messages) == 2
    return spent


def main(runs: int = 15) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "session.jsonl")
        events, rows = write_log(path)
        open_ms(path)
        median = statistics.median(open_ms(path) for _ in range(runs))
    sys.stdout.write(f"{events} {rows} {median:.1f}\n")


if __name__ == "__main__":
    main()
