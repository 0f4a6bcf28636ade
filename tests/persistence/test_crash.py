"""Every system call of a write fails, or is the last one: the log is absent, complete, or as it was."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.persistence.error import (
    PersistenceError,
    SessionBusy,
    SessionCollision,
    SessionFileChanged,
    SessionNotDurable,
)
from dsh.persistence.fork import fork_stored
from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.view import build_view
from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from tests.persistence.faults import FaultyFiles, Killed
from tests.persistence.golden import TEXT, view_of

ENCODINGS: list[Encoding] = ["plain", "zstd"]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[SessionHeader, list[Entry]]:
    path = tmp_path_factory.mktemp("golden") / "session.jsonl"
    path.write_bytes(TEXT)
    view = view_of(path)
    return view.header, view.entries()


def calls_of(files: FaultyFiles) -> Iterator[int]:
    yield from range(len(files.calls))


def stored_length(root: Path, session_id: str) -> int | None:
    """How many events another process finds."""
    stored = JsonlBackend(root).load(session_id)
    return None if stored is None else build_view(stored).stored_length


def appending_calls(root: Path, header: SessionHeader, entries: list[Entry], encoding: Encoding) -> int:
    """How many system calls the second batch takes."""
    files = FaultyFiles()
    backend = JsonlBackend(root, encoding=encoding, files=files)
    backend.append(header, entries[:6])
    before = len(files.calls)
    backend.append(header, entries[6:])
    backend.close()
    assert files.calls[before] == "open_append" and files.calls[-1] == "fsync"
    return len(files.calls) - before


def appended(backend: JsonlBackend, header: SessionHeader, entries: list[Entry]) -> None:
    """Append in one batch and let the session go."""
    backend.append(header, entries)
    backend.close()


def no_temporary_files(root: Path) -> bool:
    return not list(root.rglob("*.tmp"))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_first_write_that_fails_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding, code: int
) -> None:
    header, entries = golden
    dry = FaultyFiles()
    appended(JsonlBackend(tmp_path / "dry" / "sessions", encoding=encoding, files=dry), header, entries)
    assert {"make_dir", "open_new", "write", "fsync", "link", "unlink"} <= set(dry.calls)
    for call in calls_of(dry):
        root = tmp_path / f"at-{call}" / "sessions"
        backend = JsonlBackend(root, encoding=encoding, files=FaultyFiles(call, code))
        if dry.calls[call] == "unlink":  # the log is published by then
            appended(backend, header, entries)
            assert stored_length(root, header.id) == 17
            continue

        with pytest.raises(OSError, match=r"."):
            backend.append(header, entries)
        assert stored_length(root, header.id) is None
        assert no_temporary_files(root)

        backend.append(header, entries)
        assert stored_length(root, header.id) == 17
        backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_process_killed_in_its_first_write_leaves_nothing_or_all(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    dry = FaultyFiles()
    appended(JsonlBackend(tmp_path / "dry", encoding=encoding, files=dry), header, entries)
    published = dry.calls.index("link") + 1
    for call in calls_of(dry):
        root = tmp_path / f"at-{call}"
        backend = JsonlBackend(root, encoding=encoding, files=FaultyFiles(call, kill=True))
        with pytest.raises(Killed):
            backend.append(header, entries)
        assert stored_length(root, header.id) == (17 if call >= published else None)
        backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_append_that_fails_leaves_the_old_log_and_can_be_tried_again(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding, code: int
) -> None:
    header, entries = golden
    for call in range(appending_calls(tmp_path / "dry", header, entries, encoding)):
        root = tmp_path / f"at-{call}"
        files = FaultyFiles(None, code)
        backend = JsonlBackend(root, encoding=encoding, files=files)
        backend.append(header, entries[:6])
        before = backend.locate(header).read_bytes()
        files.fail_at = len(files.calls) + call

        with pytest.raises(OSError, match=r"."):
            backend.append(header, entries[6:])
        assert backend.locate(header).read_bytes() == before

        backend.append(header, entries[6:])
        assert backend.locate(header).read_bytes().startswith(before)
        assert stored_length(root, header.id) == 17
        backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_process_killed_in_an_append_leaves_at_least_the_old_log(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    for call in range(appending_calls(tmp_path / "dry", header, entries, encoding)):
        root = tmp_path / f"at-{call}"
        files = FaultyFiles(kill=True)
        backend = JsonlBackend(root, encoding=encoding, files=files)
        backend.append(header, entries[:6])
        files.fail_at = len(files.calls) + call

        with pytest.raises(Killed):
            backend.append(header, entries[6:])

        length = stored_length(root, header.id)
        assert length is not None and 6 <= length <= 17
        backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_that_could_not_be_taken_back_are_taken_back_by_the_next_append(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    files = FaultyFiles(code=errno.EIO)
    backend = JsonlBackend(tmp_path, encoding=encoding, files=files)
    backend.append(header, entries[:6])
    before = backend.locate(header).read_bytes()
    files.fail_at, files.also = len(files.calls) + 1, {"truncate"}

    with pytest.raises(PersistenceError, match="cutting it off"):
        backend.append(header, entries[6:])
    assert len(backend.locate(header).read_bytes()) > len(before)

    files.also = set()
    backend.append(header, entries[6:])
    assert stored_length(tmp_path, header.id) == 17
    backend.close()


def test_a_log_that_somebody_else_changed_is_never_appended_to(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]]
) -> None:
    header, entries = golden
    backend = JsonlBackend(tmp_path)
    backend.append(header, entries[:6])
    path = backend.locate(header)
    data = path.read_bytes()

    path.write_bytes(data + data)
    with pytest.raises(SessionFileChanged, match="size changed"):
        backend.append(header, entries[6:])
    assert path.read_bytes() == data + data

    path.rename(path.with_name("away"))
    path.write_bytes(data)
    with pytest.raises(SessionFileChanged, match="replaced"):
        backend.append(header, entries[6:])

    path.unlink()
    with pytest.raises(SessionFileChanged, match="gone"):
        backend.append(header, entries[6:])
    assert not path.exists()
    backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_repair_that_fails_or_is_killed_anywhere_leaves_the_old_log_or_the_new(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    for kill in (False, True):
        for call in range(40):
            root = tmp_path / f"{kill}-{call}"
            writer = JsonlBackend(root, encoding=encoding)
            writer.append(header, entries[:9])
            writer.append(header, entries[9:-2])
            path = writer.locate(header)
            writer.close()
            torn = path.read_bytes()[:-20]
            path.write_bytes(torn)
            files = FaultyFiles(call, kill=kill)
            backend = JsonlBackend(root, encoding=encoding, files=files)
            stored = backend.open(header.id)
            assert stored is not None and stored.torn is not None
            view = build_view(stored)

            try:
                backend.repair(stored, view.closers, view.recovered)
                has_ended = True
            except (OSError, Killed):
                has_ended = False
            backend.close()

            after = path.read_bytes()
            assert after == torn or view_of(path).length == view.length
            if has_ended:
                assert after != torn
                assert not view_of(path).needs_repair
                (aside,) = path.parent.glob("*.cut-*")
                assert torn.endswith(aside.read_bytes())
            if call >= len(files.calls):
                break
        else:
            pytest.fail("a repair has more than 40 system calls")


def test_a_second_backend_is_refused_until_the_first_lets_go(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]]
) -> None:
    header, entries = golden
    first, second = JsonlBackend(tmp_path), JsonlBackend(tmp_path)
    first.append(header, entries[:6])

    with pytest.raises(SessionBusy):
        second.open(header.id)
    with pytest.raises(SessionBusy):
        second.append(header, entries)

    first.release(header.id)
    assert second.open(header.id) is not None
    second.close()


def healed(root: Path, session_id: str) -> int:
    """Open a log for writing as resume does, repair it, append once; how many events it had before that."""
    backend = JsonlBackend(root)
    stored = backend.open(session_id)
    assert stored is not None
    view = build_view(stored)
    if view.needs_repair:
        backend.repair(stored, view.closers, view.recovered)
    new = SessionEvent("session/title", view.length, 1, {"title": "on"})
    backend.append(view.header, [new])
    backend.close()
    again = JsonlBackend(root).load(session_id)
    assert again is not None
    after = build_view(again)
    assert after.torn is None and after.stored_length == view.length + 1
    expected = [event.to_json() for event in (*view.events(), new)]
    assert [event.to_json() for event in after.events(0, after.stored_length)] == expected
    return view.stored_length


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_log_that_was_cut_goes_on_cleanly(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    writer = JsonlBackend(tmp_path, encoding=encoding)
    ends: list[tuple[int, int]] = []
    for start, stop in ((0, 4), (4, 9), (9, None)):
        writer.append(header, entries[start:stop])
        stored = stored_length(tmp_path, header.id)
        assert stored is not None
        ends.append((writer.locate(header).stat().st_size, stored))
    writer.close()
    path = writer.locate(header)
    whole = path.read_bytes()
    first = frames.scan_frames(whole).frames[0].end if encoding == "zstd" else whole.index(b"\n") + 1

    around = {end + by for end, _ in ends for by in (-1, 0, 1)}
    for size in sorted({*range(first, len(whole), 9), *around} & {*range(first, len(whole) + 1)}):
        path.write_bytes(whole[:size])
        durable = max((length for end, length in ends if end <= size), default=0)
        assert healed(tmp_path, header.id) >= durable
        data = path.read_bytes()
        kept = max((end for end, _ in ends if end <= size), default=first)
        assert data.startswith(whole[:kept])
        for aside in path.parent.glob("*.cut-*"):
            assert whole[:size].endswith(aside.read_bytes())
            aside.unlink()


@pytest.mark.parametrize("kill", [False, True])
def test_a_fork_that_fails_or_is_killed_anywhere_is_whole_or_nowhere_and_its_parent_stays(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], kill: bool
) -> None:
    header, entries = golden
    for call in range(30):
        root = tmp_path / str(call)
        writer = JsonlBackend(root)
        writer.append(header, entries)
        writer.close()
        parent = writer.locate(header).read_bytes()
        files = FaultyFiles(call, kill=kill)
        with contextlib.suppress(SessionNotDurable, Killed):
            fork_stored(JsonlBackend(root, files=files), header.id, child_id="child")
        assert stored_length(root, "child") in (None, 18)
        assert JsonlBackend(root).list().problems == ()
        if stored_length(root, "child") is None:
            fork_stored(JsonlBackend(root), header.id, child_id="child")
        assert stored_length(root, "child") == 18
        assert writer.locate(header).read_bytes() == parent
        if call >= len(files.calls):
            return
    pytest.fail("a fork has more than 30 system calls")


class Rival(FaultyFiles):
    """Another process publishes the same log between our look and our link."""

    def link(self, source: Path, target: Path) -> None:
        target.write_bytes(b"theirs")
        super().link(source, target)


def test_of_two_creators_one_wins_and_the_other_fails_loudly(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]]
) -> None:
    header, entries = golden
    backend = JsonlBackend(tmp_path, files=Rival())

    with pytest.raises(SessionCollision, match="another process just now"):
        backend.append(header, entries)

    assert backend.locate(header).read_bytes() == b"theirs"
    assert no_temporary_files(tmp_path)
    with pytest.raises(SessionCollision, match="exists already"):
        JsonlBackend(tmp_path, encoding="plain").append(header, entries)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_log_that_could_not_be_made_durable_nor_removed_is_made_anew_by_the_next_append(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    trial = FaultyFiles()
    JsonlBackend(tmp_path / "trial", encoding=encoding, files=trial).append(header, entries[:6])
    files = FaultyFiles(trial.calls.index("link") + 1, errno.EIO)
    files.also = {"unlink"}
    backend = JsonlBackend(tmp_path / "store", encoding=encoding, files=files)

    with pytest.raises(PersistenceError, match="nor be removed again") as caught:
        backend.append(header, entries[:6])
    assert caught.value.code == "SESSION_NOT_DURABLE"

    files.also = set()
    backend.append(header, entries[:6])
    backend.append(header, entries[6:])
    assert stored_length(tmp_path / "store", header.id) == 17
    backend.close()


def test_a_log_of_somebody_else_is_not_taken_for_what_a_failed_creation_left(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]]
) -> None:
    header, entries = golden
    trial = FaultyFiles()
    JsonlBackend(tmp_path / "trial", files=trial).append(header, entries[:6])
    files = FaultyFiles(trial.calls.index("link") + 1, errno.EIO)
    files.also = {"unlink"}
    backend = JsonlBackend(tmp_path / "store", files=files)
    with pytest.raises(PersistenceError):
        backend.append(header, entries[:6])
    path = backend.locate(header)
    path.write_bytes(path.read_bytes() + b"more")
    files.also = set()

    with pytest.raises(SessionCollision):
        backend.append(header, entries[:6])
    assert path.read_bytes().endswith(b"more")
    backend.close()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_repair_or_packing_that_fails_only_in_its_last_sync_is_there_and_can_be_gone_on_with(
    tmp_path: Path, golden: tuple[SessionHeader, list[Entry]], encoding: Encoding
) -> None:
    header, entries = golden
    for number, entry in enumerate(entries):
        writer = JsonlBackend(tmp_path, encoding=encoding, pack_chunks=False)
        if number:
            writer.open(header.id)
        writer.append(header, [entry])
        writer.close()
    trial = FaultyFiles()
    shutil.copytree(tmp_path, tmp_path / "trial")
    JsonlBackend(tmp_path / "trial", files=trial).pack(header.id)
    assert trial.calls[-2:] == ["replace", "fsync"]
    before = view_of(writer.locate(header)).stored_length

    backend = JsonlBackend(tmp_path, files=FaultyFiles(len(trial.calls) - 1, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        backend.pack(header.id)

    assert stored_length(tmp_path, header.id) == before == 17
    assert backend.pack(header.id) is not None
    stored = backend.open(header.id)
    assert stored is not None
    backend.append(header, [SessionEvent("session/end-seed", 17, 1, {})])
    assert stored_length(tmp_path, header.id) == 18
    backend.close()
