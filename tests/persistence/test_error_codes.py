"""Every refusal says by its code what kind it is, leaves every byte as it was, and gives one next step."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsh.persistence.backend import Tail
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.error import LogRefusal, PersistenceError, SessionCorruption, SessionNotDurable
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.frames import encode_frame
from dsh.persistence.jsonl.suffix import read_suffix
from dsh.persistence.tail import read_tail
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.aio import aio
from tests.persistence.clock import ManualClock
from tests.persistence.faults import FaultyFiles
from tests.persistence.golden import BODY, HEADER, TEXT, framed, line, turn_end, turn_start, view_of

VERSION = HEADER.replace(b'"version":0', b'"version":1')


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "NOT_A_SESSION_LOG"),
        (b"hello", "NOT_A_SESSION_LOG"),
        (b"hello\nworld\n", "NOT_A_SESSION_LOG"),
        (b'{"name":"x","version":"1.0"}\n', "NOT_A_SESSION_LOG"),
        (b"[]\n", "NOT_A_SESSION_LOG"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "NOT_A_SESSION_LOG"),
        (b"SQLite format 3\0", "NOT_A_SESSION_LOG"),
        (encode_frame(b"some other text\n"), "NOT_A_SESSION_LOG"),
        (encode_frame(b"some\nother text\n"), "NOT_A_SESSION_LOG"),
        (HEADER[:-1], "CORRUPT_SESSION"),
        (HEADER[:30], "CORRUPT_SESSION"),
        (encode_frame(HEADER)[:-3], "CORRUPT_SESSION"),
        (encode_frame(HEADER + BODY[0]), "CORRUPT_SESSION"),
        (HEADER.replace(b'"createdAt":', b'"createdAt":-'), "CORRUPT_SESSION"),
        (HEADER + b"rubbish\n" + turn_end(1), "CORRUPT_SESSION"),
        (framed(turn_start(3)), "CORRUPT_SESSION"),
        (VERSION, "SESSION_VERSION_UNSUPPORTED"),
        (VERSION + b"whatever\n", "SESSION_VERSION_UNSUPPORTED"),
        (HEADER + line("new.kind/x", 0, {}), "SESSION_TYPE_UNKNOWN"),
        (framed(line("new.kind/x", 0, {})), "SESSION_TYPE_UNKNOWN"),
    ],
)
def test_a_log_that_is_refused_says_why(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(LogRefusal) as caught:
        view_of(path)
    assert caught.value.code == code
    assert str(path) in caught.value.message and caught.value.hint and caught.value.exit_code == 1
    assert path.read_bytes() == data


def hint_of(path: Path) -> str:
    with pytest.raises(LogRefusal) as caught:
        view_of(path)
    return caught.value.hint


def test_the_next_step_is_the_one_that_helps(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"SQLite format 3\0" + b"\0" * 4080)
    assert f"--root {path} ID" in hint_of(path)
    path.write_bytes(HEADER + line("new.kind/x", 0, {}))
    assert "plugin" in hint_of(path)
    with pytest.raises(LogRefusal) as caught:
        read_tail(_At(path), "demo.1", 0)
    assert caught.value.hint == hint_of(path)


class _At(JsonlBackend):
    """A backend that finds every session in one file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._path = path

    def load_from(self, session_id: str, seq: int) -> Tail:
        return read_suffix(self._path, seq)

    def find(self, session_id: str) -> str:
        return str(self._path)


def test_what_is_no_file_is_told_apart(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SessionCorruption) as caught:
            view_of(path)
        assert caught.value.code == "SESSION_LOG_NOT_A_FILE" and caught.value.hint


