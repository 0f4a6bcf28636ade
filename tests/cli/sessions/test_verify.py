"""`dsh sessions verify`: what is told of one log and of many, lines, exit codes, and JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.cli.sessions.place import Place
from dsh.cli.sessions.verify import counted, verify
from dsh.persistence.lock import OwnerLock
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import HEADER, TEXT

Run = Callable[..., tuple[int, str, str]]
OTHER_TEXT = TEXT.replace(b'"text":"hi!"}],"source"', b'"text":"ho!"}],"source"')
"""The reply says something else than was streamed: line 13, seq 14."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Check targets, with a home of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))

    def call(*targets: object, everywhere: bool = False, as_json: bool = False) -> tuple[int, str, str]:
        code = verify([str(target) for target in targets], Place(), everywhere=everywhere, as_json=as_json)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def written(tmp_path: Path, name: str, text: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text)
    return path


def stored(tmp_path: Path, session_id: str, text: bytes) -> Path:
    path = tmp_path / "home" / "sessions" / "--srv-app--" / session_id / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.replace(b'"id":"demo.1"', b'"id":"%s"' % session_id.encode()))
    return path


def test_a_sound_log_is_ok_and_says_what_was_looked_at(tmp_path: Path, run: Run) -> None:
    path = written(tmp_path, "a.jsonl", TEXT)

    assert run(path) == (0, f"{path}: ok (17 events, 1 streamed reply, 0 calls, 0 digests)\n", "")
    assert path.read_bytes() == TEXT


def test_an_error_names_line_and_seq(tmp_path: Path, run: Run) -> None:
    path = written(tmp_path, "a.jsonl", OTHER_TEXT)

    code, out, _ = run(path)

    assert code == 1
    first, last = out.splitlines()
    assert first.startswith(
        "error  REPLY_DIFFERS  line 14, seq 14: assistant/message: text of block 0 is 'ho!'"
    )
    assert last.startswith(f"{path}: 1 error (17 events")


def test_an_unfinished_log_is_a_warning(tmp_path: Path, run: Run) -> None:
    torn = TEXT[: TEXT.index(b'{"type":"turn/end"') + 9]
    path = written(tmp_path, "a.jsonl", torn)

    code, out, _ = run(path)

    assert code == 0
    assert [text.split()[:2] for text in out.splitlines()[:-1]] == [
        ["warning", "TORN_TAIL"],
        ["warning", "UNFINISHED"],
    ]
    assert path.read_bytes() == torn


def test_a_session_that_runs_is_told_with_its_process(tmp_path: Path, run: Run) -> None:
    path = stored(tmp_path, "a", TEXT[: TEXT.index(b'{"type":"turn/end"')])
    lock = OwnerLock.acquire(path.parent)
    try:
        running = run("a")[1]
    finally:
        lock.release()

    assert "UNFINISHED  the last turn has no end yet: process " in running
    assert "UNFINISHED  the last turn has no end; 1 event will close it" in run("a")[1]


def test_a_log_that_does_not_open_is_an_error_with_its_line(tmp_path: Path, run: Run) -> None:
    path = written(tmp_path, "a.jsonl", TEXT.replace(b'"seq":12', b'"seq":112'))

    code, out, _ = run(path)
    shown = json.loads(run(path, as_json=True)[1])

    assert code == 1
    assert out.startswith(f"{path}: refused: CORRUPT_SESSION: {path}:12")
    [found] = shown["logs"][0]["findings"]
    assert (found["level"], found["code"], found["line"]) == ("error", "CORRUPT_SESSION", 12)


def test_many_logs_are_a_line_each_and_a_bad_one_does_not_stop_the_rest(tmp_path: Path, run: Run) -> None:
    good = written(tmp_path, "good.jsonl", TEXT)
    bad = written(tmp_path, "bad.jsonl", b"\x00\x1b[31m\n")
    odd = written(tmp_path, "odd.jsonl", OTHER_TEXT)
    gone = tmp_path / "gone.jsonl"

    code, out, err = run(good, bad, gone, odd, good)

    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert [text.split(": ", 2)[1].split(" (")[0] for text in lines] == [
        "ok",
        "refused",
        "refused",
        "1 error",
        "ok",
    ]
    assert "\x1b" not in out
    assert "No such file" in lines[2]


