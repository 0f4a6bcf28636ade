"""`dsh sessions prune`: by the time of the last write, and only what nobody uses."""

import os
from pathlib import Path

import pytest

from dsh.cli.sessions.delete import prune
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.recency import age_ms
from dsh.cli.sessions.scope import Scope
from dsh.errors import UsageError
from dsh.persistence.lock import OwnerLock
from tests.cli.sessions.home import HOUR_S, Call, Home, Told

HERE = Place()
DAY_S = 24 * HOUR_S


def pruned(call: Call, older_than: str = "1d", *, everywhere: bool = False, dry_run: bool = False) -> Told:
    return call(lambda: prune(older_than, HERE, Scope(everywhere), dry_run=dry_run, yes=True))


def test_those_of_this_directory_go_that_were_not_written_for_so_long(home: Home, call: Call) -> None:
    home.store("old", age_s=DAY_S + 60)
    home.store("young", age_s=DAY_S - 60)
    home.store("elsewhere", age_s=9 * DAY_S, cwd="/srv/other")
    home.store("nowhere", age_s=9 * DAY_S, cwd=None)

    told = pruned(call)

    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("deleted: old  1d ago  ")
    assert home.ids() == ["elsewhere", "nowhere", "young"]

    assert pruned(call, everywhere=True).code == 0
    assert home.ids() == ["young"]


def test_what_counts_is_the_last_write_and_not_when_it_began(home: Home, call: Call) -> None:
    """The header of each is years old."""
    home.store("resumed", age_s=60)

    told = pruned(call)

    assert told == (0, "", "no session is older than 1d\n")
    assert home.ids() == ["resumed"]


def test_what_a_killed_process_left_unfinished_goes_too(home: Home, call: Call) -> None:
    home.store("young")
    (log,) = home.sessions.rglob("session.jsonl*")
    folder = log.parent.with_name("child")
    folder.mkdir()
    for name in ("owner.lock", "session.jsonl.zstd.0123456789ab.tmp"):
        (folder / name).write_text("said in confidence")

    assert pruned(call).err == "no session is older than 1d\n" and folder.exists()
    os.utime(folder, (5, 5))
    assert "removed" not in pruned(call, dry_run=True).err and folder.exists()

    told = pruned(call)
    assert (told.code, told.out) == (0, "")
    assert told.err.endswith("removed what 1 killed process left unfinished\n")
    assert not folder.exists() and home.ids() == ["young"]


def test_a_session_from_the_future_is_young(home: Home, call: Call) -> None:
    """SL-09."""
    home.store("ahead", age_s=-5 * DAY_S)

    pruned(call, "0m")

    assert home.ids() == ["ahead"]


def test_a_dry_run_only_says_what_would_go(home: Home, call: Call) -> None:
    home.store("old", age_s=2 * DAY_S)
    home.store("older", age_s=3 * DAY_S)
    before = [(path, path.lstat().st_mtime_ns) for path in sorted(home.path.rglob("*"))]

    told = call(lambda: prune("1d", HERE, Scope(), dry_run=True, yes=False))

    assert (told.code, told.err) == (0, "")
    assert [row.split()[3] for row in told.out.splitlines()] == ["old", "older"]
    assert all(row.startswith("would be deleted: ") for row in told.out.splitlines())
    assert [(path, path.lstat().st_mtime_ns) for path in sorted(home.path.rglob("*"))] == before


def test_what_somebody_has_open_is_told_and_stays(home: Home, call: Call) -> None:
    path = home.store("open", age_s=2 * DAY_S)
    home.store("old", age_s=3 * DAY_S)
    lock = OwnerLock.acquire(path.parent)

    told = pruned(call)

    lock.release()
    assert told.code == 1 and "open for writing" in told.err
    assert home.ids() == ["open"]


def test_what_cannot_be_listed_is_told_and_stays(home: Home, call: Call) -> None:
    path = home.store("broken", age_s=9 * DAY_S)
    path.write_bytes(b"junk\n")
    os.utime(path, (0, 0))
    home.store("old", age_s=2 * DAY_S)

    told = pruned(call)

    assert told.code == 0 and str(path) in told.err
    assert home.ids() == ["broken"]


def test_one_that_was_written_while_the_person_thought_about_it_stays(
    home: Home, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.store("old", age_s=2 * DAY_S)

    class Slow:
        """Standard input of a person; the session is resumed before the answer."""

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            path.write_bytes(path.read_bytes() + b"\n")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())
    monkeypatch.setattr("sys.stderr", Slow())

    told = call(lambda: prune("1d", HERE, Scope(), dry_run=False, yes=False))

    assert told.code == 1 and "was written meanwhile" in told.err
    assert home.ids() == ["old"]


def test_one_that_is_gone_meanwhile_is_no_failure(
    home: Home, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.store("old", age_s=2 * DAY_S)

    class Slow:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            path.unlink()
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())
    monkeypatch.setattr("sys.stderr", Slow())

    told = call(lambda: prune("1d", HERE, Scope(), dry_run=False, yes=False))

    assert told.code == 0 and told.out == ""


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90m", 5_400_000), ("12h", 43_200_000), ("30d", 2_592_000_000), ("2w", 1_209_600_000), ("0d", 0)],
)
def test_an_age_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert age_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "d",
        "30 d",
        "-1d",
        "1.5h",
        "1h30m",
        "30D",
        "1y",
        "٣d",
        "1e3d",
        "30d\n",
        "9" * 16 + "d",
        "yesterday",
    ],
)
def test_anything_else_is_refused_with_the_grammar(home: Home, text: str) -> None:
    home.store("old", age_s=2 * DAY_S)

    with pytest.raises(UsageError, match="--older-than") as caught:
        prune(text, HERE, Scope(True), dry_run=False, yes=True)

    assert "30d" in caught.value.hint
    assert home.ids() == ["old"]


def test_an_age_beyond_the_calendar_fits_nothing(home: Home, call: Call) -> None:
    home.store("old", age_s=2 * DAY_S)

    assert pruned(call, "9" * 15 + "w").code == 0
    assert home.ids() == ["old"]


def test_without_a_terminal_yes_has_to_be_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.store("old", age_s=2 * DAY_S)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)

        with pytest.raises(UsageError):
            prune("1d", HERE, Scope(), dry_run=False, yes=False)

    assert home.ids() == ["old"]
