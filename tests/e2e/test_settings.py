"""Settings and keys of the home, through the real program: what counts, what is wrong and where."""

import re
from pathlib import Path

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace, log_rows


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def settings(space: Workspace, text: str) -> Path:
    path = space.home / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "permission:\n  defaultPreset: raed-only\n",
            ":2:18: settings permission.defaultPreset: 'raed-only' is not",
        ),
        ("permission: {defualtPreset: x}\n", ":1:14: settings permission: unknown key 'defualtPreset'"),
        ("shell:\n  # slow\n  timeoutMs: soon\n", ":3:14: settings shell.timeoutMs: expected integer"),
        ("agent-loop: 3\n", ":1:1: settings agent-loop: a section must be a mapping"),
        ("llm-deepseek:\n  apiKeyEnv: sk 1\n", ":2:14: settings llm-deepseek: apiKeyEnv is not the name"),
        ("agent-default-model: {model: ''}\n", ":1:30: settings agent-default-model.model:"),
        ("- permission\n", ":1:1: settings must be a mapping of sections"),
        ("permission: [\n", ":2:1: this cannot be read as YAML"),
    ],
)
def test_a_section_that_its_owner_refuses_stops_the_start(space: Workspace, text: str, words: str) -> None:
    path = settings(space, text)

    done = space.run("--profile", "demo", "hello")

    assert done.code == 3
    assert done.stdout == ""
    assert re.search(rf"^([a-z-]+) \(\1\): {re.escape(f'{path}{words}')}", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr
    assert not space.logs()


SECOND_SHELL = "- insert: [{id: second, name: bash-local, isolate: {shell: true}, config: {graceMs: 5}}]\n"


def test_two_shells_in_realms_of_their_own_read_one_section(space: Workspace) -> None:
    space.write("p.yml", SECOND_SHELL)
    path = settings(space, "shell: {timeoutMs: 200}\n")
    arguments = ("--profile", "demo", "--patch", "p.yml", "Run: sleep 60")

    done = space.run(*arguments)
    assert done.code == 0
    assert "[timed out after 200ms]" in done.stdout

    path.write_text("shell: {timeoutMs: 0}\n")
    done = space.run(*arguments)
    assert done.code == 3
    assert "2 entries did not activate:" in done.stderr
    assert f"{path}:1:20: settings shell.timeoutMs: expected integer >= 1; the same: " in done.stderr


def test_sections_that_nobody_reads_are_kept_and_ignored(space: Workspace) -> None:
    text = "llm-pi-coder: {x: 1}\nllm-pi-ai: text\n"
    path = settings(space, text)

    done = space.run("--profile", "demo", "hello")

    assert done.code == 0
    assert "settings" not in done.stderr
    assert path.read_text() == text


def test_a_section_that_is_nearly_called_like_a_known_one_is_told(space: Workspace) -> None:
    path = settings(space, "permissions: {defaultPreset: read-only}\n")

    done = space.run("--profile", "demo", "hello")

    assert done.code == 0
    assert f"{path}:1:1: nobody reads settings permissions; did you mean permission?" in done.stderr


def test_the_saved_model_counts_over_the_row_and_limits_reach_the_request(space: Workspace) -> None:
    settings(
        space,
        "agent-default-model:\n  model: deepseek-v4-pro\n  reasoningEffort: low\n"
        "llm-deepseek: {maxTokens: 77}\n",
    )
    with MockModelServer(["success"]).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "hello")
        body = server.requests[0].body

    assert done.code == 0
    assert (body["model"], body["reasoning_effort"], body["max_tokens"]) == ("deepseek-v4-pro", "low", 77)


PRESETS = """\
- id: permission
  config:
    presets:
      danger-full-access: {sandbox: danger-full-access, approval: never}
      careful: {sandbox: danger-full-access, approval: ask}
"""


@pytest.mark.parametrize(
    ("variable", "preset"), [("danger-full-access", "danger-full-access"), (None, "careful")]
)
def test_the_variable_outranks_the_saved_preset(space: Workspace, variable: str | None, preset: str) -> None:
    settings(space, "permission: {defaultPreset: careful}\n")
    space.write("p.yml", PRESETS)

    done = space.run("--profile", "demo", "--patch", "p.yml", "hello", env={"DSH_PERMISSION_MODE": variable})

    assert done.code == 0
    [log] = space.logs()
    chosen = [row["data"] for row in log_rows(log) if row.get("type") == "permission/preset"]
    assert chosen == [{"preset": preset}]


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_saved_preset_without_walls_is_a_choice_that_needs_no_notice(
    space: Workspace, is_saved: bool
) -> None:
    settings(space, "permission: {defaultPreset: danger-full-access}\n" if is_saved else "# nothing\n")
    done = space.run("--profile", "demo", "hello", env={"DSH_PERMISSION_MODE": None})
    assert done.code == 0
    assert ("not confined" in done.stderr) is not is_saved


def test_a_dump_reads_no_settings(space: Workspace) -> None:
    settings(space, "permission: {defaultPreset: raed-only}\n- broken\n")
    assert space.run("--dump-config").code == 0


def test_the_old_form_of_the_keys_is_renewed_by_a_run_and_used(space: Workspace) -> None:
    path = space.home / ".credentials.yaml"
    path.write_text("# mine\nDEEPSEEK_API_KEY: stored-key\n")
    path.chmod(0o600)
    with MockModelServer(["success"]).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "hello", env={"DEEPSEEK_API_KEY": None})
        sent = server.requests[0].headers["authorization"]

    assert done.code == 0
    assert sent == "Bearer stored-key"
    assert path.read_text() == "version: 1\nrefs:\n  # mine\n  DEEPSEEK_API_KEY: stored-key\n"


def test_a_forbidden_name_in_an_env_file_is_told_with_its_line(space: Workspace) -> None:
    path = space.write(".env", "# keys\nOK=1\nexport DSH_HOME=/elsewhere\n")

    done = space.run("--profile", "demo", "hello")

    assert done.code == 3
    assert f'dsh: {path}:3: sets "DSH_HOME", which only the launching environment may set' in done.stderr
