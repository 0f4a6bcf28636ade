"""Which stored session a TARGET means, and where sessions are looked for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from dsh.cli.sessions import whereabouts
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import find_log, find_stored
from dsh.cli.sessions.whereabouts import open_place
from dsh.composition.profile import PATCH_FILE, PROFILE_FILE
from dsh.errors import CompositionError, UsageError
from dsh.persistence.error import LogRefusal, PersistenceError
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.cli.sessions.home import Home

ROOT = "- id: session-persistence-jsonl\n  config:\n    root: {}\n"


def root_of(place: Place) -> Path:
    backend = open_place(place)
    assert isinstance(backend, JsonlBackend)
    return backend.root


def found(target: str) -> str | None:
    return find_stored(target, open_place(Place())).session_id


def test_session_in_front_of_an_id_need_not_be_typed(home: Home) -> None:
    home.store("session-abc")
    home.store("abd")

    assert found("session-ab") == found("abc") == found("abc") == "session-abc"
    assert found("ab") == "abd"  # what is written as it is comes first


def test_last_is_the_one_of_this_directory_that_was_written_last(home: Home) -> None:
    home.store("old", age_s=100)
    home.store("new", age_s=10)
    home.store("elsewhere", cwd="/srv/other")
    home.store("nowhere", cwd=None)
    home.store("child", origin="subagent", parentSession="new")

    assert found("last") == "new"


def test_an_id_that_begins_with_last_wins_over_the_word(home: Home) -> None:
    home.store("last-words", age_s=100)
    home.store("newer")

    assert found("last") == "last-words"


def test_there_may_be_no_last_one(home: Home) -> None:
    home.store("elsewhere", cwd="/srv/other")

    with pytest.raises(PersistenceError, match="no session of this directory") as caught:
        found("last")
    assert caught.value.code == "SESSION_NOT_FOUND"
    assert "--all" in caught.value.hint


def test_this_directory_is_also_the_one_the_shell_shows(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    link = home.work.with_name("link")
    link.symlink_to(home.work)
    home.store("through-the-link", cwd=str(link))
    monkeypatch.setenv("PWD", str(link))

    assert found("last") == "through-the-link"

    monkeypatch.setenv("PWD", "/")
    with pytest.raises(PersistenceError):
        found("last")


def test_a_directory_that_encodes_alike_is_another_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """RF-03: identity comes from the header's cwd, never from the name of a folder."""
    for name in ("my-app", "my/app", "my:app"):
        (home.work / name).mkdir(parents=True)
        home.store(name.replace("/", "+"), cwd=str(home.work / name))

    for name in ("my-app", "my/app", "my:app"):
        monkeypatch.chdir(home.work / name)
        assert found("last") == name.replace("/", "+")


@pytest.mark.parametrize("target", ["x" * 5000, "…", "../..", "~", " "])
def test_no_word_is_too_strange_to_be_refused(home: Home, target: str) -> None:
    with pytest.raises((PersistenceError, OSError)):
        find_log(target, Place()).view()


def test_a_file_wins_over_an_id(home: Home) -> None:
    home.store("notes")
    (home.work / "notes").write_text("x")

    log = find_log("notes", Place())

    assert (log.session_id, log.path) == (None, Path("notes"))


# -- where ---------------------------------------------------------------------------------------------


def test_without_any_file_of_the_user_it_is_the_home(home: Home) -> None:
    assert root_of(Place()) == home.sessions


def test_the_names_that_can_change_it_are_those_that_are_composed() -> None:
    assert {Path(name).name for name in whereabouts.USER_FILES} == {PATCH_FILE, PROFILE_FILE}


def test_a_patch_of_the_profile_says_where(home: Home, tmp_path: Path) -> None:
    home.profile(ROOT.format(tmp_path / "logs"))

    assert root_of(Place()) == tmp_path / "logs"
    assert root_of(Place(profile="demo")) == home.sessions


