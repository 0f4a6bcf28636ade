"""`dsh sessions inspect`: targets, the printed object, refusals in one line, and what it loads."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.cli.sessions.inspect import inspect
from dsh.cli.sessions.place import Place
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import HEADER, TEXT, framed, line, turn_end, turn_start

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Inspect a target with a home of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))

    def call(target: object, *, json_output: bool = True) -> tuple[int, str, str]:
        code = inspect(str(target), Place(), as_json=json_output)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def store(home: Path, session_id: str, body: bytes = b"") -> Path:
    path = home / "sessions" / "--srv-app--" / session_id / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(HEADER.replace(b"demo.1", session_id.encode()) + body)
    return path


def test_the_object_holds_the_repaired_view_and_the_file_stays(tmp_path: Path, run: Run) -> None:
    torn = TEXT[: TEXT.index(b'{"type":"turn/end"')]
    path = tmp_path / "somewhere.log"
    path.write_bytes(torn)

    code, out, err = run(path)

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert list(shown) == ["events", "lastType", "last", "header", "messages", "surface", "requestHeader"]
    assert shown["events"] == 17
    assert shown["last"]["data"] == {"turn": 1, "reason": {"kind": "interrupted"}}
    assert shown["surface"] == [4, 14]
    assert [message["id"] for message in shown["messages"]] == ["m-1", "m-2"]
    assert shown["requestHeader"] == {"config": {"provider": "acme", "model": "acme-1"}, "system": "be brief"}
    assert path.read_bytes() == torn
    assert [file.name for file in tmp_path.iterdir()] == ["somewhere.log"]


def test_an_empty_session_has_no_last_event(tmp_path: Path, run: Run) -> None:
    code, out, _ = run(store(tmp_path / "home", "a"))

    assert code == 0
    assert json.loads(out) == {
        "events": 0,
        "header": {
            "version": 0,
            "id": "a",
            "createdAt": 1700000000000,
            "cwd": "/srv/app",
            "delegationDepth": 0,
        },
        "messages": [],
        "surface": [],
        "requestHeader": None,
    }


def test_a_target_is_an_id_or_a_beginning_that_fits_one_session(tmp_path: Path, run: Run) -> None:
    home = tmp_path / "home"
    for session_id in ("session-abc", "session-abd", "session-ab"):
        store(home, session_id, turn_start(0) + turn_end(1))
    (home / "sessions" / "--srv-app--" / "empty-one").mkdir()

    def shown(target: str) -> Any:
        code, out, err = run(target)
        assert (code, err) == (0, "")
        return json.loads(out)["header"]["id"]

    assert shown("session-abc") == "session-abc"
    assert shown("session-ab") == "session-ab"  # the exact id wins
    code, out, err = run("session-a")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "dsh: SESSION_AMBIGUOUS: 'session-a' fits 3 stored sessions: session-ab, session-abc, session-abd",
        "hint: type more of the id",
    ]
    assert run("nothing")[0] == 1
    assert run("empty-one")[0] == 1
    assert run("")[0] == 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "empty"),
        (b"\0" * 100, "not complete"),
        (HEADER + turn_start(0) + b"{}}\n" + turn_end(1), ":3 (byte 177)"),
        (HEADER + line("acme/note", 0, {}), ":2"),
        (HEADER + turn_start(0, 0) + turn_end(1, 0), ":3"),
        (HEADER + b"\xff\xfe\n" + turn_end(0), ":2"),
        (b'{"version":3}\n', "format 3"),
        (framed(turn_start(0))[:50], "byte 0"),
        (framed(turn_start(0)) + b"garbage", "byte"),
        (b"[" * 100_000 + b"\n", ":1"),
    ],
)
def test_a_log_that_cannot_be_opened_is_one_line_with_code_and_place(
    tmp_path: Path, run: Run, data: bytes, place: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(data)

    code, out, err = run(path)

    assert (code, out) == (1, "")
    told, hint = err.splitlines()
    code_word, _, rest = told.removeprefix("dsh: ").partition(": ")
    assert code_word.isupper() and rest.startswith(str(path)) and place in rest
    assert hint.startswith("hint: ")


def test_missing_files_and_folders_are_one_line_too(tmp_path: Path, run: Run) -> None:
    codes = {tmp_path / "no" / "such": "SESSION_NOT_FOUND", tmp_path: "SESSION_LOG_NOT_A_FILE"}
    for target, word in codes.items():
        code, out, err = run(target)
        assert (code, out) == (1, "")
        assert err.splitlines()[0].startswith(f"dsh: {word}: {target}: ")


def test_what_is_left_out_at_the_end_of_a_torn_log_is_told(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "torn.log"
    path.write_bytes(HEADER + turn_start(0) + turn_end(1) + b'{"type":"assis')

    code, out, err = run(path)

    end = len(HEADER + turn_start(0) + turn_end(1))
    assert (code, json.loads(out)["events"]) == (0, 2)
    assert err.startswith(f"dsh: {path}: line 4: ") and err.count("\n") == 1
    assert f"of 14 bytes from byte {end} on no events could be read" in err


def test_text_of_a_log_cannot_write_on_the_terminal(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "log"
    path.write_bytes(HEADER.replace(b"demo.1", b"a\\u001b[31m\\nb").replace(b"/srv/app", b"/\\u0007"))

    code, out, _ = run(path, json_output=False)

    assert code == 0
    assert "\x1b" not in out and "\x07" not in out
    assert "a\\x1b[31m\\x0ab" in out


def test_lone_surrogates_are_shown_as_their_escapes(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "log"
    title = {"title": "\ud83d", "messageSeqs": [], "source": {"kind": "user"}}
    path.write_bytes(HEADER + line("session/title", 0, title))

    code, out, _ = run(path)

    assert code == 0
    assert '"title":"\\ud83d"' in out
    assert json.loads(out)["last"]["data"] == title


def test_people_get_a_few_lines(tmp_path: Path, run: Run) -> None:
    path = store(tmp_path / "home", "a", turn_start(0))

    code, out, _ = run("a", json_output=False)

    assert code == 0
    assert f"log       {path}\n" in out
    assert "closing events added when it is opened: 1" in out


LOADED = """
import sys
from dsh.cli.sessions.inspect import inspect
from dsh.cli.sessions.place import Place
code = inspect(sys.argv[1], Place(), as_json=True)
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


