"""The package in `examples/custom-bundle` is the one of the guide; its tool works in a profile of its own."""

import subprocess
import sys
from pathlib import Path

from docs.generate.source import REPOSITORY
from dsh.composition.profile import site_folder
from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace
from tests.docs.page import blocks

EXAMPLE = REPOSITORY / "examples" / "custom-bundle"
GUIDE = REPOSITORY / "docs" / "writing-a-plugin.md"


def files_of_the_guide() -> dict[str, str]:
    """The files of the package as the guide shows them."""
    named = {block.name: block.text for block in blocks(GUIDE)}
    return {
        name: text
        for name, text in named.items()
        if name.startswith("dsh_notes/") or name == "pyproject.toml"
    }


def test_the_example_is_the_package_of_the_guide() -> None:
    ours = {
        str(path.relative_to(EXAMPLE)): path.read_text(encoding="utf-8")
        for path in EXAMPLE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }

    assert ours == files_of_the_guide()


def test_the_model_can_take_notes_in_a_profile_with_the_package(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    site = site_folder(workspace.home, "notes")
    site.mkdir(parents=True)
    profile = site.parent / "profile.yml"
    profile.write_text("bundles: [base, headless, notes]\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    source = tmp_path / "source"
    for name, text in files_of_the_guide().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    subprocess.run([*pip, "--no-build-isolation", "--target", site, source], check=True)
    call = {"id": "call-1", "name": "note", "args": ['{"text": "bread"}']}

    with MockModelServer([{"tools": [call]}, {"text": ["Noted."]}]).in_thread() as server:
        workspace.use_model(server.base_url)
        finished = workspace.run("--profile", "notes", "Remember bread", env={"USER": "Ada"})

    assert (finished.code, finished.stdout) == (0, "Noted.\n")
    assert finished.errors == ["noted: for Ada", "noted: bread"]
    answers = [m["content"] for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert answers == ["- for Ada\n- bread"]
