"""`dsh sessions pack`: fewer bytes, the same events, and nothing that somebody has open."""

import os
from pathlib import Path

import pytest

from dsh.cli.sessions.pack import pack
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.scope import Scope
from dsh.cli.sessions.target import find_stored
from dsh.cli.sessions.whereabouts import open_place
from dsh.persistence.jsonl.frames import encode_frame
from dsh.persistence.lock import OwnerLock
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.value import freeze
from tests.cli.sessions.home import HOUR_S, Call, Home
from tests.persistence.golden import line, step_start, text_row, turn_end, turn_start

HERE = Place()
PIECES = 40
END = line("step/end", 2, {"turn": 1, "step": 1}) + turn_end(3)
TITLE = {"title": "a", "messageSeqs": [], "source": {"kind": "user"}}


def store_in_pieces(home: Home, session_id: str, *, cwd: str = "") -> tuple[int, list[object]]:
    """A session whose run of deltas was stored in many frames: its size and its events."""
    path = home.store(session_id, turn_start(0) + step_start(1), is_plain=False, age_s=HOUR_S, cwd=cwd)
    then = path.stat()
    with path.open("ab") as file:
        for n in range(PIECES):
            file.write(encode_frame(text_row(2 + 4 * n, [f" tok{4 * n + k}" for k in range(4)])))
    os.utime(path, ns=(then.st_mtime_ns, then.st_mtime_ns))
    return path.stat().st_size, events(session_id)


def events(session_id: str) -> list[object]:
    view = find_stored(session_id, open_place(HERE)).view()
    return [event.to_json() for event in view.events()]


def size(session_id: str) -> int:
    path = find_stored(session_id, open_place(HERE)).path
    assert path is not None
    return path.stat().st_size


def test_those_of_this_directory_are_packed_and_say_the_same(home: Home, call: Call) -> None:
    before, said = store_in_pieces(home, "here")
    elsewhere, _ = store_in_pieces(home, "elsewhere", cwd="/srv/other")

    told = call(lambda: pack([], HERE, Scope()))

    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("here  ") and told.out.endswith("% saved\n") and told.out.count("\n") == 1
    assert size("here") < before / 2
    assert events("here") == said
    assert size("elsewhere") == elsewhere


def test_the_time_of_the_last_write_stays(home: Home, call: Call) -> None:
    """Or else packing would keep a session from being pruned."""
    path = home.store("a", turn_start(0) + step_start(1) + END, is_plain=False)
    with path.open("ab") as file:
        file.write(b"".join(encode_frame(line("session/title", 4 + n, TITLE)) for n in range(PIECES)))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    before = path.stat().st_size

    assert call(lambda: pack(["a"], HERE, Scope())).code == 0

    assert path.stat().st_size < before
    assert path.stat().st_mtime == 1_700_000_000


def test_what_is_packed_already_has_nothing_to_save(home: Home, call: Call) -> None:
    store_in_pieces(home, "a")
    call(lambda: pack(["a"], HERE, Scope()))
    before = size("a")

    told = call(lambda: pack(["a"], HERE, Scope()))

    assert told.code == 0 and told.out.endswith("nothing to save\n")
    assert size("a") == before


def test_all_are_told_one_by_one_and_together(home: Home, call: Call) -> None:
    store_in_pieces(home, "here")
    store_in_pieces(home, "elsewhere", cwd="/srv/other")

    told = call(lambda: pack([], HERE, Scope(True)))

    assert sorted(row.split()[0] for row in told.out.splitlines()) == ["elsewhere", "here", "together"]


def test_an_open_or_broken_one_is_told_and_the_others_are_packed(home: Home, call: Call) -> None:
    before, _ = store_in_pieces(home, "open")
    free, _ = store_in_pieces(home, "free")
    broken = home.store("broken")
    broken.write_bytes(broken.read_bytes() + b"junk\n" + b'{"type":"turn/end"}\n')
    damaged = broken.read_bytes()
    (path,) = home.sessions.glob("*/open/session.jsonl.zstd")
    lock = OwnerLock.acquire(path.parent)

    told = call(lambda: pack([], HERE, Scope(True)))

    lock.release()
    assert told.code == 1
    assert "open for writing" in told.err and str(broken) in told.err
    assert size("open") == before and size("free") < free
    assert broken.read_bytes() == damaged


def test_nothing_to_pack_is_said(home: Home, call: Call) -> None:
    assert call(lambda: pack([], HERE, Scope())) == (0, "", "no sessions to pack\n")


def test_a_storage_that_cannot_pack_says_so_once(tmp_path: Path, home: Home, call: Call) -> None:
    folder = tmp_path / "database"
    folder.mkdir(mode=0o700)
    backend = SqliteBackend(folder / "sessions.db")
    for session_id in ("one", "two"):
        header = SessionHeader(id=session_id, created_at=1, cwd=str(home.work))
        backend.append(header, [SessionEvent("turn/start", 0, 1, freeze({"turn": 1}, "data"))])
    backend.close()

    told = call(lambda: pack([], Place(str(folder / "sessions.db")), Scope()))

    assert told.code == 1 and told.out == ""
    assert told.err.count("PACKING_UNSUPPORTED") == 1


@pytest.mark.parametrize("target", ["nothing", ""])
def test_a_session_that_is_not_there_is_told(home: Home, call: Call, target: str) -> None:
    told = call(lambda: pack([target], HERE, Scope()))

    assert told.code == 1 and "no session" in told.err and told.out == ""
