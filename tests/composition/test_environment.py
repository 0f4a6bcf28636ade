"""The `.env` grammar, the names a file may not set, and which layer wins."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.environment import export, is_forbidden, load_environment, parse_env
from dsh.composition.home import HomePaths, check_home, home_label, home_path
from dsh.errors import CompositionError
from tests.composition.layers import write


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=1", {"A": "1"}),
        ("export A = 1 ", {"A": "1"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=", {"A": ""}),
        ("no assignment\n=x\nA=1", {"A": "1"}),
        ("# A=1\nB=2", {"B": "2"}),
        ("A=x#y", {"A": "x"}),
        ("A=x # y", {"A": "x"}),
        ("A='x#y' rest", {"A": "x#y"}),
        ('A="x#y"', {"A": "x#y"}),
        ("A=`x#y`", {"A": "x#y"}),
        ('A="a\\nb\\tc$D"', {"A": "a\nb\\tc$D"}),
        ("A='a\\nb'", {"A": "a\\nb"}),
        ("A='two\nlines' tail\nB=1", {"A": "two\nlines", "B": "1"}),
        ('A="a\\"b"', {"A": "a\\"}),
        ("A='open\nB=1", {"A": "'open", "B": "1"}),
        ('A="it\'s"', {"A": "it's"}),
        ("A=a=b", {"A": "a=b"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A='", {"A": "'"}),
    ],
)
def test_the_grammar(text: str, values: dict[str, str]) -> None:
    assert parse_env(text) == values


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nA=1\n\nPATH=x", 4),
        ("A='one\ntwo\nthree' tail\r\nPATH=x", 4),
        ('A="x\n"\n# c\nexport PATH = x', 4),
        ("A='open\nPATH=x", 2),
        ("PATH=x\nPATH=y", 1),
    ],
)
def test_a_name_is_told_with_the_line_of_its_assignment(tmp_path: Path, text: str, line: int) -> None:
    path = write(tmp_path / ".env", text)
    with pytest.raises(CompositionError) as caught:
        load_environment(tmp_path, tmp_path / "home", {})
    assert str(caught.value).startswith(f'{path}:{line}: sets "PATH"')
    assert "remove the line" in caught.value.hint


def test_a_key_that_stands_where_a_name_belongs_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path / ".env", "sk-12345678abcd x=1\n" + "y" * 500 + "-=1")
    _, warnings = load_environment(tmp_path, tmp_path / "home", {})
    assert "12345678" not in warnings[0]
    assert len(warnings[1]) < 200 + len(str(tmp_path))


@given(st.text(alphabet="AB=#'\"`\\n \n\r export$", max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert all(name and "=" not in name for name in parse_env(text))


NAMES = """
    PATH HOME USERPROFILE SHELL NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
    BASH_ENV ENV SHELLOPTS BASHOPTS PERL5OPT PERL5LIB PYTHONSTARTUP PYTHONPATH PYTHONHOME RUBYOPT RUBYLIB
    JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PAGER
    GIT_EDITOR GIT_ASKPASS SSH_ASKPASS GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_COUNT EDITOR VISUAL
    PAGER BROWSER DEEPSEEK_BASE_URL DEEPSEEK_SEARCH_BASE_URL SSL_CERT_FILE SSL_CERT_DIR HTTP_PROXY HTTPS_PROXY
    ALL_PROXY NO_PROXY REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_TLS_REJECT_UNAUTHORIZED
    PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS VIRTUAL_ENV
    PYTHONUSERBASE GIT_CONFIG_PARAMETERS GIT_EXEC_PATH RIPGREP_CONFIG_PATH
    DSH_X XDG_DATA_HOME DYLD_INSERT_LIBRARIES BASH_FUNC_x%% OPENAI_BASE_URL
