"""Keys never reach a command that the model runs, nor anything that is stored (SE-01)."""

from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace, log_text
from tests.e2e.model import Model
from tests.e2e.reply import bash, text

SECRETS = {
    "DEEPSEEK_API_KEY": "hush-deepseek",
    "GH_TOKEN": "hush-github",
    "DB_PASSWORD": "hush-database",
    "MY_SECRET": "hush-mine",
}


def test_commands_see_no_secrets_and_current_variables(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    model = answering(bash("env | sort"), text("ok"))
    done = space.run(
        "run", "x", env={**SECRETS, "DSH_SESSION_ID": "stale", "LANG": "C.UTF-8", "FLAG": "plain"}
    )
    assert (done.code, done.stdout) == (0, "ok\n")
    [result] = [m["content"] for m in model.bodies()[1]["messages"] if m["role"] == "tool"]
    assert "hush" not in repr(model.bodies()) and "hush" not in done.stderr
    for line in ("FLAG=plain", "LANG=C.UTF-8", f"HOME={space.home}", "PATH="):
        assert line in result
    assert "DSH_SESSION_ID=stale" not in result
    [log] = space.logs()
    assert b"hush" not in log_text(log)


def test_keys_from_env_files_stay_out_of_commands_too(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    model = answering(bash("env"), text("ok"))
    space.write(".env", "DEEPSEEK_API_KEY=hush-project\nPLAIN=seen\n")
    done = space.run("run", "x", env={"DEEPSEEK_API_KEY": None})
    assert (done.code, done.stdout) == (0, "ok\n")
    [result] = [m["content"] for m in model.bodies()[1]["messages"] if m["role"] == "tool"]
    assert "PLAIN=seen" in result and "hush" not in result


def test_a_key_under_any_name_stays_out_of_commands(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    """The row's `apiKeyEnv` decides, not the look of the name."""
    model = answering(bash("env"), text("ok"))
    space.write("p.yml", "- id: llm-deepseek\n  config: {apiKeyEnv: MODEL_ACCESS}\n")
    env = {"MODEL_ACCESS": "hush-custom", "MODEL_NAME": "seen"}
    done = space.run("run", "--patch", "p.yml", "x", env=env)
    assert (done.code, done.stdout) == (0, "ok\n")
    [result] = [m["content"] for m in model.bodies()[1]["messages"] if m["role"] == "tool"]
    assert "MODEL_NAME=seen" in result and "hush" not in result and "MODEL_ACCESS" not in result


def test_a_key_in_place_of_its_name_is_refused_and_not_shown(space: Workspace) -> None:
    space.write("p.yml", "- id: llm-deepseek\n  config: {apiKeyEnv: sk-0123456789abcdef}\n")
    done = space.run("run", "--patch", "p.yml", "x")
    assert (done.code, done.stdout) == (3, "")
    assert "apiKeyEnv" in done.stderr and "0123456789" not in done.stderr


def test_a_dump_shows_neither_keys_nor_passwords(space: Workspace) -> None:
    space.write(
        "p.yml",
        "- id: llm-deepseek\n"
        "  config: {apiKeyEnv: sk-0123456789abcdef, baseURL: 'https://user:pa55word@host/v1'}\n",
    )
    done = space.run("--patch", "p.yml", "--dump-config")
    assert (done.code, done.stderr) == (0, "")
    assert "sk-***" in done.stdout and "https://***@host/v1" in done.stdout
    assert "0123456789" not in done.stdout and "pa55" not in done.stdout


@pytest.mark.parametrize("command", [["--dump-config"], ["--dump-config", "--lock"], ["explain"]])
def test_a_password_of_any_form_is_known_by_its_key(space: Workspace, command: list[str]) -> None:
    space.write(
        "p.yml",
        "- insert:\n    - {id: mine, name: ./mine.py, config: {deep: [{dbPassword: geheim, user: offen}]}}\n",
    )
    space.write("mine.py", "def apply(ctx, config): ...\n")
    done = space.run(*command, "--patch", "p.yml")
    assert done.code == 0, done.stderr
    assert "geheim" not in done.stdout and "offen" in done.stdout


def test_a_traceback_shows_neither_keys_nor_passwords(space: Workspace) -> None:
    space.write(
        "p.yml", "- id: 'https://user:pa55word@host/sk-0123456789abcdef'\n  require: true\n  config: {}\n"
    )
    done = space.run("--patch", "p.yml", "--dump-config", env={"DSH_DEBUG": "1"})
    assert done.code == 3 and "Traceback" in done.stderr
    assert "0123456789" not in done.stderr and "pa55" not in done.stderr
