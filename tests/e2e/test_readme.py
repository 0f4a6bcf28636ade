"""The README tells the truth: its commands run, its tool works, its tables name what there is."""

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of the README in this language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_tool_of_the_readme_is_twenty_lines_and_the_model_can_call_it(tmp_path: Path) -> None:
    (plugin,) = blocks("python")
    mount = next(block for block in blocks("yaml") if "greet.py" in block)
    assert len(plugin.splitlines()) <= 20
    workspace = Workspace(tmp_path)
    workspace.write("greet.py", plugin)
    workspace.write("greet.yml", mount)
    call = {"id": "call-1", "name": "greet", "args": ['{"who": "Ada"}']}

    with MockModelServer([{"tools": [call]}, {"text": ["Done."]}]).in_thread() as server:
        workspace.use_model(server.base_url)
        finished = workspace.run("run", "--patch", "greet.yml", "Greet Ada")

    assert (finished.code, finished.stdout, finished.stderr) == (0, "Done.\n", "")
    results = [m for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert [result["content"] for result in results] == ["Hello, Ada!"]


def test_the_example_is_the_tool_of_the_readme() -> None:
    folder = REPOSITORY / "examples" / "tool-plugin"

    assert (folder / "greet.py").read_text(encoding="utf-8").endswith("\n\n" + blocks("python")[0])
    assert (folder / "greet.yml").read_text(encoding="utf-8") in blocks("yaml")


def test_the_patch_of_the_readme_changes_the_rows_it_names(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    patch = next(block for block in blocks("yaml") if "bash-sandbox" in block)
    (workspace.home / "dsh.patch.yml").write_text(patch, encoding="utf-8")

    finished = workspace.run("--dump-config")

    assert finished.code == 0
    assert "timeoutMs: 300000" in finished.stdout
    assert "timeoutMs: 600000" in finished.stdout
    assert finished.stderr == ""


@pytest.mark.parametrize("route", ["anthropic", "openai-compatible"])
def test_a_model_is_chosen_as_the_readme_says(tmp_path: Path, route: str) -> None:
    workspace = Workspace(tmp_path)
    [choice] = [block for block in blocks("yaml") if block.startswith("agent-default-model:")]
    settings = choice.replace("provider: anthropic", f"provider: {route}")
    (workspace.home / "settings.yaml").write_text(settings, encoding="utf-8")
    vendor = route.partition("-")[0].upper()

    with MockModelServer(dialect="openai").in_thread() as server:
        urls = {"ANTHROPIC_BASE_URL": server.anthropic_url, "OPENAI_BASE_URL": server.base_url}
        finished = workspace.run("run", "say hello", env={f"{vendor}_API_KEY": "k", **urls})

    assert (finished.code, finished.stdout) == (0, "Hello from the mock model.\n")
    assert [request.body["model"] for request in server.requests] == ["claude-sonnet-5-5"]
    assert f"{vendor}_API_KEY" in README


def test_every_exit_code_of_the_readme_is_one_of_ours() -> None:
    codes = {int(n) for row in re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE) for n in row.split(",")}

    assert codes == {0, 1, 2, 3, 4, 5, 8, 124, 130, 143}


def test_every_path_that_the_documents_name_is_there() -> None:
    documents = (REPOSITORY / "README.md", REPOSITORY / "docs" / "architecture.md")
    named = {
        path
        for document in documents
        for path in re.findall(
            r"`((?:dsh|docs|tests|bundles|profiles|benchmarks|examples)/[\w./*-]*)",
            document.read_text("utf-8"),
        )
    }

    assert len(named) > 15
    assert [path for path in sorted(named) if not any(REPOSITORY.glob(path.rstrip("/")))] == []


def test_the_log_is_where_the_readme_says(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    finished = workspace.run("--profile", "demo", "Run: echo hello")
    assert finished.code == 0

    (log,) = workspace.logs()
    shown = subprocess.run(["zstd", "-dcq", log], capture_output=True, check=True).stdout
    inspected = workspace.run("sessions", "inspect", log.parent.name[:14])

    assert log.name == "session.jsonl.zstd"
    assert shown.startswith(b'{"type":"session","version":0,')
    assert inspected.code == 0
    assert log.parent.name in inspected.stdout


@pytest.mark.slow
def test_a_plain_installation_runs_the_demo_without_a_key(tmp_path: Path) -> None:
    """The wheel carries the bundles and profiles; nothing of the checkout is on the import path."""
    venv.create(tmp_path / "v", with_pip=True)
    pip = [str(tmp_path / "v/bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(REPOSITORY)]
    subprocess.run(pip, check=True, capture_output=True)

    workspace = Workspace(tmp_path / "box", program=[str(tmp_path / "v/bin/dsh")])
    demo = workspace.run("--profile", "demo", "Run: echo hello")
    dump = workspace.run("--dump-config")

    assert demo.code == 0
    assert "hello" in demo.stdout
    assert dump.code == 0
    assert dump.stdout == Workspace(tmp_path / "own").run("--dump-config").stdout
    where = [str(tmp_path / "v/bin/python"), "-c", "import dsh; print(dsh.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert found.startswith(str(tmp_path / "v")), sys.version
