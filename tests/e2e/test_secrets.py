"""Keys never reach a command that the model runs, nor anything that is stored (SE-01)."""

from collections.abc import Callable

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