def test_a_patch_of_the_home_says_where_for_every_profile(home: Home) -> None:
    (home.path / "dsh.patch.yml").write_text(ROOT.format("!expr home('logs', profile)"))

    assert root_of(Place()) == home.path / "logs" / "headless"
    assert root_of(Place(profile="demo")) == home.path / "logs" / "demo"


def test_an_expression_reads_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.profile(ROOT.format("!expr env.LOGS"))
    (home.work / ".env").write_text("LOGS=/srv/project\n")

    assert root_of(Place()) == Path("/srv/project")

    monkeypatch.setenv("LOGS", "/srv/shell")
    assert root_of(Place()) == Path("/srv/shell")


def test_a_relative_root_is_meant_from_here(home: Home) -> None:
    home.profile(ROOT.format("logs"))

    assert root_of(Place()) == home.work / "logs"


def test_a_row_that_is_off_says_nothing(home: Home, tmp_path: Path) -> None:
    home.profile(
        "- id: session-persistence-jsonl\n  disabled: true\n"
        "- insert:\n"
        "    - id: mine\n      name: '@deepseek-ai/dsh-session-persistence-jsonl'\n"
        f"      config: {{root: {tmp_path / 'logs'}, compression: none}}\n"
    )

    assert root_of(Place()) == tmp_path / "logs"


def test_a_row_may_lie_in_a_group_or_an_included_file(home: Home, tmp_path: Path) -> None:
    (home.path / "profiles" / "headless").mkdir(parents=True)
    (home.path / "profiles" / "headless" / "more.yml").write_text(
        "- id: group\n  name: cordis:group\n  group: true\n  config:\n"
        f"    - {{id: mine, name: session-persistence-jsonl, config: {{root: {tmp_path / 'logs'}}}}}\n"
    )
    home.profile(
        "- id: session-persistence-jsonl\n  remove: true\n"
        "- insert:\n    - {id: inc, name: 'cordis:include', config: {path: more.yml}}\n"
    )

    assert root_of(Place()) == tmp_path / "logs"


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("- id: [\n", "dsh.patch.yml"),
        (ROOT.format("!expr svc.somewhere"), "somewhere"),
        (ROOT.format("!expr env.NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE"),
        (ROOT.format("12"), "names no place"),
        ("- id: session-persistence-jsonl\n  remove: true\n", "no row"),
        (
            "- insert:\n    - {id: two, name: session-persistence-jsonl, config: {root: /x}}\n",
            "more than one row",
        ),
    ],
)
def test_what_does_not_compose_is_told_once_and_the_home_is_looked_at(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes], patch: str, said: str
) -> None:
    home.profile(patch)

    assert root_of(Place()) == home.sessions

    err = capfdbinary.readouterr().err.decode().splitlines()
    assert len(err) == 2 and said in err[0]
    assert str(home.sessions) in err[1] and "--root" in err[1]

    with pytest.raises(CompositionError):
        open_place(Place(), is_certain=True)


def test_a_profile_that_does_not_exist_is_refused(home: Home) -> None:
    with pytest.raises(CompositionError, match="'headles' does not exist"):
        open_place(Place(profile="headles"))


@pytest.mark.parametrize("target", [".", "..", "./", "folder/", "/"])
def test_a_folder_is_no_log_and_is_called_so(home: Home, target: str) -> None:
    (home.work / "folder").mkdir()

    with pytest.raises((LogRefusal, OSError), match=r"folder|directory"):
        find_log(target, Place()).view()


def test_root_names_a_folder_and_outranks_the_profile(home: Home, tmp_path: Path) -> None:
    home.profile("- id: [\n")
    (tmp_path / "logs").mkdir()

    assert root_of(Place(root="../logs")) == tmp_path / "work" / ".." / "logs"


@pytest.mark.parametrize("name", ["nothing", "text", "pipe", "x" * 300])
def test_root_names_something_that_holds_sessions(home: Home, name: str) -> None:
    (home.work / "text").write_text("SQLite format 4")
    os.mkfifo(home.work / "pipe")

    with pytest.raises(UsageError, match="--root"):
        open_place(Place(root=name))


