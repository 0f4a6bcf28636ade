"""`dsh sessions list`: which sessions, in which order and form; a broken log hides no other."""

import json
import os
import pty
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.app import run
from dsh.cli.columns import width
from dsh.cli.sessions.delete import delete, prune
from dsh.cli.sessions.described import short_ids, size_text
from dsh.cli.sessions.fork import fork
from dsh.cli.sessions.listing import aligned, show
from dsh.cli.sessions.pack import pack
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.recency import ago
from dsh.cli.sessions.scope import Scope
from dsh.errors import UsageError
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.projections import sidecar_path, write_rows
from dsh.session.projection.fold import Row
from dsh.session.projection.title import TITLE
from dsh.testing.workspace import Workspace
from tests.cli.sessions.home import CREATED, HOUR_S, Call, Home

HERE = Place()


def listed(call: Call, **options: Any) -> Any:
    limit = options.pop("limit", 0)
    told = call(lambda: show(HERE, Scope(**options), limit=limit, as_json=True))
    assert (told.code, told.err) == (0, "")
    return json.loads(told.out)


def ids(call: Call, **options: Any) -> list[str]:
    return [one["id"] for one in listed(call, **options)["sessions"]]


def title(path: Path, text: str, **changes: Any) -> None:
    """Put a title into the cache beside a log."""
    header = read_log(path).header
    write_rows(sidecar_path(path), header, {"title": Row(ver=TITLE.version, seq=1, val=text)})


def test_those_of_this_directory_come_the_last_written_first(home: Home, call: Call) -> None:
    home.store("b", age_s=2 * HOUR_S)
    home.store("a", age_s=HOUR_S, is_plain=False)
    home.store("c", age_s=3 * HOUR_S)
    home.store("elsewhere", cwd="/srv/other")
    home.store("nowhere", cwd=None)

    assert ids(call) == ["a", "b", "c"]
    assert ids(call, limit=2) == ["a", "b"]
    assert sorted(ids(call, everywhere=True)) == ["a", "b", "c", "elsewhere", "nowhere"]


def test_those_of_another_directory_are_listed_by_its_name_also_when_it_is_gone(
    home: Home, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    home.store("behind", cwd=str(tmp_path / "real"))
    home.store("gone", cwd="/srv/gone")
    home.store("here")

    assert ids(call, cwd=str(tmp_path / "link")) == ["behind"]
    assert ids(call, cwd="/srv/./gone/") == ["gone"]
    assert ids(call, cwd=".") == ["here"]
    assert call(lambda: show(HERE, Scope(cwd="/srv/none"), limit=0, as_json=False)) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "--all", "-C", "x"], "--all and --cwd exclude each other"),
        (["prune", "--older-than", "1d", "--all", "-C", "x"], "--all and --cwd exclude each other"),
        (["pack", "a", "--all"], "ids and --all exclude each other"),
        (["pack", "a", "--cwd", "x"], "ids and --cwd exclude each other"),
    ],
)
def test_what_names_sessions_in_two_ways_is_a_wrong_command_line(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(["sessions", *words])


def test_the_object_holds_the_header_and_what_the_storage_knows(home: Home, call: Call) -> None:
    path = home.store(
        "child", parentSession="mother", seedLength=2, origin="subagent", agentPreset="code", age_s=HOUR_S
    )
    title(path, "fix the test")

    (entry,) = listed(call)["sessions"]

    found = path.stat()
    assert entry == {
        "id": "child",
        "createdAt": CREATED,
        "modifiedAt": found.st_mtime_ns // 1_000_000,
        "cwd": str(home.work),
        "title": "fix the test",
        "size": found.st_size,
        "place": str(path),
        "path": str(path),
        "parentSession": "mother",
        "seedLength": 2,
        "origin": "subagent",
        "delegationDepth": 0,
        "agentPreset": "code",
    }


def test_a_pipe_gets_tabs_and_whole_values(home: Home, call: Call) -> None:
    path = home.store("session-" + "a" * 60, parentSession="mother")
    title(path, "a title " * 20)

    told = call(lambda: show(HERE, Scope(), limit=0, as_json=False))

    session_id, written, size, cwd, parent, shown = told.out.removesuffix("\n").split("\t")
    assert (told.code, told.err) == (0, "")
    assert (session_id, cwd, parent) == ("session-" + "a" * 60, str(home.work), "mother")
    assert int(size) == path.stat().st_size
    assert written.startswith(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(path.stat().st_mtime)))
    assert shown == "a title " * 20


