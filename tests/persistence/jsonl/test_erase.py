"""Deleting a session: all of it, nothing else, never from under somebody, never half to be seen."""

from pathlib import Path

import pytest

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import Files
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from tests.persistence.faults import FaultyFiles, Killed

HEAD = SessionHeader(id="demo.1", created_at=1, cwd="/srv/app", delegation_depth=0)
OTHER = SessionHeader(id="demo.2", created_at=1, cwd="/srv/app", delegation_depth=0)
EVENTS = [SessionEvent("turn/start", 0, 1, {"turn": 1})]


def stored(root: Path, *headers: SessionHeader, files: Files | None = None) -> JsonlBackend:
    backend = JsonlBackend(root, files=files)
    for header in headers:
        backend.append(header, EVENTS)
        backend.release(header.id)
    return backend


def test_everything_of_the_session_goes_and_nothing_else(tmp_path: Path) -> None:
    backend = stored(tmp_path, HEAD, OTHER)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = backend.locate(HEAD).parent
    (folder / "projections.json").write_text("{}")
    (folder / "media").mkdir()
    (folder / "media" / "1.png").write_text("")
    (folder / "link").symlink_to(outside)

    assert backend.delete("demo.1")

    assert not folder.exists() and (outside / "kept").exists()
    assert backend.ids() == ["demo.2"] and backend.load("demo.1") is None
    assert not backend.delete("demo.1")
    assert backend.delete("demo.2")
    assert not folder.parent.exists() and tmp_path.exists()


def test_a_session_that_is_open_stays(tmp_path: Path) -> None:
    owner = JsonlBackend(tmp_path)
    owner.append(HEAD, EVENTS)
    for backend in (owner, JsonlBackend(tmp_path)):
        with pytest.raises(SessionBusy):
            backend.delete("demo.1")
    assert owner.locate(HEAD).exists()
    owner.close()


def test_the_id_is_free_again_afterwards(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path)
    backend.append(HEAD, EVENTS)
    backend.rest(HEAD.id)
    assert backend.delete("demo.1")
    backend.append(HEAD, EVENTS)
    assert (found := backend.load("demo.1")) is not None and found.next_seq == 1
    backend.close()


def test_a_broken_log_can_be_deleted(tmp_path: Path) -> None:
    backend = stored(tmp_path, HEAD)
    backend.locate(HEAD).write_bytes(b"rubbish")
    assert backend.delete("demo.1")


@pytest.mark.parametrize("kill", [False, True])
def test_what_stops_a_deletion_leaves_a_whole_session_or_none(tmp_path: Path, kill: bool) -> None:
    for number in range(50):
        root = tmp_path / str(number)
        backend = stored(root, HEAD)
        (backend.locate(HEAD).parent / "projections.json").write_text("{}")
        faulty = FaultyFiles(number, kill=kill)
        try:
            JsonlBackend(root, files=faulty).delete("demo.1")
        except (OSError, Killed):
            pass
        else:
            if len(faulty.calls) <= number:
                break
        after = JsonlBackend(root)
        found = after.load("demo.1")
        assert found is None or found.next_seq == 1
        assert after.list().problems == ()
        after.delete("demo.1")
        assert not backend.locate(HEAD).parent.exists()
        after.append(HEAD, EVENTS)
        after.close()
    else:
        pytest.fail("never came to an end")
