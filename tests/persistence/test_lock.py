"""The owner lock: one writer a session, over processes."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.persistence.error import LogRefusal, SessionBusy
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.lock import LOCK_NAME, OwnerLock, owner_told
from tests.persistence.golden import BODY, HEADER, turn_end

HOLD = """
import sys, time, pathlib
from dsh.persistence.lock import OwnerLock
lock = OwnerLock.acquire(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_names_its_owner_to_the_second_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"

        began = time.strftime("since %Y-%m-%d ", time.gmtime())
        with pytest.raises(SessionBusy, match=f"process {other.pid} on host .* {began}") as caught:
            OwnerLock.acquire(tmp_path)

        assert caught.value.code == "SESSION_BUSY"
        assert str(owner_told(tmp_path)).startswith(f"process {other.pid} on host ")
        other.kill()

    assert owner_told(tmp_path) is None
    OwnerLock.acquire(tmp_path).release()  # it went with its process


def test_the_lock_is_exclusive_within_a_process_and_the_file_stays(tmp_path: Path) -> None:
    lock = OwnerLock.acquire(tmp_path)
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        OwnerLock.acquire(tmp_path)

    lock.release()
    lock.release()

    assert json.loads((tmp_path / "owner.lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / "owner.lock").stat().st_mode & 0o777 == 0o600
    OwnerLock.acquire(tmp_path).release()


def test_an_unreadable_owner_text_is_no_obstacle(tmp_path: Path) -> None:
    lock = OwnerLock.acquire(tmp_path)
    for text in ("{}", "", "no JSON", '{"pid":1,"host":"a"}', '{"pid":1,"host":"a","since":1e300}', "[]"):
        (tmp_path / "owner.lock").write_text(text)
        with pytest.raises(SessionBusy, match="another process"):
            OwnerLock.acquire(tmp_path)

    lock.release()


def test_a_lock_is_taken_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", refuse)
    lock = OwnerLock.acquire(tmp_path)
    with pytest.raises(SessionBusy, match="another process"):
        OwnerLock.acquire(tmp_path)
    lock.release()


def test_a_lock_file_that_leads_elsewhere_is_refused_and_nothing_is_written_there(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("text")
    lock = tmp_path / "owner.lock"
    makers: list[Callable[[], None]] = [
        lambda: lock.symlink_to(precious),
        lambda: os.mkfifo(lock),
        lock.mkdir,
    ]
    for make in makers:
        make()
        with pytest.raises(OSError, match=r"owner\.lock"):
            OwnerLock.acquire(tmp_path)
        lock.rmdir() if lock.is_dir() else lock.unlink()
    assert precious.read_text() == "text"


def test_where_nothing_can_be_locked_the_error_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match=r"No locks available.*owner\.lock"):
        OwnerLock.acquire(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 99, b'{"pid": "x", "host": 3}', None]
)
def test_a_reader_is_told_of_no_owner_where_none_is_signed(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / LOCK_NAME).write_bytes(text)

    assert owner_told(tmp_path) is None


def test_a_signed_lock_that_nobody_holds_has_no_owner(tmp_path: Path) -> None:
    OwnerLock.acquire(tmp_path).release()  # signed by this process, which is alive

    assert owner_told(tmp_path) is None


@pytest.mark.parametrize(
    "body", [BODY, [*BODY, b'{"type":"new.kind/x","seq":17,"time":1,"data":{}}\n'], [b"x\n"]]
)
def test_what_was_only_looked_at_or_refused_keeps_no_new_lock(tmp_path: Path, body: list[bytes]) -> None:
    path = tmp_path / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(HEADER + b"".join(body) + (turn_end(99) if body == [b"x\n"] else b""))
    data = path.read_bytes()
    backend = JsonlBackend(tmp_path)
    for _ in range(2):
        with contextlib.suppress(LogRefusal):
            backend.pack("demo.1")
        with contextlib.suppress(LogRefusal):
            backend.open("demo.1")
        backend.release("demo.1")
        assert [one.name for one in path.parent.iterdir()] == ["session.jsonl"] and path.read_bytes() == data

    (path.parent / LOCK_NAME).write_text("{}")
    with contextlib.suppress(LogRefusal):
        backend.pack("demo.1")
    assert sorted(one.name for one in path.parent.iterdir()) == [LOCK_NAME, "session.jsonl"]