@pytest.mark.parametrize(
    ("number", "code", "advice"),
    [
        (errno.ENOSPC, "SESSION_DISK_FULL", "room"),
        (errno.EDQUOT, "SESSION_QUOTA_EXCEEDED", "quota"),
        (errno.EROFS, "SESSION_READ_ONLY", "read-only"),
        (errno.EACCES, "SESSION_READ_ONLY", "writable"),
        (errno.EIO, "SESSION_NOT_DURABLE", "intact"),
        (errno.EFBIG, "SESSION_NOT_DURABLE", "intact"),
    ],
)
def test_a_write_that_the_system_refuses_is_told_by_its_cause(number: int, code: str, advice: str) -> None:
    error: PersistenceError = SessionNotDurable("x", "/root/log", OSError(number, os.strerror(number)))
    assert error.code == code and advice in error.hint and error.exit_code == 8
    assert os.strerror(number) in error.message and "/root/log" in error.message


def test_a_healthy_log_has_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    assert view_of(path).length == 17


@aio
async def test_a_resume_that_cannot_be_written_is_refused_with_that_code(tmp_path: Path) -> None:
    path = tmp_path / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True)
    data = HEADER + turn_start(0) + b'{"type":"tu'
    path.write_bytes(data)
    for method in ("prepare", "load"):
        coordinator = Coordinator(JsonlBackend(tmp_path, files=FaultyFiles(0, errno.ENOSPC)))
        with pytest.raises(SessionNotDurable) as caught:
            await getattr(coordinator, method)("demo.1")
        assert caught.value.code == "SESSION_DISK_FULL"
        assert path.read_bytes() == data
        await coordinator.close()


@aio
async def test_a_live_session_says_why_it_is_not_stored_until_it_is(tmp_path: Path) -> None:
    coordinator = Coordinator(JsonlBackend(tmp_path, files=FaultyFiles(0, errno.EROFS)))
    session = Session(SessionHeader(id="x", created_at=1, cwd="/srv", delegation_depth=0))
    coordinator.attach(session, is_new=True)
    session.append("turn/start", {"turn": 1})
    with pytest.raises(SessionNotDurable):
        await coordinator.flush(session)
    trouble = coordinator.trouble("x")
    assert trouble is not None and trouble.code == "SESSION_READ_ONLY"
    await coordinator.flush(session)
    assert coordinator.trouble("x") is None
    await coordinator.close()


class _Broken(JsonlBackend):
    """A backend with a fault of its own."""

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        raise ZeroDivisionError("a fault")


@aio
async def test_a_fault_of_the_storage_is_told_on_the_session_and_by_its_barrier(tmp_path: Path) -> None:
    coordinator = Coordinator(_Broken(tmp_path))
    session = Session(SessionHeader(id="x", created_at=1, cwd="/srv", delegation_depth=0))
    coordinator.attach(session, is_new=True)
    session.append("turn/start", {"turn": 1})
    told: list[PersistenceError] = []
    for _ in range(2):
        with pytest.raises(PersistenceError, match=r"'x'.*session.jsonl.*a fault") as caught:
            await coordinator.flush(session)
        told.append(caught.value)
    assert told[0] is told[1] is coordinator.trouble("x") and told[0].code == "SESSION_NOT_DURABLE"
    coordinator.retire(session)
    assert coordinator.trouble("x") is told[0]
    with pytest.raises(PersistenceError, match="a fault"):
        await coordinator.close()


@aio
async def test_a_failed_write_in_the_background_is_told_on_the_session_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    coordinator = Coordinator(JsonlBackend(tmp_path, files=FaultyFiles(0, errno.EDQUOT)), schedule=clock)
    session = Session(SessionHeader(id="x", created_at=1, cwd="/srv", delegation_depth=0))
    session.append("turn/start", {"turn": 1})
    live = coordinator.attach(session, is_new=True)
    await live.attached if live.attached is not None else None
    await clock.advance(0.2)
    while coordinator.trouble("x") is None:
        await asyncio.sleep(0)
    trouble = coordinator.trouble("x")
    assert trouble is not None and trouble.code == "SESSION_QUOTA_EXCEEDED"
    await coordinator.close()
    assert JsonlBackend(tmp_path).load("x") is not None
