"""One run for each exit code, with what is printed where."""

from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text

Answering = Callable[..., Model]


def last_reason(space: Workspace) -> dict[str, object]:
    [log] = space.logs()
    last = log_rows(log)[-1]
    assert last["type"] == "turn/end"
    reason: dict[str, object] = last["data"]["reason"]
    return reason


def test_success_prints_the_answer_and_nothing_on_standard_error(
    space: Workspace, answering: Answering
) -> None:
    model = answering(bash("echo proof"), text("It said ", "proof."))
    done = space.run("run", "say", "it")
    assert (done.code, done.stdout, done.stderr) == (0, "It said proof.\n", "")
    assert len(model.bodies()) == 2
    [result] = [m for m in model.bodies()[1]["messages"] if m["role"] == "tool"]
    assert "proof" in result["content"]
    assert last_reason(space) == {"kind": "completed"}


def test_run_is_an_alias_of_the_headless_profile(space: Workspace, answering: Answering) -> None:
    answering(text("ok"))
    assert space.run("run", "x").stdout == space.run("--profile", "headless", "x").stdout == "ok\n"
    assert len(space.logs()) == 2


def test_provider_failure_is_1_with_one_line(space: Workspace, answering: Answering) -> None:
    answering(failure(400, "Invalid"))
    done = space.run("run", "x")
    assert (done.code, done.stdout, done.stderr) == (1, "\n", "dsh: INVALID_REQUEST: Invalid\n")
    assert last_reason(space)["kind"] == "error"


def test_reply_cut_by_its_limit_is_1_and_says_so(space: Workspace, answering: Answering) -> None:
    answering(text("A long answer that is", finish="length"))
    done = space.run("run", "x")
    assert (done.code, done.stdout) == (1, "A long answer that is\n")
    assert len(done.errors) == 1 and "limit" in done.stderr


@pytest.mark.parametrize(
    "words", [["run"], ["run", " "], ["--profile", "headless", ""], ["run", "--nope", "x"]]
)
def test_wrong_command_line_of_the_app_is_2_and_does_nothing(
    space: Workspace, answering: Answering, words: list[str]
) -> None:
    model = answering(text("never"))
    done = space.run(*words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert space.logs() == [] and model.bodies() == []


@pytest.mark.parametrize("words", [["fix the bug"], [], ["--profile"], ["--nope"], ["sessions", "nope"]])
def test_wrong_command_line_of_the_launcher_is_2(space: Workspace, words: list[str]) -> None:
    done = space.run(*words)
    assert (done.code, done.stdout) == (2, "")
    assert done.errors[0].startswith("error: ") and done.errors[1].startswith("hint: ")


def test_help_of_the_app_starts_nothing(space: Workspace, answering: Answering) -> None:
    model = answering(text("never"))
    for words in (["run", "--help"], ["--profile", "headless", "--", "-h"]):
        done = space.run(*words)
        assert (done.code, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: dsh run")
    assert space.logs() == [] and model.bodies() == []


def test_missing_key_is_4_and_says_how_to_set_it(space: Workspace) -> None:
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": None})
    assert (done.code, done.stdout) == (4, "\n")
    [line] = done.errors
    assert line.startswith("dsh: MISSING_CREDENTIAL: ")
    assert "DEEPSEEK_API_KEY" in line and "$DSH_HOME/.credentials.yaml" in line and "demo" in line
    assert last_reason(space)["kind"] == "error"
    [line] = space.run("run", "x", env={"DEEPSEEK_API_KEY": None, "DSH_HOME": None}).errors
    assert "~/.dsh/.credentials.yaml, ./.env and ~/.dsh/.env" in line


def test_refused_key_is_4_and_not_shown(space: Workspace, answering: Answering) -> None:
    answering(failure(401, "Authentication Fails (key mock-key-12345678)"))
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": "mock-key-12345678"})
    assert (done.code, done.stdout) == (4, "\n")
    [line] = done.errors
    assert line.startswith("dsh: AUTH: ")
    assert "12345678" not in line


@pytest.mark.parametrize("key", ["sk-test\n123", "sk-ключ", "sk test 123"])
def test_key_with_stray_characters_is_4_without_any_traffic(
    space: Workspace, answering: Answering, key: str
) -> None:
    model = answering(text("never"))
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": key})
    assert (done.code, done.stdout) == (4, "\n")
    assert done.stderr.startswith("dsh: INVALID_CREDENTIAL: ") and "DEEPSEEK_API_KEY" in done.stderr
    assert model.bodies() == []
    [log] = space.logs()
    written = repr(log_rows(log)) + done.stderr
    assert "sk-" not in written and "ключ" not in written


@pytest.mark.parametrize("key", ["", "  \n"])
def test_blank_key_is_a_missing_one(space: Workspace, answering: Answering, key: str) -> None:
    model = answering(text("never"))
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": key})
    assert done.code == 4 and done.stderr.startswith("dsh: MISSING_CREDENTIAL: ")
    assert model.bodies() == []


def test_key_from_the_credentials_document_is_used(space: Workspace, answering: Answering) -> None:
    answering(text("ok"))
    document = space.home / ".credentials.yaml"
    document.write_text("version: 1\nrefs: {DEEPSEEK_API_KEY: from-the-file}\n")
    document.chmod(0o600)
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": None})
    assert (done.code, done.stdout) == (0, "ok\n")


def test_credentials_document_that_others_may_read_is_3(space: Workspace) -> None:
    document = space.home / ".credentials.yaml"
    document.write_text("version: 1\n")
    document.chmod(0o644)
    done = space.run("run", "x")
    assert (done.code, done.stdout) == (3, "")
    assert "0644" in done.stderr and "Traceback" not in done.stderr


def test_directory_flag_is_entered_before_everything_else(space: Workspace, answering: Answering) -> None:
    answering(bash("pwd"), text("done"))
    (space.work / "sub").mkdir()
    space.write("sub/marker.txt", "")
    space.write("p.yml", "[]\n")
    for words in (
        ["-C", "sub", "--patch", "p.yml", "--profile", "headless", "x"],
        ["run", "--patch", "p.yml", "x", "--cwd", "sub"],
    ):
        done = space.run(*words)
        assert (done.code, done.stderr) == (0, "")
    headers = [log_rows(log)[0] for log in space.logs()]
    assert [header["cwd"] for header in headers] == [str(space.work / "sub")] * 2


def test_directory_that_is_not_there_is_2(space: Workspace) -> None:
    for words in (["-C", "nope", "--profile", "headless", "x"], ["run", "x", "-C", "nope"]):
        done = space.run(*words)
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr == "error: cannot work in 'nope': No such file or directory\n"
