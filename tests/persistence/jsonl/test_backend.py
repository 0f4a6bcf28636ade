"""The JSONL backend on disk: golden bytes, modes, encodings side by side, broken neighbours."""

import logging
import re
import subprocess
from pathlib import Path

import pytest

from dsh.persistence.error import SessionBusy, SessionCorruption
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.frames import decode_frame, scan_frames
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.view import build_view
from dsh.session.chunk_run import Entry, expand
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from tests.persistence.golden import BODY, HEADER, TEXT, framed, turn_end, turn_start, view_of


def golden(tmp_path: Path) -> tuple[SessionHeader, list[Entry]]:
    path = tmp_path / "golden.jsonl"
    path.write_bytes(TEXT)
    view = view_of(path)
    return view.header, view.entries()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_one_plain_batch_is_the_golden_file_byte_for_byte(tmp_path: Path) -> None:
    root = tmp_path / "home" / "sessions"
    backend = JsonlBackend(root, encoding="plain")
    header, entries = golden(tmp_path)

    backend.append(header, list(expand(entries)))  # loose events pack the same way

    path = root / "--srv-app--" / "demo.1" / "session.jsonl"
    assert path.read_bytes() == TEXT
    assert mode(path) == 0o600
    assert {mode(folder) for folder in (root.parent, root, path.parent, path.parent.parent)} == {0o700}
    assert sorted(file.name for file in path.parent.iterdir()) == ["owner.lock", "session.jsonl"]
    backend.close()


def test_one_compressed_batch_is_two_frames_and_the_next_a_third(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path / "sessions")
    header, entries = golden(tmp_path)
    backend.append(header, entries)
    path = tmp_path / "sessions" / "--srv-app--" / "demo.1" / "session.jsonl.zstd"
    before = path.read_bytes()
    frames = scan_frames(before).frames
    assert [decode_frame(before, frame) for frame in frames] == [HEADER, b"".join(BODY)]

    backend.append(header, [SessionEvent("turn/start", 17, 1, {"turn": 2})])

    after = path.read_bytes()
    assert after.startswith(before)
    assert len(scan_frames(after).frames) == 3
    backend.close()


def test_the_zstd_program_gives_the_golden_text(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path / "sessions")
    header, entries = golden(tmp_path)
    backend.append(header, entries)
    backend.close()

    path = backend.locate(header)
    subprocess.run(["zstd", "-tq", path], check=True)
    assert subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout == TEXT


def test_without_packing_every_event_has_its_line(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path / "sessions", encoding="plain", pack_chunks=False)
    header, entries = golden(tmp_path)
    backend.append(header, entries)
    backend.close()

    text = backend.locate(header).read_bytes()
    assert text.count(b"\n") == 18
    assert list(view_of(backend.locate(header)).events()) == list(expand(entries))


@pytest.mark.parametrize(("encoding", "other"), [("plain", "zstd"), ("zstd", "plain")])
def test_a_log_is_continued_in_the_encoding_it_has(
    tmp_path: Path, encoding: Encoding, other: Encoding
) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    first = JsonlBackend(root, encoding=encoding)
    first.append(header, entries[:6])
    first.close()

    second = JsonlBackend(root, encoding=other)
    assert second.open(header.id) is not None
    second.append(header, entries[6:])
    second.close()

    assert len(list(root.rglob("session.jsonl*"))) == 1
    stored = JsonlBackend(root).load(header.id)
    assert stored is not None and build_view(stored).length == 17
    assert stored.encoding == encoding