"""


@pytest.mark.parametrize("name", [spelled for name in NAMES.split() for spelled in (name, name.lower())])
def test_names_that_only_the_launching_environment_may_set(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / ".env", f"OK=1\n{name}=x")
    with pytest.raises(CompositionError) as caught:
        load_environment(tmp_path, tmp_path / "home", {})
    assert str(caught.value) == f'{path}:2: sets "{name}", which only the launching environment may set'
    assert caught.value.exit_code == 3


def test_a_wrong_name_in_the_home_s_file_is_found_though_the_project_s_is_in_order(tmp_path: Path) -> None:
    write(tmp_path / "ws/.env", "OK=1")
    path = write(tmp_path / "home/.env", "PATH=x")
    with pytest.raises(CompositionError, match=f"{path}:1: sets"):
        load_environment(tmp_path / "ws", tmp_path / "home", {})


def test_keys_are_allowed() -> None:
    assert not any(map(is_forbidden, ("DEEPSEEK_API_KEY", "PATHS", "MY_HOME", "BASE_URL_X")))


def test_inherited_over_project_over_home(tmp_path: Path) -> None:
    project = write(tmp_path / "ws/.env", "A=project\nB=project\nE=project")
    home = write(tmp_path / "home/.env", "A=home\nB=home\nC=home")
    made, warnings = load_environment(tmp_path / "ws", tmp_path / "home", {"A": "process", "E": ""})
    assert warnings == []
    assert dict(made.mapping()) == {"A": "process", "B": "project", "C": "home", "E": ""}
    found = [made.get(name) for name in "ABCE"]
    assert [(f.value, f.source, f.path) for f in found if f] == [
        ("process", "process", None),
        ("project", "project-env", str(project)),
        ("home", "user-env", str(home)),
        ("", "process", None),
    ]
    assert made.get("D") is None
    only_home = made.get_from("A", ("user-env",))
    assert only_home is not None
    assert only_home.value == "home"


def test_one_folder_for_both_is_read_once_as_the_project_s(tmp_path: Path) -> None:
    write(tmp_path / ".env", "A=1")
    made, _ = load_environment(tmp_path, tmp_path / "x" / "..", {})
    (tmp_path / "x").mkdir()
    made, _ = load_environment(tmp_path, tmp_path / "x" / "..", {})
    assert made.get_from("A", ("user-env",)) is None
    assert made.get("A") is not None


def test_export_adds_and_never_replaces(tmp_path: Path) -> None:
    write(tmp_path / ".env", "A=file\nB=file")
    environ = {"A": ""}
    made, _ = load_environment(tmp_path, tmp_path / "home", environ)
    export(made, environ)
    assert environ == {"A": "", "B": "file"}


def test_what_cannot_be_read_or_is_no_name_is_warned_about(tmp_path: Path) -> None:
    write(tmp_path / "ws/.env", "A B=1\n1X=2\nOK=3")
    (tmp_path / "home/.env").mkdir(parents=True)
    made, warnings = load_environment(tmp_path / "ws", tmp_path / "home", {})
    assert dict(made.mapping()) == {"OK": "3"}
    env = tmp_path / "ws/.env"
    assert warnings[:2] == [
        f"{env}:1: skipped 'A B', which is not a variable name",
        f"{env}:2: skipped '1X', which is not a variable name",
    ]
    assert warnings[2].startswith("failed to load .env: ")
    (tmp_path / "ws/.env").write_bytes(b"A=\xff")
    assert "not UTF-8" in load_environment(tmp_path / "ws", tmp_path / "none", {})[1][0]


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_an_env_file_is_never_waited_for_and_never_fills_the_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".env"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.write_text("A=1\n" * 300_000)
    made, [warning] = load_environment(tmp_path, tmp_path / "home", {})
    assert dict(made.mapping()) == {}
    assert warning.startswith(f"failed to load .env: {path}: ")


def test_a_value_that_no_process_could_have_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / ".env", "A=x\0y\nB=1")
    made, warnings = load_environment(tmp_path, tmp_path / "home", {})
    assert dict(made.mapping()) == {"B": "1"}
    assert warnings == [f"{path}:1: skipped A, whose value holds a zero byte"]


@pytest.mark.parametrize(
    ("home", "says"),
    [("file", "is not a directory"), ("file/below", "Not a directory"), ("x" * 300, "File name too long")],
)
def test_a_home_that_can_hold_nothing_is_refused(tmp_path: Path, home: str, says: str) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(CompositionError, match=says) as caught:
        check_home(tmp_path / home)
    assert str(tmp_path / home) in caught.value.message
    assert "DSH_HOME" in caught.value.hint


def test_a_home_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    check_home(tmp_path / "none" / "yet")
    assert list(tmp_path.iterdir()) == []


def test_the_home_is_configured_or_in_the_environment_or_the_default() -> None:
    environ = {"HOME": "/u", "DSH_HOME": "/d"}
    assert home_path(environ, "/c") == Path("/c")
    assert home_path(environ) == Path("/d")
    assert home_path({"HOME": "/u", "DSH_HOME": "  "}) == Path("/u/.dsh")
    assert home_path({"HOME": "/u", "DSH_HOME": "~/x"}) == Path("/u/x")
    assert home_path({"HOME": "/u", "DSH_HOME": "~"}) == Path("/u")
    assert home_path({"HOME": "/u", "DSH_HOME": "rel"}).is_absolute()


def test_the_home_is_shown_without_its_path() -> None:
    assert home_label({"DSH_HOME": "/secret"}) == "$DSH_HOME"
    assert home_label({"DSH_HOME": " "}) == "~/.dsh"
    assert HomePaths(Path("/h"))("sessions", "a") == Path("/h/sessions/a")
    assert HomePaths(Path("/h"))() == Path("/h")
