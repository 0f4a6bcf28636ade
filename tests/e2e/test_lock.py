"""Locks through the program: written by a dump, kept by runs and dumps, found again in the log."""

from pathlib import Path

import pytest

from dsh.composition.text.yaml import read_yaml
from dsh.testing.workspace import Workspace, log_rows


def lock(space: Workspace, *words: str, name: str = "dsh.lock.yml") -> Path:
    done = space.run(*words, "--dump-config", "--lock")
    assert (done.code, done.stderr) == (0, "")
    return space.write(name, done.stdout)


def test_a_run_that_keeps_to_its_lock_runs_and_its_log_holds_the_digest(space: Workspace) -> None:
    path = lock(space, "--profile", "demo")

    done = space.run("--profile", "demo", "--locked", "dsh.lock.yml", "Run: echo hello")

    assert done.code == 0
    assert "hello" in done.stdout
    rows = log_rows(space.logs()[0])
    (mounted,) = [row for row in rows if row["type"] == "composition/mounted"]
    assert mounted["ignorable"] is True
    assert mounted["data"] == {
        "digest": read_yaml(path)["digest"],
        "algorithm": "sha256",
        "dsh": "0.1.0",
        "profile": "demo",
    }
    types = [row["type"] for row in rows]
    assert types.index("composition/mounted") < types.index("turn/start")


def test_any_other_composition_is_refused_before_anything_happens(space: Workspace) -> None:
    path = lock(space, "--profile", "demo")
    home = space.home / "dsh.patch.yml"
    home.write_text("- {id: tools, merge: {maxParallelSubCalls: 3}}\n")

    for words in (
        ("--profile", "demo", "--locked", "dsh.lock.yml", "hello"),
        ("--profile", "demo", "--locked", "dsh.lock.yml", "--dump-config"),
        ("--profile", "demo", "--locked", "dsh.lock.yml", "--dump-config", "--lock"),
    ):
        done = space.run(*words)
        assert (done.code, done.stdout) == (3, "")
        assert done.errors == [
            f"dsh: the composition is not the one locked in {path}:",
            "row tools: config.maxParallelSubCalls: locked nothing, here 3",
            "hint: if the change is meant, write a new lock: "
            f"dsh --profile demo --dump-config --lock > {path}",
        ]
    assert space.logs() == []
    home.unlink()
    assert space.run("--profile", "demo", "--locked", "dsh.lock.yml", "--dump-config").code == 0


def test_dsh_run_takes_a_lock(space: Workspace) -> None:
    lock(space, "--profile", "demo")

    done = space.run("run", "--locked", "dsh.lock.yml", "x")

    assert done.code == 3
    assert 'profile: locked "demo", here "headless"' in done.errors


def test_a_lock_is_meant_from_the_invoking_folder(space: Workspace) -> None:
    (space.work / "inner").mkdir()
    lock(space, "--profile", "demo")

    assert space.run("--profile", "demo", "-C", "inner", "--locked", "dsh.lock.yml", "hi").code == 0


def test_two_homes_make_the_same_lock(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "another/deeper"):
        space = Workspace(tmp_path / name)
        (space.home / "dsh.patch.yml").write_text("- {id: tools, merge: {maxParallelSubCalls: 3}}\n")
        space.write("plugin.py", "def apply(ctx): ...\n")
        space.write("p.yml", "- insert: [{id: mine, name: ./plugin.py}]\n")
        texts.append(lock(space, "--profile", "demo", "--patch", "p.yml").read_text())

    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]


def test_the_text_of_a_plugin_file_counts(space: Workspace) -> None:
    plugin = space.write("plugin.py", "def apply(ctx): ...\n")
    space.write("p.yml", "- insert: [{id: mine, name: ./plugin.py}]\n")
    lock(space, "--profile", "demo", "--patch", "p.yml")
    plugin.write_text("def apply(ctx): print('other')\n")

    done = space.run("--profile", "demo", "--patch", "p.yml", "--locked", "dsh.lock.yml", "hi")

    assert done.code == 3
    assert done.errors[1].startswith('plugin ./plugin.py: locked "sha256:')
    assert len(done.errors) == 3


@pytest.mark.parametrize("text", [None, "", "- x", "version: 1\ndigest: x\n", "{", "a: !!js x"])
def test_what_is_no_lock_is_exit_3_with_its_place(space: Workspace, text: str | None) -> None:
    if text is not None:
        space.write("dsh.lock.yml", text)

    done = space.run("--profile", "demo", "--locked", "dsh.lock.yml", "hi")

    assert (done.code, done.stdout) == (3, "")
    assert str(space.work / "dsh.lock.yml") in done.errors[0]
    assert "Traceback" not in done.stderr
    assert space.logs() == []


def test_the_help_of_a_locked_app_leaves_nothing_on_disk(space: Workspace) -> None:

    lock(space, "--profile", "demo")

    done = space.run("--profile", "demo", "--locked", "dsh.lock.yml", "--help")

    assert done.code == 0
    assert space.logs() == []
