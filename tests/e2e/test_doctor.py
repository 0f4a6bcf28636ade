"""`dsh doctor`: what works here and what does not, for people and for programs, with the exit code."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace

BROKEN = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"


@pytest.fixture
def tools(space: Workspace, tmp_path: Path) -> Path:
    """A folder that is all of the PATH: bash and what the probes need, without bubblewrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "sh", "mount"):
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    space.env["PATH"] = str(folder)
    return folder


def bwrap(tools: Path, script: str) -> None:
    program = tools / "bwrap"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)


def found(done: Finished) -> dict[str, dict[str, Any]]:
    shape = json.loads(done.stdout)
    assert shape["version"] == 1 and shape["ok"] == (done.code == 0)
    return {finding["name"]: finding for finding in shape["findings"]}


def test_the_backends_are_tried_and_the_mode_of_a_run_is_named(space: Workspace) -> None:
    done = space.run("doctor")

    assert (done.code, done.stderr) == (0, ""), done.stdout
    first, *lines = done.stdout.splitlines()
    assert first == "sandbox"
    assert [line.split()[1] for line in lines if "hint:" not in line] == ["bwrap", "landlock", "mode"]
    assert "workspace-write, kept by " in lines[-1]


def test_what_does_not_work_is_told_with_its_reason_and_a_remedy(space: Workspace, tools: Path) -> None:
    missing = found(space.run("doctor", "--json"))["bwrap"]
    bwrap(tools, BROKEN)
    broken = found(space.run("doctor", "--json"))["bwrap"]

    assert (missing["status"], missing["check"]) == ("warning", "sandbox")
    assert "not installed" in missing["detail"] and "install bubblewrap" in missing["hint"]
    assert "No permissions to create new namespace" in broken["detail"] and broken["hint"]


def test_a_mode_that_nothing_keeps_is_exit_1(space: Workspace, tools: Path) -> None:
    bwrap(tools, BROKEN)
    space.write("p.yml", "- {id: sandbox, merge: {requireFull: true}}\n")

    done = space.run("doctor", "--patch", "p.yml", "--json")
    as_text = space.run("doctor", "--patch", "p.yml")

    mode = found(done)["mode"]
    assert done.code == as_text.code == 1
    assert mode["status"] == "failed" and "'workspace-write'" in mode["detail"]
    assert "DSH_PERMISSION_MODE=danger-full-access" in mode["hint"]
    assert "  failed   mode " in as_text.stdout and "hint: " in as_text.stdout


def test_what_a_run_would_start_with_is_no_failure(space: Workspace, tools: Path) -> None:
    bwrap(tools, BROKEN)
    space.write("p.yml", "- {id: sandbox, merge: {requireFull: true, checkAtStart: false}}\n")

    done = space.run("doctor", "--patch", "p.yml", "--json")

    mode = found(done)["mode"]
    assert (done.code, mode["status"]) == (0, "warning")
    assert mode["detail"].startswith("commands will be refused: no sandbox here can keep mode")


def test_a_workspace_that_would_be_hidden_is_a_finding(space: Workspace) -> None:
    space.write("p.yml", f"- {{id: sandbox-policy, merge: {{hiddenPaths: ['{space.work.parent}']}}}}\n")

    done = space.run("doctor", "--patch", "p.yml", "--json")

    assert done.code == 1 and found(done)["mode"]["detail"].startswith("hiddenPaths: in ")
    assert "hide only what is not needed" in found(done)["mode"]["hint"]


def test_full_access_needs_no_sandbox(space: Workspace, tools: Path) -> None:
    bwrap(tools, BROKEN)
    space.write("p.yml", "- {id: sandbox, merge: {requireFull: true}}\n")

    for words, env in (
        (["--profile", "demo"], {}),
        ([], {"DSH_PERMISSION_MODE": "danger-full-access"}),
    ):
        done = space.run("doctor", "--patch", "p.yml", "--json", *words, env=env)
        assert done.code == 0
        assert "nothing is confined" in found(done)["mode"]["detail"]


def test_a_mode_that_does_not_exist_is_a_finding(space: Workspace) -> None:
    done = space.run("doctor", "--json", env={"DSH_PERMISSION_MODE": "hush"})

    assert done.code == 1 and done.stderr == ""
    detail = found(done)["mode"]["detail"]
    assert "expected read-only | workspace-write | danger-full-access" in detail and "hush" not in detail


@pytest.mark.parametrize(
    ("row", "place"),
    [("{id: sandbox, merge: {requireFull: 1}}", 38), ("{id: sandbox-policy, merge: {network: 1}}", 41)],
)
def test_a_wrong_option_is_told_with_its_place(space: Workspace, row: str, place: int) -> None:
    space.write("p.yml", f"- {row}\n")

    done = space.run("doctor", "--patch", "p.yml")

    assert done.code == 1
    assert f"p.yml:1:{place}: invalid config: expected boolean but got integer" in done.stdout


def test_a_runner_of_ones_own_is_looked_for(space: Workspace) -> None:
    row = "- {id: sandbox, merge: {runnerCommand: [no-such-runner], runnerFailureSignatures: [x]}}\n"
    space.write("p.yml", row)

    done = space.run("doctor", "--patch", "p.yml", "--json")

    assert done.code == 1
    assert "no such program" in found(done)["no-such-runner"]["detail"]


def test_a_profile_without_the_row_is_no_failure(space: Workspace) -> None:
    space.write("p.yml", "- {id: sandbox, remove: true}\n")

    done = space.run("doctor", "--patch", "p.yml", "--json")

    assert done.code == 0 and "no row" in found(done)["row"]["detail"]


def test_nothing_is_created_and_nothing_stays(space: Workspace) -> None:
    space.run("doctor")

    assert list(space.home.iterdir()) == [] and list(space.work.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--profile", "nope"], 3, "nope"),
        (["--patch", ""], 2, "--patch FILE needs a value"),
        (["--patch", "gone.yml"], 3, "gone.yml"),
        (["-C", "gone"], 2, "gone"),
        (["extra"], 2, "extra"),
        (["--jsn"], 2, "--json"),
    ],
)
def test_a_wrong_command_line_is_told(space: Workspace, words: list[str], code: int, said: str) -> None:
    done = space.run("doctor", *words)

    assert done.code == code and said in done.stderr and done.stdout == ""


def test_it_is_a_command_only_as_the_first_word(space: Workspace) -> None:
    done = space.run("-C", os.fspath(space.work), "doctor")

    assert done.code == 2 and "first word" in done.stderr
