"""`dsh sessions export`: the stored text verbatim, documents that no text breaks out of, nothing replaced."""

import os
import re
import stat
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.sessions.conversation.html import page
from dsh.cli.sessions.conversation.markdown import markdown, quoted
from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.export import Form, export, json_lines
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.sink import to_new_file
from dsh.errors import DshError
from dsh.persistence.error import LogRefusal
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.session.event import SessionEvent
from dsh.session.value import decode_strict, encode, json_equal
from dsh.testing.workspace import Workspace
from tests.cli.sessions.home import Call, Home, Told
from tests.cli.sessions.talk import Talk, answered
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import HEADER, TEXT, framed, line, turn_end, turn_start, view_of

FORMS: tuple[Form, ...] = ("jsonl", "markdown", "html")


@pytest.fixture
def run(home: Home, call: Call) -> Callable[..., Told]:
    """Export a target."""
    return lambda target, form="jsonl", output="", root="": call(
        lambda: export(str(target), Place(str(root)), form=form, output=str(output))
    )


def document(talk: Talk) -> str:
    return "".join(markdown(talk.view(), talk.items()))


def html(talk: Talk) -> str:
    return "".join(page(talk.view(), talk.items()))


# -- JSON lines ------------------------------------------------------------------------------------


def test_json_lines_are_the_stored_text_byte_for_byte(tmp_path: Path, run: Callable[..., Told]) -> None:
    odd = HEADER + b' {"seq":0, "type":"turn/start","time":1e3,"data":{"turn":1.0}}\r\n' + turn_end(1)
    for text in (TEXT, odd, HEADER):
        (tmp_path / "log").write_bytes(text)
        assert run(tmp_path / "log") == (0, text.decode(), "")


def test_a_compressed_log_is_exported_as_text(tmp_path: Path, run: Callable[..., Told]) -> None:
    (tmp_path / "log").write_bytes(framed(turn_start(0), turn_end(1)))

    assert run(tmp_path / "log") == (0, (HEADER + turn_start(0) + turn_end(1)).decode(), "")


@pytest.mark.parametrize("form", FORMS)
def test_what_a_repair_would_add_is_exported_and_told(
    tmp_path: Path, run: Callable[..., Told], form: Form
) -> None:
    torn = TEXT[: TEXT.index(b'{"type":"turn/end"')] + b'{"type":"tu'
    (tmp_path / "log").write_bytes(torn)

    code, out, err = run(tmp_path / "log", form)

    assert code == 0 and "interrupted" in out
    assert len(err.splitlines()) == 2 and "closing events that are not stored: 1" in err
    assert (tmp_path / "log").read_bytes() == torn
    if form == "jsonl":
        (tmp_path / "again").write_bytes(out.encode())
        assert not view_of(tmp_path / "again").needs_repair
        assert out.encode().startswith(torn[: -len(b'{"type":"tu')])


def test_a_session_in_a_database_is_written_as_its_lines(tmp_path: Path, run: Callable[..., Told]) -> None:
    (tmp_path / "log").write_bytes(TEXT)
    view = view_of(tmp_path / "log")
    backend = SqliteBackend(tmp_path / "sessions.db")
    backend.append(view.header, view.entries())
    backend.close()

    code, out, err = run("demo.1", root=tmp_path / "sessions.db")

    assert (code, err) == (0, "")
    assert out.encode() == TEXT