def test_it_loads_neither_kernel_nor_event_loop_nor_anything_heavy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(framed(turn_start(0)))

    done = subprocess.run([sys.executable, "-c", LOADED, path], capture_output=True, text=True, check=True)

    heavy = {
        "asyncio",
        "httpx",
        "typer",
        "click",
        "logging",
        "ssl",
        "socket",
        "concurrent",
        "ruamel",
        "hashlib",
    }
    assert heavy & set(done.stderr.split()) == set()


def logs() -> list[Path]:
    return sorted(CORPUS.glob("*/*.jsonl*"))


@needs_corpus
@pytest.mark.parametrize("log", logs(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_corpus_is_read_as_the_original_reads_it(log: Path, run: Run) -> None:
    want = json.loads((log.parent / f"{log.name.split('.jsonl')[0]}.expected.json").read_text())

    code, out, err = run(log)

    if "error" in want:
        assert code == 1 and err.count("\n") == 2
        return
    assert code == 0, err
    got = json.loads(out)
    compared = ("events", "lastType", "last", "header", "messages", "surface", "requestHeader")
    for key in compared:
        assert (key in got) == (key in want)
        assert _strict(got.get(key)) == _strict(want.get(key)), key


@needs_corpus
def test_a_person_is_told_of_events_messages_and_request_headers(run: Run) -> None:
    log = CORPUS / "fixtures" / "headless-agent-headless-profile-session-expected.jsonl"

    code, out, _ = run(log, json_output=False)

    assert code == 0
    assert out.splitlines()[-3:] == [
        "events    32, the last is turn/end",
        "messages  5",
        "headers   2, the last for cli-mock/cli-mock",
    ]


def _strict(value: Any) -> Any:
    """For comparing: True is not 1, key order is free, the wording of made-up results too."""
    if isinstance(value, dict):
        if str(value.get("id", "")).startswith("interrupted-tool-result-"):
            value = {**value, "content": [{**block, "content": "*"} for block in value["content"]]}
        return {key: _strict(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return ("bool", value) if isinstance(value, bool) else value
