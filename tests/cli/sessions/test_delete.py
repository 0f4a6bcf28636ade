"""`dsh sessions delete`: what goes, what stays, and who is asked."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from dsh.cli.sessions.delete import delete
from dsh.cli.sessions.place import Place
from dsh.errors import CompositionError, UsageError
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.lock import OwnerLock
from dsh.persistence.projections import sidecar_path, write_rows
from dsh.session.projection.fold import Row
from dsh.session.projection.title import TITLE
from dsh.testing.workspace import Workspace
from tests.cli.sessions.home import Call, Home

HERE = Place()


def test_a_session_goes_with_all_that_lies_beside_its_log(home: Home, call: Call) -> None:
    folder = home.store("gone").parent
    (folder / "projections.json").write_text("{}")
    (folder / "session.jsonl.tail-10").write_text("cut off")
    (folder / "owner.lock").write_text("")
    home.store("stays", is_plain=False)

    told = call(lambda: delete(["gone"], HERE, yes=True))

    assert told.code == 0 and told.err == ""
    assert told.out.startswith("deleted: gone  ") and str(folder) in told.out
    assert not folder.exists()
    assert home.ids() == ["stays"]


def test_a_beginning_is_enough_and_twice_the_same_is_once(home: Home, call: Call) -> None:
    home.store("session-abc")

    told = call(lambda: delete(["abc", "session-a", "session-abc"], HERE, yes=True))

    assert (told.code, told.err, told.out.count("\n")) == (0, "", 1)
    assert home.ids() == []


def test_children_of_a_deleted_session_stay(home: Home, call: Call) -> None:
    home.store("mother")
    home.store("child", parentSession="mother", seedLength=2)

    assert call(lambda: delete(["mother"], HERE, yes=True)).code == 0
    assert home.ids() == ["child"]


def test_what_is_not_found_or_not_clear_is_told_and_the_others_go(home: Home, call: Call) -> None:
    for session_id in ("ab1", "ab2", "good"):
        home.store(session_id)

    told = call(lambda: delete(["nothing", "ab", "", "good"], HERE, yes=True))

    assert told.code == 1
    assert sum("no session" in line for line in told.err.splitlines()) == 2
    assert "'ab' fits 2 stored sessions: ab1, ab2" in told.err
    assert home.ids() == ["ab1", "ab2"]


def test_an_open_session_is_never_touched_and_the_others_go(home: Home, call: Call) -> None:
    path = home.store("open")
    home.store("free")
    lock = OwnerLock.acquire(path.parent)
    before = path.read_bytes()

    told = call(lambda: delete(["open", "free"], HERE, yes=True))

    lock.release()
    assert told.code == 1
    assert f"is open for writing by process {os.getpid()} on host" in told.err
    assert path.read_bytes() == before
    assert home.ids() == ["open"]


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"junk\n", b'{"type":"session","version":7,"id":"x"}\n'])
def test_a_broken_log_can_be_deleted(home: Home, call: Call, data: bytes) -> None:
    home.store("broken").write_bytes(data)

    assert call(lambda: delete(["broken"], HERE, yes=True)).code == 0
    assert home.ids() == []


def test_a_file_is_no_stored_session(home: Home, call: Call) -> None:
    path = home.store("a")

    told = call(lambda: delete([str(path)], HERE, yes=True))

    assert told.code == 1 and home.ids() == ["a"]


def test_text_of_a_name_cannot_write_on_the_terminal(home: Home, call: Call) -> None:
    home.store("a\x1b[31m")

    told = call(lambda: delete(["a"], HERE, yes=True))

    assert told.code == 0 and "a\\x1b[31m" in told.out and "\x1b" not in told.out


def test_without_a_terminal_yes_has_to_be_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.store("a")
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)

        with pytest.raises(UsageError, match="no terminal") as caught:
            delete(["a"], HERE, yes=False)

    assert "--yes" in caught.value.hint
    assert home.ids() == ["a"]


def test_nothing_is_deleted_where_the_place_is_a_guess(home: Home) -> None:
    home.store("a")
    home.profile("- id: [\n")

    with pytest.raises(CompositionError):
        delete(["a"], HERE, yes=True)

    assert home.ids() == ["a"]


# -- asked at a terminal -------------------------------------------------------------------------------


def answered(home: Home, answer: bytes, *words: str) -> tuple[int, str]:
    """Run a command at a terminal and answer its question: exit code, and what was shown."""
    workspace = Workspace(home.work.parent)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*workspace.program, "sessions", *words],
        cwd=workspace.work,
        env=workspace.environment({}),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    shown, is_answered = b"", False
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not data:
            break
        shown += data
        if b"[y/N]" in shown and not is_answered:
            is_answered = True
            if answer == b"\x03":
                process.send_signal(signal.SIGINT)
            else:
                os.write(leader, answer)
    os.close(leader)
    return process.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n"])
def test_a_yes_deletes(home: Home, answer: bytes) -> None:
    home.store("a")
    home.store("b")

    code, shown = answered(home, answer, "delete", "a", "b")

    assert code == 0
    assert shown.index("to be deleted: a") < shown.index("Delete these 2 sessions for good? [y/N]")
    assert "deleted: b" in shown
    assert home.ids() == []


def test_the_question_says_what_each_is_about_as_far_as_that_can_be_read(home: Home) -> None:
    path = home.store("a", age_s=7300)
    write_rows(sidecar_path(path), read_log(path).header, {"title": Row(TITLE.version, 1, "Mend the roof")})
    broken = home.store("b")
    broken.write_bytes(b"no log")

    _, shown = answered(home, b"n\n", "delete", "a", "b")

    first, second, *_ = (line for line in shown.splitlines() if line.startswith("to be deleted: "))
    assert first.startswith("to be deleted: a  2h ago  ")
    assert first.endswith(f"  {home.work}  Mend the roof")
    assert second == f"to be deleted: b  6 B  {broken}"


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"yess\n", b"\x04"])
def test_anything_else_deletes_nothing(home: Home, answer: bytes) -> None:
    home.store("a")

    code, shown = answered(home, answer, "delete", "a")

    assert code == 1
    assert shown.endswith("nothing was deleted\n")
    assert home.ids() == ["a"]


def test_an_interrupt_at_the_question_deletes_nothing(home: Home) -> None:
    home.store("a")

    code, _ = answered(home, b"\x03", "delete", "a")

    assert code == 130
    assert home.ids() == ["a"]