@needs_corpus
@pytest.mark.parametrize(
    "log", sorted(CORPUS.glob("*/*.jsonl*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_the_lines_that_are_written_say_what_the_log_says(log: Path, tmp_path: Path) -> None:
    try:
        view = view_of(log)
    except LogRefusal:
        return
    (tmp_path / "again").write_bytes(b"".join(json_lines(view)))

    again = view_of(tmp_path / "again")

    assert again.header == view.header and not again.needs_repair
    pairs = zip(again.events(), view.events(), strict=True)
    assert all(json_equal(decode_strict(_text(a)), decode_strict(_text(b))) for a, b in pairs)


def _text(event: SessionEvent) -> bytes:
    return encode(event.to_json())


# -- Markdown --------------------------------------------------------------------------------------


def test_a_document_holds_everything_in_full() -> None:
    talk = Talk(cwd="/srv/app").turn().step()
    talk.user("say *hi*")
    talk.event(
        "request/header",
        {
            "header": {"config": {"provider": "acme", "model": "acme-1"}, "system": "be brief"},
            "reason": "initial",
        },
    )
    talk.event("session/title", {"title": "A *title*", "messageSeqs": [], "source": {"kind": "user"}})
    talk.tool("read_file", '{"path":"a.txt"}', "\n".join(f"line {n}" for n in range(300)))
    talk.end_step().step(2)
    talk.say("**done**")

    text = document(talk.end_step().end())

    assert text.startswith("# A \\*title\\*\n\n- session: demo.1\n- started: 2023-11-14 22:13:20 UTC\n")
    assert "\n## System prompt\n\n```text\nbe brief\n```\n" in text
    assert "\n### user\n\n```text\nsay *hi*\n```\n" in text
    assert "\n**read\\_file** · 1 ms\n\n```text\npath: a.txt\n```\n\nResult:\n\n```text\nline 0\n" in text
    assert "line 150\n" in text
    assert "\n> **done**\n" in text
    assert text.endswith("\n*turn 1: completed · 2 steps · 12 ms*\n")


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_document_does_not_say_where_the_log_lies(home: Home, run: Callable[..., Told], form: Form) -> None:
    home.store("a", cwd="/srv/app")

    assert str(home.path) not in run("a", form).out


@given(st.text(st.sampled_from("`~ \nab<>"), max_size=40))
def test_no_text_ends_the_fence_around_it(text: str) -> None:
    talk = Talk().turn().step()
    talk.user(text)

    body = document(talk).partition("### user\n\n")[2]
    fence = body[: len(body) - len(body.lstrip("`"))]

    opening, *lines, closing = body.removesuffix("\n").split("\n")
    assert opening == f"{fence}text" and closing == fence
    assert not [shown for shown in lines if re.fullmatch(f" {{0,3}}`{{{len(fence)},}} *", shown)]


@given(st.text(st.sampled_from("`~ \n-1.>\\|ab<!["), max_size=60))
def test_html_and_pictures_in_a_reply_stay_text(text: str) -> None:
    for shown in quoted(text).splitlines():
        assert shown.startswith(">")
    plain = re.sub("[`~]", "", text)
    for shown in quoted(plain).splitlines():
        assert "<" not in shown and "![" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b> c", "> a &lt;b> c\n"),
        ("![x](http://evil/)", "> !\\[x](http://evil/)\n"),
        ("the `Vec<T>` type", "> the `Vec<T>` type\n"),
        ("```rust\nVec<T>\n```\n<i>", "> ```rust\n> Vec<T>\n> ```\n> &lt;i>\n"),
        ("`\n`<script>`", "> `\n> `&lt;script>`\n"),  # the span may begin on the line above
        ("a | `b | <i> `", "> a | `b | &lt;i> `\n"),  # a cell of a table ends there
        ("\\`<i>`", "> \\`&lt;i>`\n"),
        ("- ```\n<i>\n```\n<i>", "> - ```\n> &lt;i>\n> ```\n> &lt;i>\n"),  # whose fence ends with its list
        ("```|\n---\n<i>", "> ```|\n> ---\n> &lt;i>\n"),
        ("```a`\n<i>", "> ```a`\n> &lt;i>\n"),
        ("~~~\n```\n<i>\n~~~~ \n<i>", "> ~~~\n> ```\n> <i>\n> ~~~~ \n> &lt;i>\n"),
        ("hard  \nbreak\n\nnext", "> hard  \n> break\n>\n> next\n"),
    ],
)
def test_code_in_a_reply_is_code_as_far_as_that_is_certain(text: str, shown: str) -> None:
    assert quoted(text) == shown


# -- HTML ------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements and texts of a page."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


EVIL = '</pre></style><script>alert(1)</script><img src=http://evil/ onerror="x"> \'&amp;'


def hostile() -> Talk:
    talk = Talk(cwd="/" + EVIL, parent_session=EVIL, agent_preset=EVIL).turn().step()
    talk.user(EVIL)
    talk.user(EVIL, kind=EVIL, name=EVIL)
    header = {"config": {"provider": EVIL, "model": EVIL}, "system": EVIL}
    talk.event("request/header", {"header": header, "reason": "initial"})
    talk.event("session/title", {"title": EVIL, "messageSeqs": [], "source": {"kind": "user"}})
    talk.event("todo/write", {"todos": [{"content": EVIL, "status": "pending"}]})
    talk.reply(
        {"type": "reasoning", "text": EVIL}, {"type": EVIL, EVIL: EVIL}, {"type": "text", "text": EVIL}
    )
    talk.tool(EVIL, EVIL, EVIL)
    return talk.end_step().end(kind="error", error={"message": EVIL, "code": EVIL})


def test_nothing_in_a_log_becomes_a_part_of_the_page() -> None:
    tags = Tags(html(hostile()))

    assert tags.names == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "dl", "dt", "dd"),
        *("section", "pre", "p", "div", "b", "small"),
    }
    assert tags.attributes == {"lang", "charset", "http-equiv", "content", "name", "id", "class"}
    assert tags.open == []
    assert sum(EVIL in text for text in tags.texts) >= 12


def test_a_page_fetches_nothing_and_may_not() -> None:
    text = html(answered())

    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert not re.search(r"https?://|//|url\(|@import|<link|<script|src=|href=", text)
    assert "prefers-color-scheme: dark" in text and "@media print" in text


@pytest.mark.parametrize("text", ["\n", "\n\nx", "  x\n", "", "a\tb"])
def test_a_text_in_a_page_is_as_it_was(text: str) -> None:
    talk = Talk().turn().step()
    talk.user(text)

    shown = (
        html(talk).partition("<pre>\n")[2].partition("</pre>")[0]
    )  # browsers drop the line end after the tag

    assert shown == text


