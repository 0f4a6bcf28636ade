"""`dsh sessions show`: what a person sees, how it fits the terminal, and the stored text as it is."""

import contextlib
import fcntl
import os
import pty
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.cli.columns import width
from dsh.cli.sessions.conversation.drawing import drawn
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.show import show
from dsh.cli.sessions.terminal import Look, look_of_output
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.session.chunk import TextDelta
from dsh.session.event import SessionEvent
from dsh.session.value import freeze
from dsh.testing.workspace import PROGRAM, Workspace
from tests.cli.sessions.home import Call, Home, Told
from tests.cli.sessions.talk import Talk, answered
from tests.persistence.golden import HEADER, TEXT, framed, line, turn_end, turn_start, view_of
from tests.session.build import header


@pytest.fixture
def run(home: Home, call: Call) -> Callable[..., Told]:
    """Show a target."""
    return lambda target, chunks=False, raw=False: call(
        lambda: show(str(target), Place(), chunks=chunks, raw=raw)
    )


def text_of(talk: Talk, columns: int | None = None) -> str:
    return "".join(drawn(talk.items(), Look(columns)))


def test_a_conversation_reads_from_top_to_bottom(tmp_path: Path, run: Callable[..., Told]) -> None:
    talk = Talk(cwd="/srv/app").turn().step()
    talk.user("list them")
    talk.event("session/title", {"title": "Listing", "messageSeqs": [2], "source": {"kind": "fallback"}})
    talk.tool("bash", '{"command":"ls"}', "a.txt\nb.txt\n")
    talk.end_step().step(2)
    talk.say("two files")
    path = talk.end_step().end().store(tmp_path / "log")

    code, out, err = run(path)

    assert (code, err) == (0, "")
    started = out[out.index("started   ") + 10 :].partition("\n")[0]
    turn = out[out.index("── turn 1") :].partition("\n")[0]
    assert out == (
        "session   demo.1\n"
        "title     Listing\n"
        f"started   {started}\n"
        "directory /srv/app\n"
        f"log       {path}\n"
        f"\n{turn}\n"
        "\nuser\n  list them\n"
        "\nacme/acme-1 · step 1 · 3 ms\n"
        "  ▸ bash 1 ms\n    command: ls\n    │ a.txt\n    │ b.txt\n"
        "\nacme/acme-1 · step 2 · 1 ms\n"
        "  two files\n"
        "\nturn 1: completed · 2 steps · 11 ms\n"
    )


def test_a_long_result_is_cut_and_says_how_many_lines_are_left_out() -> None:
    talk = Talk().turn().step()
    talk.tool("bash", "{}", "\n".join(f"line {n}" for n in range(100)))

    shown = [text.strip(" │") for text in text_of(talk).splitlines() if text.startswith("    │")]

    assert shown == [
        *(f"line {n}" for n in range(15)),
        "… 80 lines left out",
        *(f"line {n}" for n in range(95, 100)),
    ]


@pytest.mark.parametrize(("lines", "is_cut"), [(20, False), (21, False), (22, True)])
def test_one_line_is_not_left_out_for_a_line_that_says_so(lines: int, is_cut: bool) -> None:
    talk = Talk().turn().step()
    talk.tool("bash", "{}", "\n".join("x" for _ in range(lines)))

    assert ("left out" in text_of(talk)) == is_cut


def test_what_people_and_models_say_is_never_cut_and_what_plugins_say_is_short() -> None:
    long = "\n".join(f"line {n}" for n in range(500))
    talk = Talk().turn().step()
    talk.user(long)
    talk.user(long, kind="plugin", plugin="@acme/notes", form="snapshot", sections=[])
    talk.say(long)

    shown = text_of(talk)

    assert shown.count("line 250\n") == 2
    assert "plugin notes (snapshot)" in shown and "… 494 lines left out" in shown


@pytest.mark.parametrize("columns", [20, 40, 79])
def test_every_line_fits_the_terminal(columns: int) -> None:
    talk = Talk().turn().step()
    talk.user("many words " * 40 + "\n\t" + "x" * 300 + "\n" + "漢字" * 100)
    talk.tool("bash", '{"command":"' + "y" * 400 + '"}', "z" * 5000 + "\n    indented " + "w " * 100)
    talk.say("so " * 100)
    talk.end_step().end(kind="error", error={"message": "why " * 50, "code": "X"})

    lines = text_of(talk, columns).splitlines()

    wide = [text for text in lines if width(text) > columns and not text.startswith(("acme/", "──", "  ▸"))]
    assert wide == []
    joined = "".join(text.strip() for text in lines)
    assert "x" * 300 in joined and "漢字" * 100 in joined


def test_failures_are_named(tmp_path: Path) -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "not JSON"))
    talk.end_step().end(kind="aborted", reason={"kind": "user"})

    shown = text_of(talk)

    assert "▸ bash not started, no result\n    not JSON\n" in shown
    assert "turn 1: aborted by the user" in shown


