"""Spoils logs at random and reads them: a value or a named error, in bounded time and memory.

`python -m tests.fuzz_reader --seconds 60` goes on until the time is over, or until it has found something:
then it keeps the file, says where it is and how to get there again, and ends with exit code 1.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from dsh.persistence.error import LogRefusal
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import LogView, build_view
from dsh.session.chunk_row import is_row, pack, row_to_run
from dsh.session.error import SessionError
from dsh.session.inbox_fold import consumed_work, fold_inbox, unentered
from dsh.session.restore import restore
from dsh.session.value import decode_strict, encode
from dsh.session.verify.log import verify
from tests.corpus import CORPUS

HERE = Path(__file__).resolve().parent
CASE_S = 5
"""Seconds that one file may take."""
MEMORY_BYTES = 1 << 30
"""Address space of the process."""
LARGEST_SEED = 60_000

Spoil = Callable[[random.Random, bytes], bytes]
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, -0.0, 1e300, 2**53 - 1, 2**53, -(2**63), 10**40, "", "x", "\ud83d",
    "append", "user", "turn/end", "completed", "aborted", "error", "tool-call", "compact", "\0", [], [[]],
    [0, 0], {}, {"kind": "x"}, {"op": "replace", "start": 0, "end": 0}, {"turn": 1}, {"content": {}},
)  # fmt: skip
KEYS = (
    "ignorable",
    "surfaceOp",
    "sourceEventSeqs",
    "trigger",
    "provenance",
    "extra",
    "seq0",
    "callId",
    "type",
)
TOKENS = (
    b"\n", b"\r\n", b"\0" * 700, b"{", b"}", b"[" * 600, b"[" * 100_000, b'{"a":' * 700, b"NaN", b"1e400",
    b"-0",
    b"9" * 5000, b'"\\ud800"', b"\xff", b"\xef\xbb\xbf", b"\x28\xb5\x2f\xfd", b"\xed\xa0\x80", b" " * 3000,
    b'{"type":"turn/end","seq":3,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}\n',
    b'{"type":"text-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["x"]}}\n',
    b'{"type":"session/end-seed","seq":1,"time":1,"data":{}}\n',
    b'{"type":"text-chunks","seq0":9007199254740991,"time0":1,"data":{}}\n',
)  # fmt: skip


def seeds() -> list[bytes]:
    """Sound logs and odd ones, compressed and not; some of our own where there is no corpus."""
    paths = [HERE / "persistence" / "golden.jsonl", HERE / "session" / "one_of_each.jsonl"]
    paths += sorted(CORPUS.glob("*/*.jsonl*"))
    found = [path.read_bytes() for path in paths]
    return [data for data in found if 0 < len(data) <= LARGEST_SEED]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside a JSON value with every key of it."""
    todo = [value] if isinstance(value, dict | list) else []
    while todo:
        container = todo.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in items:
            yield container, key
            if isinstance(item, dict | list):
                todo.append(item)


def change_value(rng: random.Random, data: bytes) -> bytes:
    """Put, take out or add something inside one line that stays JSON."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
        container, key = rng.choice(list(places(value)))
    except (ValueError, IndexError, RecursionError, TypeError):
        return data
    how = rng.random()
    if how < 0.2:
        del container[key]
    elif how < 0.3 and isinstance(container, dict):
        container[rng.choice(KEYS)] = rng.choice(ODD)
    elif how < 0.4:
        other = rng.choice([inner[name] for inner, name in places(value)])
        container[key] = json.loads(json.dumps(other))
    elif how < 0.5 and type(container[key]) is int:
        container[key] += rng.choice((-1, 1, 7))
    else:
        container[key] = rng.choice(ODD)
    lines[at] = json.dumps(value, separators=(",", ":"), ensure_ascii=rng.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )
    return b"\n".join(lines)


def change_lines(rng: random.Random, data: bytes) -> bytes:
    """Take out, double or swap lines."""
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[min(a, b) : max(a, b)]
        case 1:
            lines.insert(a, lines[b])
        case 2:
            lines[a], lines[b] = lines[b], lines[a]
        case _:
            lines[a : a + 1] = [lines[a][: rng.randrange(len(lines[a]) + 1)]]
    return b"\n".join(lines)


def renumber(rng: random.Random, data: bytes) -> bytes:
    """Count the events anew, so that what else is wrong is met."""
    out, seq = [], 0
    for position, line in enumerate(data.split(b"\n")):
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError, KeyError):
            value = json.loads(line)
            if position and isinstance(value, dict):
                value["seq0" if "seq0" in value else "seq"] = seq
                seq += len(value["data"].get("texts", value["data"].get("args"))) if "seq0" in value else 1
                line = encode(value)
        out.append(line)
    return b"\n".join(out)


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut or put in some bytes."""
    out = bytearray(data)
    at = rng.randrange(len(out) + 1)
    match rng.randrange(5):
        case 0:
            for _ in range(rng.choice((1, 2, 20))):
                if out:
                    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        case 1:
            del out[at:]
        case 2:
            out[at:at] = rng.choice(TOKENS)
        case 3:
            out[at : at + rng.randrange(200)] = rng.randbytes(rng.randrange(50))
        case _:
            stop = min(len(out), at + rng.randrange(400))
            out[at:at] = out[at:stop]
    return bytes(out)