def test_looking_creates_nothing(home: Home) -> None:
    home.profile(ROOT.format("!expr home('logs')"))
    before = sorted(home.path.rglob("*"))

    open_place(Place()).list()
    with pytest.raises(PersistenceError):
        find_log("abc", Place())

    assert sorted(home.path.rglob("*")) == before


LOADED = """
import sys
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.whereabouts import open_place
open_place(Place())
print(" ".join(sorted(sys.modules)))
"""


@pytest.mark.parametrize("is_patched", [False, True])
def test_it_loads_neither_kernel_nor_event_loop_nor_plugins(home: Home, is_patched: bool) -> None:
    if is_patched:
        home.profile(ROOT.format("!expr home('logs')"))

    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=dict(os.environ)
    )

    loaded = set(done.stdout.split())
    assert done.stderr == ""
    assert {"asyncio", "httpx", "sqlite3", "dsh.kernel", "dsh.plugins", "typer"} & loaded == set()
    assert ("ruamel.yaml" in loaded, "simpleeval" in loaded) == (is_patched, is_patched)


# -- databases -----------------------------------------------------------------------------------------


def stored_in(path: Path, session_id: str, *, journal_mode: Literal["wal", "delete"] = "wal") -> None:
    backend = SqliteBackend(path, journal_mode=journal_mode)
    session = Session.seeded(SessionHeader(id=session_id, created_at=1, cwd=str(Path.cwd())), [])
    backend.append(session.header, session.entries())
    backend.close()


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_root_may_be_a_database_which_keeps_its_journal_mode(
    home: Home, journal_mode: Literal["wal", "delete"]
) -> None:
    path = home.work / "logs.db"
    stored_in(path, "abc", journal_mode=journal_mode)
    version = path.read_bytes()[18:20]

    backend = open_place(Place(root="logs.db"))
    log = find_stored("last", backend)

    assert (log.session_id, log.path, log.view().length) == ("abc", None, 1)
    assert backend.delete("abc")
    backend.close()
    assert path.read_bytes()[18:20] == version == {"wal": b"\2\2", "delete": b"\1\1"}[journal_mode]


def test_a_profile_may_keep_them_in_a_database(home: Home) -> None:
    home.profile(
        "- id: session-persistence-jsonl\n  disabled: true\n"
        "- insert:\n    - id: db\n      name: session-persistence-sqlite\n"
        "      config: {path: !expr \"home('logs.db')\", journalMode: delete}\n"
    )
    path = home.path / "logs.db"

    assert open_place(Place()).list().sessions == ()
    assert not path.exists()  # looking creates nothing

    backend = open_place(Place())
    session = Session.seeded(SessionHeader(id="abc", created_at=1, cwd=str(home.work)), [])
    backend.append(session.header, session.entries())
    backend.close()

    assert path.read_bytes()[18:20] == b"\1\1"
    assert found("last") == "abc"


def test_what_is_kept_in_memory_only_is_not_stored(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    home.profile(
        "- id: session-persistence-jsonl\n  disabled: true\n"
        "- insert:\n    - {id: db, name: session-persistence-sqlite, config: {path: ':memory:'}}\n"
    )

    assert root_of(Place()) == home.sessions
    assert b"in memory only" in capfdbinary.readouterr().err


def test_a_folder_that_may_not_be_looked_into_is_told_where_nothing_fits(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.store("session-abc")
    (project,) = {path for path in home.sessions.iterdir() if path.is_dir()}
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *rest: path != project and access(path, *rest))

    assert found("abc") == "session-abc"
    with pytest.raises(PersistenceError, match="could not be looked into") as caught:
        found("x")
    assert str(project) in caught.value.message and str(project) in caught.value.hint


def test_a_session_in_a_database_names_its_writer_too(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "private" / "s.db")
    backend.append(SessionHeader(id="running", created_at=1), ())
    told = find_stored("running", SqliteBackend(tmp_path / "private" / "s.db")).writer()
    assert told is not None and str(os.getpid()) in told
    backend.close()
    assert find_stored("running", backend).writer() is None
    backend.close()