def test_nothing_stored_is_nothing_printed(home: Home, call: Call) -> None:
    assert call(lambda: show(HERE, Scope(True), limit=0, as_json=False)) == (0, "", "")
    assert listed(call) == {"sessions": [], "problems": []}


def test_a_bad_log_is_told_and_hides_no_other(home: Home, call: Call) -> None:
    """SL-08: two healthy logs among everything that can lie in their place."""
    home.store("healthy-1")
    home.store("healthy-2", is_plain=False)
    project = home.store("empty").parent.parent
    (project / "empty" / "session.jsonl").write_bytes(b"")
    (project / "no-header").mkdir()
    (project / "no-header" / "session.jsonl").write_bytes(b"not JSON\n")
    (project / "folder" / "session.jsonl").mkdir(parents=True)
    (project / "dangling").mkdir()
    (project / "dangling" / "session.jsonl").symlink_to("/nowhere/at/all")
    home.store("other-id").parent.rename(project / "renamed")
    (project / "nothing-yet").mkdir()
    before = sorted((path, path.lstat()) for path in home.path.rglob("*"))

    told = call(lambda: show(HERE, Scope(True), limit=0, as_json=False))

    assert told.code == 0
    assert {row.split("\t")[0] for row in told.out.splitlines()} == {"healthy-1", "healthy-2"}
    bad = ("empty", "no-header", "folder", "dangling", "renamed")
    lines = told.err.splitlines()
    assert len(lines) == len(bad)
    for name in bad:
        assert sum(f"/{name}/session.jsonl: " in one for one in lines) == 1
    problems = listed(call)["problems"]
    assert [f"dsh: {one['code']}: {one['place']}: {one['reason']}" for one in problems] == lines
    after = sorted((path, path.lstat()) for path in home.path.rglob("*"))
    assert [path for path, _ in after] == [path for path, _ in before]
    assert [found.st_mtime_ns for _, found in after] == [found.st_mtime_ns for _, found in before]


@pytest.mark.parametrize(
    "body",
    [
        lambda: show(HERE, Scope(True), limit=0, as_json=True),
        lambda: prune("1d", HERE, Scope(True), dry_run=False, yes=True),
        lambda: pack([], HERE, Scope(True)),
        lambda: pack(["a"], HERE, Scope()),
        lambda: delete(["a"], HERE, yes=True),
        lambda: fork("a", HERE, at=0),
    ],
)
def test_a_place_that_cannot_be_read_is_named(home: Home, call: Call, body: Callable[[], int]) -> None:
    home.sessions.write_text("no folder")

    told = call(body)

    assert (told.code, told.out) == (1, "")
    assert told.err.splitlines()[0] == f"dsh: SESSION_UNREADABLE: {home.sessions}: Not a directory"


def test_a_log_of_another_format_is_no_damage(home: Home, call: Call) -> None:
    """RF-06."""
    path = home.store("newer")
    path.write_bytes(path.read_bytes().replace(b'"version":0', b'"version":1'))

    (problem,) = listed(call)["problems"]

    assert "format 1" in problem["reason"] and "corrupt" not in problem["reason"]


def test_a_cache_of_another_life_of_the_id_gives_no_title(home: Home, call: Call) -> None:
    path = home.store("again")
    title(path, "of an earlier session")
    sidecar = sidecar_path(path)
    sidecar.write_bytes(sidecar.read_bytes().replace(str(CREATED).encode(), str(CREATED - 1).encode()))

    assert listed(call)["sessions"][0]["title"] is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"version":1,"rows":3}', b"[" * 100_000])
def test_a_cache_that_is_broken_gives_no_title(home: Home, call: Call, data: bytes) -> None:
    sidecar_path(home.store("a")).write_bytes(data)

    assert listed(call)["sessions"][0]["title"] is None


def test_text_of_a_log_cannot_write_on_the_terminal(home: Home, call: Call) -> None:
    path = home.store("a\x1b[31m", cwd="/srv/\x07\n", parentSession="\u202e")
    title(path, "one\ttwo\x1b]0;x\x07")

    told = call(lambda: show(HERE, Scope(True), limit=0, as_json=False))

    assert told.out.count("\t") == 5 and told.out.count("\n") == 1
    assert not {"\x1b", "\x07", "\u202e"} & set(told.out)


def test_a_title_shows_no_key(home: Home, call: Call) -> None:
    title(home.store("a"), "use sk-0123456789abcdef0123456789abcdef")

    told = call(lambda: show(HERE, Scope(True), limit=0, as_json=False))

    assert "0123456789abcdef" not in told.out and "use " in told.out