def test_documents_hold_no_key_and_no_control_character(tmp_path: Path) -> None:
    bad = "a\x1b[31m\x00\u202e sk-abcdefgh12345678 https://me:pw@host/\ud83d"
    talk = Talk(parent_session=bad).turn().step()
    talk.user(bad)
    talk.tool("bash", bad, bad)
    talk.say(bad)

    for text in (document(talk), html(talk)):
        assert not {"\x1b", "\x00", "\u202e", "\ud83d"} & set(text)
        assert "abcdefgh12345678" not in text and "me:pw" not in text


# -- where it goes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_new_file_is_written_and_nothing_printed(home: Home, run: Callable[..., Told], form: Form) -> None:
    home.store("a")

    assert run("a", form, "out") == (0, "", "")

    written = (home.work / "out").read_text()
    assert run("a", form, "-") == (0, written, "") == run("a", form)
    assert [path.name for path in home.work.iterdir()] == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((home.work / "out").stat().st_mode) == 0o666 & ~umask


def test_what_lies_there_is_never_overwritten(home: Home, run: Callable[..., Told]) -> None:
    home.store("a")
    (home.work / "file").write_text("mine")
    (home.work / "folder").mkdir()
    (home.work / "link").symlink_to("nowhere")

    for name in ("file", "folder", "link"):
        code, out, err = run("a", "html", name)
        assert (code, out) == (1, "")
        assert err == (
            f"dsh: {name}: there is something already, and nothing is overwritten\n"
            "hint: name a file that does not exist yet\n"
        )
    assert (home.work / "file").read_text() == "mine"
    assert sorted(path.name for path in home.work.iterdir()) == ["file", "folder", "link"]


def test_a_file_that_appears_while_it_is_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def pieces() -> "list[str]":
        path.write_text("theirs")
        return ["ours"]

    with pytest.raises(DshError, match="there is something already"):
        to_new_file(path, (piece for _ in "x" for piece in pieces()))
    assert path.read_text() == "theirs"
    assert [found.name for found in tmp_path.iterdir()] == ["out"]


def test_a_file_system_without_links_gets_its_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    to_new_file(tmp_path / "out", ("whole",))

    assert (tmp_path / "out").read_text() == "whole"
    assert [found.name for found in tmp_path.iterdir()] == ["out"]
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        to_new_file(tmp_path / "other", ("whole",))
    assert [found.name for found in tmp_path.iterdir()] == ["out"]


def test_a_drawing_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> "list[str]":
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="out"):
        to_new_file(tmp_path / "out", (piece for _ in "x" for piece in pieces()))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_with_the_name_that_was_given(
    home: Home, run: Callable[..., Told]
) -> None:
    home.store("a")

    code, out, err = run("a", "html", "no/where.html")

    assert (code, out) == (1, "")
    told, hint = err.splitlines()
    assert told.endswith("no/where.html: there is no folder no")
    assert hint == "hint: make it, or name another file"


@pytest.mark.parametrize(
    ("name", "begins"), [("a.html", "<!DOCTYPE html>"), ("a.MD", "# "), ("a.jsonl", "{"), ("a", "{")]
)
def test_the_name_of_the_file_says_what_is_written(
    home: Home, run: Callable[..., Told], name: str, begins: str
) -> None:
    home.store("a")

    assert run("a", None, name) == (0, "", "")
    assert Path(name).read_text().startswith(begins)


@pytest.mark.parametrize("form", FORMS)
def test_a_log_that_is_refused_writes_nothing(tmp_path: Path, run: Callable[..., Told], form: Form) -> None:
    (tmp_path / "log").write_bytes(HEADER + line("acme/note", 0, {}) + turn_end(1))

    code, out, err = run(tmp_path / "log", form, tmp_path / "out")

    assert (code, out) == (1, "")
    assert err.endswith(f"; dsh sessions show --raw {tmp_path / 'log'} prints the stored text\n")
    assert "hint: install the plugin" in err
    assert not (tmp_path / "out").exists()


def test_the_command_takes_its_options(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "space")
    answered("done").store(space.work / "log")

    assert space.run("sessions", "export", "./log", "-f", "markdown").stdout.startswith("# Session\n")
    assert space.run("sessions", "export", "./log", "--format", "html", "-o", "x.html").code == 0
    assert (space.work / "x.html").read_text().startswith("<!DOCTYPE html>")
    assert space.run("sessions", "export", "./log", "-f", "pdf").code == 2


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "space")
    path = answered("line\n" * 200_000).store(tmp_path / "log")
    for form in FORMS:
        process = space.start("sessions", "export", str(path), "-f", form)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        with process.stderr as errors:
            assert errors.read() == b""
        assert process.wait(timeout=30) == 141


def test_the_exported_lines_open_as_a_session_where_they_are_put(
    home: Home, run: Callable[..., Told]
) -> None:
    path = home.store("a")
    text = run("a").out
    path.write_text(text)

    assert JsonlBackend(home.sessions).load("a") is not None
    assert list(conversation(view_of(path)))