def test_all_stored_sessions_are_checked_broken_ones_too(tmp_path: Path, run: Run) -> None:
    first = stored(tmp_path, "a", TEXT)
    bad = stored(tmp_path, "b", b"no header\n")
    last = stored(tmp_path, "c", HEADER)

    code, out, _ = run(everywhere=True)

    assert code == 1
    a, c, b = out.splitlines()
    assert a.startswith(f"{first}: ok (17 events")
    assert c.startswith(f"{last}: ok (0 events")
    assert b.startswith(f"{bad}: refused: NOT_A_SESSION_LOG: ")


def test_a_log_has_one_name_alone_among_others_and_with_all(tmp_path: Path, run: Run) -> None:
    paths = [stored(tmp_path, name, text) for name, text in (("a", TEXT), ("b", OTHER_TEXT), ("c", HEADER))]

    told = run("a")[1], run("b")[1].splitlines(keepends=True)[-1], run(paths[2])[1]

    assert all(line.startswith(f"{path}: ") for line, path in zip(told, paths, strict=True))
    assert run("a", paths[1], "c")[1] == run(everywhere=True)[1] == "".join(told)


def test_a_stored_session_is_checked_by_the_start_of_its_id(tmp_path: Path, run: Run) -> None:
    path = stored(tmp_path, "demo.77", TEXT)

    assert run("demo.7")[:2] == (0, f"{path}: ok (17 events, 1 streamed reply, 0 calls, 0 digests)\n")


def test_no_sessions_at_all_are_in_order(run: Run) -> None:
    assert run(everywhere=True) == (0, "no session is stored\n", "")
    assert json.loads(run(everywhere=True, as_json=True)[1]) == {"logs": [], "errors": 0, "warnings": 0}


@pytest.mark.parametrize(("targets", "everywhere"), [((), False), (("a",), True)])
def test_either_sessions_or_all_of_them(targets: tuple[str, ...], everywhere: bool, run: Run) -> None:
    code, out, err = run(*targets, everywhere=everywhere)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_the_json_object_counts_over_all_logs(tmp_path: Path, run: Run) -> None:
    paths = [written(tmp_path, "a.jsonl", TEXT), written(tmp_path, "b.jsonl", OTHER_TEXT)]

    code, out, _ = run(*paths, as_json=True)

    shown = json.loads(out)
    assert code == 1
    assert (shown["errors"], shown["warnings"]) == (1, 0)
    assert [log["status"] for log in shown["logs"]] == ["ok", "errors"]
    assert shown["logs"][0] == {
        "log": str(paths[0]),
        "session": "demo.1",
        "status": "ok",
        "findings": [],
        "events": 17,
        "calls": 0,
        "replies": 1,
        "digests": 0,
    }
    assert list(shown["logs"][1]["findings"][0]) == ["level", "code", "seq", "line", "message"]


def test_keys_in_a_log_do_not_reach_the_terminal(tmp_path: Path, run: Run) -> None:
    secret = b"sk-" + b"a1B2" * 10
    path = written(
        tmp_path, "a.jsonl", TEXT.replace(b'"text":"hi!"}],"source"', b'"text":"' + secret + b'"}],"source"')
    )

    assert secret.decode() not in run(path)[1]
    assert secret.decode() not in run(path, as_json=True)[1]


@needs_corpus
def test_recorded_logs_that_open_have_no_error(run: Run) -> None:
    logs = sorted(CORPUS.glob("fixtures/*.jsonl")) + sorted(CORPUS.glob("runs/*.jsonl"))

    shown = json.loads(run(*logs, as_json=True)[1])

    refused = [log for log in shown["logs"] if log["status"] == "refused"]
    assert len(refused) == 8
    assert shown["errors"] == 8


@pytest.mark.parametrize(("count", "text"), [(0, "0 replies"), (1, "1 reply"), (2, "2 replies")])
def test_counted_things_for_people(count: int, text: str) -> None:
    assert counted(count, "reply") == text