SPOILS: tuple[Spoil, ...] = (change_value, change_value, change_lines, renumber, change_bytes)


def compress(rng: random.Random, data: bytes) -> bytes:
    """The text in frames of any size, then perhaps some damage to them."""
    writer = zstandard.ZstdCompressor(level=1, write_checksum=rng.random() < 0.8)
    out, at = [], 0
    while at < len(data):
        size = rng.choice((40, 400, 4000, 400_000))
        out.append(writer.compress(data[at : at + size]))
        at += size
    packed = b"".join(out)
    if rng.random() < 0.05:
        packed += writer.compress(b'{"type":"' + b"a" * (64 << 20))  # swells more than ten thousand times
    return change_bytes(rng, packed) if rng.random() < 0.5 else packed


def make(rng: random.Random, logs: list[bytes]) -> bytes:
    """One spoilt file."""
    kind = rng.random()
    if kind < 0.03:
        return rng.randbytes(rng.randrange(2000))
    data = rng.choice(logs)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return change_bytes(rng, data)
    if kind < 0.1:
        other = rng.choice(logs)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        data = rng.choice(SPOILS)(rng, data)
    return compress(rng, data) if rng.random() < 0.25 else data


def read(path: Path) -> str:
    """Open a log and look at all of it; answers what came of that.

    Raises:
        AssertionError: what was read is not sound.
    """
    try:
        view = build_view(read_log(path))
    except LogRefusal as refusal:
        assert refusal.code, "a refusal has a code"
        assert str(path) in refusal.message, "a refusal says which file"
        return str(refusal.code)
    look_at(view)
    return "opened"


def look_at(view: LogView) -> None:
    """Fold an opened log in every way, and open it once more from what would be written of it."""
    assert view.open_turn is None
    count = sum(1 for _ in view.events())
    assert count == view.length
    messages = view.derive_messages()
    assert len(messages) <= len(view.surface_nodes)
    verify(view)
    rows = [decode_strict(encode(row)) for row in pack(view.walk())]
    again = restore(view.header, [row_to_run(row) if is_row(row) else row for row in rows])
    assert again.closers == (), "what was repaired needs no repair"
    assert encode(again.view.derive_messages()) == encode(messages)
    try:
        fold_inbox(again.view)
        unentered(again.view)
        consumed_work(again.view)
    except SessionError as error:
        assert "event" in error.message


class Overtime(BaseException):
    """A file takes too long."""


def _overtime(*_: object) -> None:
    raise Overtime


def limit() -> None:
    """Bound what this process may take."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _overtime)


def try_one(seed: int, logs: list[bytes], path: Path) -> str:
    """Make, write and read one file. Whatever is no value and no named error is raised."""
    data = make(random.Random(seed), logs)
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_REAL, CASE_S)
    try:
        outcome = read(path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert path.read_bytes() == data, "reading changed the file"
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_reader")
    parser.add_argument("--seconds", type=float, default=30, help="how long to go on")
    parser.add_argument("--cases", type=int, help="how many files instead")
    parser.add_argument("--seed", type=int, default=0, help="number of the first file")
    given = parser.parse_args()
    logs = seeds()
    limit()
    end = time.monotonic() + given.seconds
    outcomes: dict[str, int] = {}
    seed = given.seed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "session.jsonl")
        while seed - given.seed < given.cases if given.cases else time.monotonic() < end:
            try:
                outcome = try_one(seed, logs, path)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    break
                kept = Path(tempfile.gettempdir(), f"fuzz-{os.getpid()}-{seed}.jsonl")
                kept.write_bytes(path.read_bytes())
                traceback.print_exc()
                sys.stdout.write(f"file {seed} is kept as {kept}: --seed {seed} --cases 1\n")
                return 1
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            seed += 1
    sys.stdout.write(encode({"files": seed - given.seed, **outcomes}).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