# -- on a terminal -------------------------------------------------------------------------------------


def on_terminal(workspace: Workspace, *words: str, columns: int = 80) -> list[str]:
    """What a command shows on a terminal of so many columns."""
    leader, follower = pty.openpty()
    workspace.env.update(COLUMNS=str(columns), TERM="dumb")
    process = workspace.start(*words, stdout=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # how the last reader of a terminal learns that nobody writes any more
            break
        if not data:
            break
        shown += data
    os.close(leader)
    assert process.wait(60) == 0
    assert process.stderr is not None
    process.stderr.close()
    return shown.decode().replace("\r\n", "\n").splitlines()


def test_a_terminal_gets_columns_of_its_width(home: Home) -> None:
    workspace = Workspace(home.work.parent)
    title(home.store("session-12345678-aaaa", age_s=3 * HOUR_S + 60), "第一个会话 " * 20)
    home.store("session-12345678-bbbb", age_s=3 * 24 * HOUR_S, parentSession="session-12345678-aaaa")
    home.store("x", age_s=30, cwd="/srv/other")

    here = on_terminal(workspace, "sessions", "list")
    everywhere = on_terminal(workspace, "sessions", "list", "--all", "-n", "1")

    assert here[0].split() == ["ID", "WRITTEN", "SIZE", "FROM", "TITLE"]
    assert here[1].split()[:3] == ["12345678-a", "3h", "ago"]
    assert here[1].endswith("…")
    assert max(map(width, here)) <= 80
    assert here[2].split()[:3] == ["12345678-b", "3d", "ago"]
    assert here[2].endswith("  fork of 12345678-a")
    assert len(here) == 3
    assert everywhere[0].split() == ["ID", "WRITTEN", "SIZE", "DIRECTORY", "TITLE"]
    assert everywhere[1].split() == ["x", "now", everywhere[1].split()[2], "B", "/srv/other"]


@pytest.mark.parametrize("columns", [76, 80, 200])
def test_a_table_of_every_directory_fits_the_terminal(home: Home, columns: int) -> None:
    workspace = Workspace(home.work.parent)
    path = home.store("session-12345678", cwd="/srv/" + "long/" * 20, age_s=HOUR_S)
    title(path, "A title that goes on and on")
    home.store("session-fork5678", parentSession="session-12345678")

    shown = on_terminal(workspace, "sessions", "list", "--all", columns=columns)

    assert max(map(width, shown)) <= columns
    assert "fork of 12345678" in shown[1]
    assert "long/long/ " in shown[2]  # the end of a path says more than its beginning


def test_columns_count_wide_characters_twice() -> None:
    assert aligned([["一", "b"], ["abc", "d"]], 80) == ["一   b", "abc  d"]


# -- words ---------------------------------------------------------------------------------------------


@given(
    st.sets(st.text(st.sampled_from("ab-ses"), min_size=1, max_size=14) | st.uuids().map("session-{}".format))
)
def test_a_short_id_fits_one_session_only(stored: set[str]) -> None:
    short = short_ids(stored)

    assert set(short) == stored
    for session_id, shown in short.items():
        exact = [one for one in stored if one == shown]
        fits = [one for one in stored if one.startswith(shown)]
        behind = [one for one in stored if one.startswith(f"session-{shown}")]
        assert (exact or fits or behind) == [session_id]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9_949, "9.9 kB"), (9_960, "10 kB"), (999_499, "999 kB"),
     (999_500, "1.0 MB"), (5 * 10**9, "5.0 GB"), (10**19, "10000 PB")],
)  # fmt: skip
def test_sizes_are_short(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3600, "now"), (59, "now"), (60, "1m ago"), (3_599, "59m ago"), (3_600, "1h ago"), (86_400, "1d ago"),
     (63 * 86_400 - 1, "62d ago")],
)  # fmt: skip
def test_ages_are_short_and_never_negative(seconds: int, text: str) -> None:
    """SL-09: what was written in the future is new."""
    assert ago(CREATED - seconds * 1000, CREATED) == text


@pytest.mark.parametrize(("zone", "date"), [("UTC0", "2023-11-14"), ("LINT-14", "2023-11-15")])
def test_what_is_long_ago_has_the_date_of_its_reader(
    zone: str, date: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        told = ago(CREATED, CREATED + 64 * 86_400_000)
    time.tzset()
    assert told == date
    assert ago(-(10**18), CREATED) == f"{-(10**18)} ms"[:10]
