"""What is on disk, as somebody sees it who has nothing of ours (`spec/persistence.md` §13)."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dsh.persistence.coordinator import Coordinator
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.layout import Encoding
from dsh.session.event import SessionEvent
from tests.aio import aio
from tests.persistence.golden import TEXT, framed, turn_start, types_of, view_of

ENCODINGS: list[Encoding] = ["plain", "zstd"]


def frames_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Each frame of a file: its bytes, its text. Written from RFC 8878, not with our reader."""
    found = []
    while data:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        text = decoder.decompress(data)
        assert decoder.eof
        rest = decoder.unused_data
        found.append((data[: len(data) - len(rest)], text))
        data = rest
    return found


def field_reader(path: Path) -> tuple[dict[str, Any], list[str]]:
    """A script for the field: the header, and the type of every event, runs unpacked."""
    data = path.read_bytes()
    text = b"".join(text for _, text in frames_of(data)) if path.suffix == ".zstd" else data
    assert text.endswith(b"\n")
    header, *rows = [json.loads(line) for line in text.decode("utf-8").split("\n")[:-1]]
    types: list[str] = []
    for row in rows:
        assert row.get("seq", row.get("seq0")) == len(types)
        is_run = "seq0" in row
        types += ["assistant/chunk"] * (len(row["data"]["dt"]) + 1) if is_run else [row["type"]]
    return header, types


def events(path: Path) -> list[SessionEvent]:
    path.write_bytes(TEXT)
    return list(view_of(path).events())


@aio
async def test_the_golden_session_through_the_service_is_the_golden_file(tmp_path: Path) -> None:
    golden = tmp_path / "golden.jsonl"
    batch, header = events(golden), view_of(golden).header
    root = tmp_path / "sessions"
    store = Coordinator(JsonlBackend(root, encoding="plain"))
    await store.create(header)
    await store.append(header.id, batch)
    await store.close()

    path = root / "--srv-app--" / "demo.1" / "session.jsonl"
    assert path.read_bytes() == TEXT
    assert field_reader(path)[1] == [event.type for event in batch]
    assert {found.relative_to(root).as_posix() for found in root.rglob("*") if found.is_file()} == {
        "--srv-app--/demo.1/session.jsonl",
        "--srv-app--/demo.1/owner.lock",
    }
    for found in (root, *root.rglob("*")):
        assert found.stat().st_mode & 0o777 == (0o700 if found.is_dir() else 0o600)


@aio
async def test_the_golden_session_compressed_is_two_frames_and_an_append_a_third(tmp_path: Path) -> None:
    golden = tmp_path / "golden.jsonl"
    batch, header = events(golden), view_of(golden).header
    store = Coordinator(JsonlBackend(tmp_path))
    await store.create(header)
    await store.append(header.id, batch)
    path = store.locate(header)
    assert path is not None
    head, body = frames_of(path.read_bytes())
    assert head[1] + body[1] == TEXT and head[1].count(b"\n") == 1
    for data, text in (head, body):
        assert zstandard.get_frame_parameters(data).has_checksum
        assert data == zstandard.ZstdCompressor(level=3, write_checksum=True).compress(text)
    before = path.read_bytes()
    await store.append(header.id, [SessionEvent("turn/start", 17, 1, {"turn": 2})])
    await store.close()
    assert path.read_bytes().startswith(before) and len(frames_of(path.read_bytes())) == 3
    if (zstd := shutil.which("zstd")) is not None:
        await asyncio.to_thread(subprocess.run, [zstd, "-qt", str(path)], check=True)
    assert field_reader(path)[1] == [*(event.type for event in batch), "turn/start"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@aio
async def test_a_file_cut_anywhere_is_repaired_once_and_keeps_its_beginning(
    encoding: Encoding, tmp_path: Path
) -> None:
    whole = framed(*(turn_start(0), *TEXT.splitlines(keepends=True)[2:])) if encoding == "zstd" else TEXT
    ends = [0]
    for piece, _ in frames_of(whole) if encoding == "zstd" else ():
        ends.append(ends[-1] + len(piece))
    if encoding == "plain":
        for piece in TEXT.splitlines(keepends=True):
            ends.append(ends[-1] + len(piece))
    name = "session.jsonl.zstd" if encoding == "zstd" else "session.jsonl"
    path = tmp_path / "--srv-app--" / "demo.1" / name
    path.parent.mkdir(parents=True)
    for cut in range(ends[1], len(whole), 17):
        path.write_bytes(whole[:cut])
        kept = whole[: max(end for end in ends if end <= cut)]
        seen = types_of(view_of(path))

        store = Coordinator(JsonlBackend(tmp_path))
        assert types_of(await store.load("demo.1")) == seen
        repaired = path.read_bytes()
        assert repaired.startswith(kept)
        assert field_reader(path)[1] == seen
        assert types_of(await store.load("demo.1")) == seen
        await store.close()

        again = Coordinator(JsonlBackend(tmp_path))
        assert types_of(await again.load("demo.1")) == seen
        await again.close()
        assert path.read_bytes() == repaired
        for aside in path.parent.glob("*.cut-*"):
            assert (kept + aside.read_bytes()).startswith(whole[:cut])
            aside.unlink()


CREATE = """
import sys
from pathlib import Path
from dsh.errors import DshError
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
root, encoding = Path(sys.argv[1]), sys.argv[2]
for word in sys.stdin:
    header = SessionHeader(id=word.strip(), created_at=1, cwd="/srv", delegation_depth=0)
    backend = JsonlBackend(root, encoding=encoding)
    try:
        backend.append(header, [SessionEvent("feedback/record", 0, 1, {"text": encoding})])
        print("won", flush=True)
    except DshError as error:
        print(error.code, flush=True)
    backend.close()
"""


@pytest.mark.parametrize("rival", ENCODINGS)
def test_of_two_processes_that_create_one_id_one_wins(tmp_path: Path, rival: Encoding) -> None:
    rounds = 60
    both = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, str(tmp_path), encoding],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for encoding in ("zstd", rival)
    ]
    for number in range(rounds):
        for process in both:
            assert process.stdin is not None
            process.stdin.write(f"s{number}\n")
            process.stdin.flush()
        told = sorted(process.stdout.readline().strip() for process in both if process.stdout is not None)
        assert told[1] == "won" and told[0] in ("SESSION_ALREADY_EXISTS", "SESSION_BUSY"), told
    for process in both:
        process.communicate()
        assert process.returncode == 0
    backend = JsonlBackend(tmp_path)
    listing = backend.list()
    assert len(listing.sessions) == rounds and not listing.problems
    assert not list(tmp_path.rglob("*.tmp"))
    for stored in listing.sessions:
        assert stored.path is not None and view_of(stored.path).length == 1


READ = """
import sys
from pathlib import Path
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.figures import figures_of
from dsh.persistence.jsonl.raw import read_text
from dsh.persistence.view import build_view
backend = JsonlBackend(Path(sys.argv[1]))
build_view(backend.load("demo.1")), backend.list(), backend.load_from("demo.1", 3)
path = Path(backend.find("demo.1"))
figures_of(path), read_text(path)
print(sorted({"zstandard", "asyncio", "sqlite3", "dsh.kernel"} & set(sys.modules)))
"""


def test_a_plain_log_is_read_without_what_only_others_need(tmp_path: Path) -> None:
    folder = tmp_path / "--srv-app--" / "demo.1"
    folder.mkdir(parents=True)
    for name, data, loaded in (("session.jsonl", TEXT, []), ("session.jsonl.zstd", framed(), ["zstandard"])):
        (folder / name).write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(loaded)
        (folder / name).unlink()