def test_pieces_come_one_a_line_with_their_time(tmp_path: Path, run: Callable[..., Told]) -> None:
    talk = Talk().turn().step()
    talk.stream(TextDelta(0, "Hel"), TextDelta(0, "lo\n"), TextDelta(0, ""))
    talk.say("Hello\n")
    path = talk.store(tmp_path / "log")

    shown = run(path, chunks=True).out

    pieces = [text for text in shown.splitlines() if text.startswith("  +")]
    assert pieces == ["  +0.001 s  text        Hel", "  +0.002 s  text        lo\\x0a", "  +0.003 s  text"]
    assert "  +" not in run(path).out


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_key_that_came_in_pieces_is_not_shown(is_packed: bool) -> None:
    talk = Talk().turn().step()
    texts = ("the key is ", "sk-ab", "cdef", "gh1234", "5678 as", " you know")
    for text in texts:
        if is_packed:
            talk.stream(TextDelta(0, text))
        else:
            chunk = {"type": "text-delta", "index": 0, "text": text}
            talk.event("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})

    shown = "".join(drawn(talk.items(pieces=True), Look()))

    pieces = [text[24:] for text in shown.splitlines() if text.startswith("  +")]
    assert pieces == ["the key is", "***", "***", "***", "***", " you know"]


def test_nothing_in_a_log_writes_on_the_terminal_and_keys_are_masked(
    tmp_path: Path, run: Callable[..., Told]
) -> None:
    bad = "a\x1b[31mb\x07\u202ec sk-abcdefgh12345678"
    talk = Talk(cwd="/w\x1b]0;x\x07", parent_session=bad).turn().step()
    talk.user(bad)
    talk.user(bad, kind=bad, name=bad, form=bad)
    talk.stream(TextDelta(0, bad))
    talk.tool(bad, '{"' + "k\\u001b" + '": "\\u001b[0m"}', bad)
    talk.event("session/title", {"title": bad, "messageSeqs": [], "source": {"kind": "user"}})
    talk.event("todo/write", {"todos": [{"content": bad, "status": "pending"}]})
    talk.event("acme/" + bad, {bad: bad}, ignorable=True)
    path = talk.end_step().end(kind="error", error={"message": bad, "code": bad}).store(tmp_path / "log")

    out = run(path, chunks=True).out

    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "abcdefgh12345678" not in out
    assert "a\\x1b[31mb\\x07\\u202ec sk-***" in out


def test_a_session_that_was_cut_off_is_shown_closed_and_that_is_told(
    tmp_path: Path, run: Callable[..., Told]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(HEADER + turn_start(0) + b'{"type":"tor')

    code, out, err = run(path)

    assert code == 0
    assert "turn 1: interrupted: the session ended before the turn did" in out
    assert "closed when opened, not stored" in out
    torn, closed = err.splitlines()
    assert torn.startswith(f"dsh: {path}: line 3: ") and "of 12 bytes from byte" in torn
    assert closed == f"dsh: {path}: the session was cut off; closing events that are not stored: 1"
    assert path.read_bytes().endswith(b'{"type":"tor')


def test_a_log_that_is_refused_is_exit_1_and_the_way_to_its_text(
    tmp_path: Path, run: Callable[..., Told]
) -> None:
    path = tmp_path / "two words"
    path.write_bytes(HEADER + turn_end(7))

    code, out, err = run(path)

    assert (code, out) == (1, "")
    assert err.splitlines()[0].startswith(f"dsh: CORRUPT_SESSION: {path}:2 ")
    assert err.splitlines()[1:] == [f"hint: dsh sessions show --raw '{path}' prints the stored text"]


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        HEADER + line("acme/note", 0, {"x": "\u00e9"}) + turn_end(7),
        b'{"type":"session","version":9}\nwhatever \xff\x1b\x00\r\n',
        HEADER + b"\xff\xfe\n" + turn_end(0),
    ],
    ids=["healthy", "unknown type", "another version", "binary"],
)
def test_raw_is_the_stored_text_byte_for_byte(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    space = Workspace(tmp_path / "space")

    with (tmp_path / "out").open("wb") as out:
        process = space.start("sessions", "show", "--raw", str(path), stdout=out)
        _, errors = process.communicate(timeout=30)

    assert (process.returncode, errors, (tmp_path / "out").read_bytes()) == (0, b"", text)


def test_raw_text_comes_out_of_its_compression(tmp_path: Path, run: Callable[..., Told]) -> None:
    path = tmp_path / "log"
    path.write_bytes(framed(turn_start(0) + turn_end(1)))

    assert run(path, raw=True) == (0, (HEADER + turn_start(0) + turn_end(1)).decode(), "")


def test_the_raw_text_of_a_stored_session_is_there_also_when_its_header_is_another(
    home: Home, run: Callable[..., Told]
) -> None:
    path = home.store("mine")
    text = path.read_bytes().replace(b'"mine"', b'"other"')
    path.write_bytes(text)

    assert run("mine", raw=True) == (0, text.decode(), "")


def test_a_database_keeps_no_text_and_the_way_to_one_is_told(tmp_path: Path, home: Home, call: Call) -> None:
    (tmp_path / "log").write_bytes(TEXT)
    view = view_of(tmp_path / "log")
    backend = SqliteBackend(tmp_path / "sessions.db")
    backend.append(view.header, view.entries())
    backend.close()
    place = Place(str(tmp_path / "sessions.db"))

    code, out, err = call(lambda: show("demo.1", place, chunks=False, raw=True))

    assert (code, out) == (1, "")
    assert err.endswith("hint: dsh sessions export writes the log as JSON lines\n")
    assert "hi!" in call(lambda: show("demo.1", place, chunks=False, raw=False)).out


@pytest.mark.parametrize("kind", ["SESSION_TYPE_UNKNOWN", "SESSION_VERSION_UNSUPPORTED"])
def test_who_is_refused_a_session_of_a_database_is_not_sent_to_a_text_that_is_not_there(
    tmp_path: Path, home: Home, call: Call, kind: str
) -> None:
    path = tmp_path / "sessions.db"
    backend = SqliteBackend(path)
    backend.append(header(), [SessionEvent("acme/note", 0, 1, freeze({}, "data"))])
    backend.close()
    if kind == "SESSION_VERSION_UNSUPPORTED":
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE sessions SET version = 9")

    code, out, err = call(lambda: show("demo.1", Place(str(path)), chunks=False, raw=False))

    assert (code, out) == (1, "")
    assert err.startswith(f"dsh: {kind}: ")
    assert "hint: " in err and "--raw" not in err


def test_raw_says_what_is_wrong_with_no_text_at_all(tmp_path: Path, run: Callable[..., Told]) -> None:
    (tmp_path / "empty").write_bytes(b"")

    for target in (tmp_path / "empty", tmp_path, tmp_path / "no" / "where"):
        code, out, err = run(target, raw=True)
        assert (code, out) == (1, "") and err.startswith("dsh: ")


def in_terminal(space: Workspace, *words: str, columns: int = 60, **env: str) -> str:
    """What the program writes to a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env=space.environment({"TERM": "xterm", **env}),
        cwd=space.work,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    assert process.wait(timeout=30) == 0
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_lines_of_its_width(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "space")
    path = answered("word " * 100).store(tmp_path / "log")

    shown = in_terminal(space, "sessions", "show", str(path))
    plain = in_terminal(space, "sessions", "show", str(path), NO_COLOR="1")
    dumb = in_terminal(space, "sessions", "show", str(path), TERM="dumb")
    piped = space.run("sessions", "show", str(path)).stdout

    assert "\x1b[1;36muser\x1b[0m" in shown
    assert "\x1b" not in plain and plain == dumb
    words = [text for text in plain.splitlines() if text.startswith("  word")]
    assert len(words) > 5 and max(map(len, words)) <= 60
    assert "\x1b" not in piped and "  " + "word " * 99 + "word\n" in piped


def test_raw_text_is_harmless_on_a_terminal(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "space")
    path = tmp_path / "log"
    path.write_bytes(b'{"type":"session","version":9}\n\x1b[31m\x9b sk-abcdefgh12345678\n')

    shown = in_terminal(space, "sessions", "show", "--raw", str(path))

    assert shown == '{"type":"session","version":9}\n\\x1b[31m\\x9b sk-***\n'


def test_the_width_is_that_of_the_environment_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: True)

    assert look_of_output({"COLUMNS": "77", "TERM": "xterm"}) == Look(77, has_colour=True)
    assert look_of_output({"COLUMNS": "1", "TERM": "xterm", "NO_COLOR": "1"}) == Look(20, has_colour=False)


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "space")
    path = answered("line\n" * 200_000).store(tmp_path / "log")
    process = space.start("sessions", "show", str(path))
    assert process.stdout is not None and process.stderr is not None

    process.stdout.readline()
    process.stdout.close()

    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=30) == 141


LOADED = """
import sys
from dsh.cli.sessions.place import Place
if sys.argv[1] == "show":
    from dsh.cli.sessions.show import show
    code = show(sys.argv[2], Place(), chunks=True, raw=False)
else:
    from dsh.cli.sessions.export import export
    code = export(sys.argv[2], Place(), form=sys.argv[1], output="")
print(" ".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("what", ["show", "jsonl", "markdown", "html"])
def test_it_loads_neither_kernel_nor_event_loop_nor_anything_heavy(tmp_path: Path, what: str) -> None:
    path = answered().store(tmp_path / "log")

    done = subprocess.run(
        [sys.executable, "-c", LOADED, what, path], capture_output=True, text=True, check=True
    )

    loaded = set(done.stderr.split())
    heavy = {
        "asyncio",
        "httpx",
        "typer",
        "logging",
        "ssl",
        "socket",
        "ruamel",
        "sqlite3",
        "html",
    }
    assert heavy & loaded == set()
    assert not [
        name for name in loaded if name.startswith(("dsh.kernel", "dsh.plugins", "dsh.agent", "dsh.llm"))
    ]