def test_a_record_without_its_newline_gets_it_from_the_next_append(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    writer = JsonlBackend(root, encoding="plain")
    writer.append(header, entries)
    writer.close()
    path = writer.locate(header)
    path.write_bytes(TEXT[:-1])

    backend = JsonlBackend(root)
    stored = backend.open(header.id)
    assert stored is not None and stored.lacks_newline and stored.torn is None
    assert path.read_bytes() == TEXT[:-1]
    backend.append(header, [SessionEvent("turn/start", 17, 1, {"turn": 2})])
    backend.close()

    assert path.read_bytes() == TEXT + b'{"type":"turn/start","seq":17,"time":1,"data":{"turn":2}}\n'


def test_a_torn_tail_is_kept_beside_the_log_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    writer = JsonlBackend(root, encoding="plain")
    writer.append(header, entries)
    writer.close()
    path = writer.locate(header)
    path.write_bytes(TEXT + b'{"type":"user/mess')

    backend = JsonlBackend(root)
    stored = backend.open(header.id)
    assert stored is not None
    view = build_view(stored)
    with caplog.at_level(logging.WARNING):
        backend.repair(stored, view.closers, view.recovered)
    backend.append(header, [SessionEvent("turn/start", 17, 1, {"turn": 2})])
    backend.close()

    assert path.read_bytes() == TEXT + b'{"type":"turn/start","seq":17,"time":1,"data":{"turn":2}}\n'
    assert mode(path) == 0o600
    (aside,) = path.parent.glob("session.jsonl.cut-2276-*")
    assert aside.read_bytes() == b'{"type":"user/mess'
    assert "18 bytes were cut off at byte 2276" in caplog.text
    assert str(path) in caplog.text


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def header_for(session_id: str, cwd: str = "/srv/app") -> bytes:
    return HEADER.replace(b"demo.1", session_id.encode()).replace(b"/srv/app", cwd.encode())


def test_a_broken_neighbour_hides_nobody(tmp_path: Path) -> None:
    project = tmp_path / "--srv-app--"
    write(project / "good" / "session.jsonl", header_for("good"))
    write(project / "packed" / "session.jsonl.zstd", framed(turn_start(0), turn_end(1))).read_bytes()
    (project / "packed").rename(project / "demo.1")
    bad = {
        write(project / "empty" / "session.jsonl", b""): "empty",
        write(project / "nojson" / "session.jsonl", b"hello\n"): "JSON",
        write(project / "nozstd" / "session.jsonl.zstd", b"hello world"): "magic",
        write(project / "other" / "session.jsonl", header_for("another")): "belongs at",
        write(
            project / "retired" / "session.jsonl",
            header_for("retired").replace(b'"cwd"', b'"sandboxMode":"x","cwd"'),
        ): "retired",
        write(project / "future" / "session.jsonl", b'{"version":4,"id":"future"}\n'): "format 4",
        write(tmp_path / "--srv-b--" / "good" / "session.jsonl", header_for("good", "/srv/b")): "also stored",
        write(project / "flat.jsonl", header_for("flat")): "folder is expected",
    }
    (project / "folder" / "session.jsonl").mkdir(parents=True)
    (project / "dangling").mkdir()
    (project / "dangling" / "session.jsonl").symlink_to(tmp_path / "nowhere")
    write(project / "two" / "session.jsonl", header_for("two"))
    write(project / "two" / "session.jsonl.zstd", framed())
    (project / "nothing").mkdir()
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    backend = JsonlBackend(tmp_path)

    listing = backend.list()

    assert {stored.header.id for stored in listing.sessions} == {"good", "demo.1"}
    reasons = {Path(problem.place): problem.reason for problem in listing.problems}
    for path, reason in bad.items():
        assert reason in reasons.pop(path)
    assert "folder" in reasons.pop(project / "folder" / "session.jsonl")
    assert "leads nowhere" in reasons.pop(project / "dangling" / "session.jsonl")
    assert "plain and a compressed" in reasons.pop(project / "two")
    assert not reasons
    assert sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    with pytest.raises(SessionCorruption, match="JSON"):
        backend.load("nojson")
    with pytest.raises(SessionCorruption, match="more than once"):
        backend.load("two")
    with pytest.raises(SessionCorruption, match="not of 'other'"):
        backend.load("other")


def test_a_root_that_does_not_exist_is_empty_and_stays_absent(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path / "none")

    assert backend.list().sessions == ()
    assert backend.find("a") is None
    assert backend.load("a") is None
    assert backend.read_raw("a") is None
    assert not (tmp_path / "none").exists()


def test_listing_reads_no_further_than_the_header(tmp_path: Path) -> None:
    big = HEADER + b"x" * 50_000_000
    path = write(tmp_path / "--srv-app--" / "demo.1" / "session.jsonl", big)
    read_before = _bytes_read()

    (stored,) = JsonlBackend(tmp_path).list().sessions

    assert stored.path == path
    assert _bytes_read() - read_before < 1_000_000


def _bytes_read() -> int:
    (count,) = re.findall(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(count)


def test_the_revision_changes_with_the_file_and_only_then(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    backend = JsonlBackend(root)
    backend.append(header, entries[:6])
    first = backend.revision(header.id)

    assert backend.revision(header.id) == first
    backend.append(header, entries[6:])
    second = backend.revision(header.id)
    assert second != first
    backend.locate(header).chmod(0o640)
    assert backend.revision(header.id) not in (first, second)
    stored = backend.load(header.id)
    assert stored is not None and stored.revision == backend.revision(header.id)
    backend.close()


def test_a_lock_at_rest_is_free_for_others_and_a_changed_file_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    first, second = JsonlBackend(root), JsonlBackend(root)
    first.append(header, entries[:6])
    first.rest(header.id)

    assert second.open(header.id) is not None
    with pytest.raises(SessionBusy):
        first.append(header, entries[6:])
    second.append(header, entries[6:])
    second.close()

    with pytest.raises(Exception, match="size changed"):
        first.append(header, entries[6:])
    first.close()


def test_a_session_that_goes_while_it_is_looked_at_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sessions"
    header, entries = golden(tmp_path)
    other = JsonlBackend(root)

    class Late(JsonlBackend):
        """Somebody deletes what was found before it can be opened."""

        def _find(self, session_id: str) -> Path | None:
            found = super()._find(session_id)
            other.delete(session_id)
            return found

    late = Late(root)
    looks = (
        late.load,
        late.open,
        late.revision,
        late.read_raw,
        late.figures,
        lambda id_: late.load_from(id_, 3),
    )
    for look in looks:
        other.append(header, entries)
        other.release(header.id)
        assert look(header.id) is None
        assert list(root.rglob("*")) == []
    late.close()
