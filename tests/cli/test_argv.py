"""Tests of the command line's first split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.argv import Invocation, parse
from dsh.errors import UsageError


def boot(profile: str, *rest: str, patches: tuple[str, ...] = (), cwd: str | None = None) -> Invocation:
    return Invocation("boot", profile, patches, cwd, rest)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["run", "do", "it"], boot("headless", "do", "it")),
        (["run"], boot("headless")),
        (["run", "--help"], boot("headless", "--help")),
        (["run", "--profile", "demo", "x"], boot("demo", "x")),
        (
            ["run", "-C", "d", "--patch", "a", "x", "--patch", "b"],
            boot("headless", "x", "--patch", "b", patches=("a",), cwd="d"),
        ),
        (["--profile", "demo", "Run: echo hello"], boot("demo", "Run: echo hello")),
        (["--profile=demo", "x"], boot("demo", "x")),
        (["--profile", "a", "--profile", "b", "x"], boot("b", "x")),
        (["--profile", "a", "--patch", "1", "--patch=2", "x"], boot("a", "x", patches=("1", "2"))),
        (["--profile", "a", "--cwd=d"], boot("a", cwd="d")),
        (["--profile", "a", "--unknown", "--patch", "p"], boot("a", "--unknown", "--patch", "p")),
        (["--profile", "a", "--dump-config=1"], boot("a", "--dump-config=1")),
        (["--profile", "a", "--prof", "b"], boot("a", "--prof", "b")),
        (["--profile", "a", "-h"], boot("a", "-h")),
        (["--profile", "a", "--", "--help"], boot("a", "--help")),
        (["--profile", "a", "--", "--", "--help"], boot("a", "--", "--help")),
        (["--profile", "a", "t", "--", "u"], boot("a", "t", "--", "u")),
        (["--profile", "a", "sessions"], boot("a", "sessions")),
        (["--profile", "a", "--", "run"], boot("a", "run")),
        (["--profile", "a", ""], boot("a", "")),
        (["sessions", "inspect", "x"], Invocation("command", rest=("sessions", "inspect", "x"))),
        (["sessions", "--help"], Invocation("command", rest=("sessions", "--help"))),
        (["--dump-config"], Invocation("dump", "headless")),
        (["run", "--", "-x"], boot("headless", "--", "-x")),
        (["run", "--patch", "p", "--", "--help"], boot("headless", "--", "--help", patches=("p",))),
        (["run", "--dump-config"], Invocation("dump", "headless")),
        (["--dump-config", "--profile", "demo", "--patch", "p"], Invocation("dump", "demo", ("p",))),
        (["--dump-default-config"], Invocation("dump-default", "headless")),
        (["--dump-config", "--lock"], Invocation("dump", "headless", is_lock=True)),
        (["--dump-config", "--locked", "l"], Invocation("dump", "headless", locked="l")),
        (["run", "--locked", "l", "x"], boot("headless", "x")._replace(locked="l")),
        (["--profile", "a", "--locked=k", "--locked=l"], boot("a")._replace(locked="l")),
        (["--profile", "a", "x", "--locked", "l"], boot("a", "x", "--locked", "l")),
        (["explain", "llm", "--json"], Invocation("command", rest=("explain", "llm", "--json"))),
        (["replay", "last", "--json"], Invocation("command", rest=("replay", "last", "--json"))),
        (["--help"], Invocation("help")),
        (["-h"], Invocation("help")),
    ],
)
def test_first_word_that_is_no_launcher_flag_starts_the_app_arguments(
    line: list[str], expected: Invocation
) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        ["-V"],
        ["--version"],
        ["--profile", "a", "-V"],
        ["--dump-config", "--dump-default-config", "-V"],
        ["--help", "-V"],
        ["-V", "task"],
    ],
)
def test_version_wins_over_every_other_launcher_flag(line: list[str]) -> None:
    assert parse(line).action == "version"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "--profile NAME is required"),
        (["some task"], "no command 'some task'"),
        (["batch"], "no command 'batch'"),
        (["--", "run"], "run is a command only as the first word"),
        (["-C", "d", "sessions", "list"], "sessions is a command only as the first word"),
        (["--frob"], "unknown option '--frob'"),
        (["--profile"], "--profile NAME needs a value"),
        (["--profile="], "not empty"),
        (["--profile", ""], "not empty"),
        (["--profile", "a", "--patch"], "--patch FILE needs a value"),
        (["--profile", "a", "--patch", ""], "not empty"),
        (["--profile", "a", "-C"], "-C DIR needs a value"),
        (["--patch", "p", "task"], "no command 'task'"),
        (["--dump-config", "--dump-default-config"], "exclude each other"),
        (["--dump-config", "task"], "takes no further arguments, got 'task'"),
        (["--dump-default-config", "--patch", "p"], "--patch does not fit"),
        (["--dump-default-config", "--locked", "l"], "--locked does not fit"),
        (["--dump-default-config", "--lock"], "--lock is a form of --dump-config"),
        (["--profile", "a", "--lock", "task"], "--lock is a form of --dump-config"),
        (["--profile", "a", "--locked"], "--locked FILE needs a value"),
        (["-C", "d", "explain"], "explain is a command only as the first word"),
    ],
)
def test_wrong_lines_are_usage_errors(line: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_task_without_run_points_to_run() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["fix the bug"])
    assert "dsh run" in caught.value.hint


@given(st.lists(st.sampled_from(["--profile", "a", "-C", "--", "-h", "-V", "--patch", "", "run", "--x=y"])))
def test_parsing_is_total(line: list[str]) -> None:
    try:
        found = parse(line)
    except UsageError:
        return
    assert found.action != "boot" or found.profile


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["expalin"], "did you mean 'explain'?"),
        (["session"], "did you mean 'sessions'?"),
        (["plugn", "list"], "did you mean 'plugin'?"),
        (["rnu", "do it"], "did you mean 'run'?"),
        (["--dumpconfig"], "did you mean '--dump-config'?"),
        (["--profil=demo", "x"], "did you mean '--profile'?"),
        (["--patch", "p", "--lokced", "l"], "did you mean '--locked'?"),
    ],
)
def test_a_slip_names_the_closest_word(line: list[str], meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert caught.value.hint.startswith(meant)


@pytest.mark.parametrize("line", [["batch"], ["--frob"], ["fix the failing test"], ["x" * 1_000_000], ["-x"]])
def test_what_is_like_no_word_names_none(line: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert "did you mean" not in caught.value.hint
