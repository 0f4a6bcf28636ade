"""The launcher as a process: reading creates nothing, streams may be missing, both names are one program."""

import subprocess
import sys
from pathlib import Path

import pytest

from dsh.composition.text.yaml import parse_yaml
from dsh.testing.workspace import Workspace

READING = [
    ["--help"],
    ["--version"],
    ["--dump-config"],
    ["--dump-default-config"],
    ["run", "--help"],
    ["sessions", "--help"],
    ["sessions", "inspect", "nothing"],
    ["run"],
    ["--profile", "nope", "x"],
    ["--profile", "headless", "--patch", "nope.yml", "x"],
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_nothing_is_created_by_reading(space: Workspace, words: list[str]) -> None:
    home = space.root / "fresh"
    space.run(*words, env={"DSH_HOME": str(home), "HOME": str(home)})
    assert not home.exists()
    assert list(space.work.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["--dump-config"], ["run", "--help"], ["sessions", "--help"]],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line_and_1(space: Workspace, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = space.start(*words, stdout=full)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode()) == (
        1,
        "dsh: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["--dump-config"], ["run", "-h"]], ids=" ".join)
def test_a_reader_that_has_gone_is_141_without_a_word(space: Workspace, words: list[str]) -> None:
    process = space.start(*words)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--help", "--version", "--dump-config", "run --help", "--profile demo hi"])
def test_standard_streams_may_be_closed(space: Workspace, words: str, closed: str) -> None:
    line = f"exec {sys.executable} -P -m dsh {words} {closed}"  # so that a time-out ends dsh, not its shell
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=space.work, env=space.environment({}), capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr


def test_a_signal_is_heard_although_the_streams_are_closed(space: Workspace) -> None:
    line = f"exec {sys.executable} -P -m dsh --profile demo 'Run: touch started; sleep 60' <&- >&- 2>&-"
    process = subprocess.Popen(["/bin/sh", "-c", line], cwd=space.work, env=space.environment({}))
    try:
        while not (space.work / "started").exists():
            assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 143
    finally:
        process.kill()
        process.wait()


def test_a_dump_is_loaded_again_to_the_same_rows(space: Workspace) -> None:
    first = space.run("--profile", "demo", "--dump-config")
    path = space.write("dump.yml", first.stdout)
    again = space.run("--profile", "demo", "--patch", "dump.yml", "--dump-config")
    assert again.stderr == ""
    assert parse_yaml(again.stdout.encode(), "again") == parse_yaml(first.stdout.encode(), "first")

    folder = space.home / "profiles" / "copy"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: []\n")
    rows = "".join(f"    {line}\n" for line in first.stdout.splitlines())
    (folder / "dsh.patch.yml").write_text(f"- insert:\n{rows}")
    copy = space.run("--profile", "copy", "Run: echo from the copy")
    assert (copy.code, copy.stdout.strip()) == (0, "from the copy")
    included = space.write(
        "p.yml", f"- insert: [{{id: all, name: 'cordis:include', config: {{path: '{path}'}}}}]\n"
    )
    (folder / "dsh.patch.yml").write_text("[]")
    done = space.run("--profile", "copy", "--patch", str(included), "Run: echo included")
    assert (done.code, done.stdout.strip()) == (0, "included")


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["--dump-config"], ["--profile", "demo", "hi"], ["run"], ["nope"]],
    ids=" ".join,
)
def test_the_module_is_the_program_and_imports_nothing_from_the_workspace(
    space: Workspace, words: list[str]
) -> None:
    for name in ("json", "typing", "msgspec", "typer", "ruamel", "simpleeval", "asyncio"):
        space.write(f"{name}.py", "raise SystemExit('imported from the workspace')\n")
    script = Path(sys.executable).with_name("dsh")
    runs = [
        Workspace(space.root, program=program).run(*words)
        for program in ((sys.executable, "-m", "dsh"), (sys.executable, "-P", "-m", "dsh"), (str(script),))
        if Path(program[0]).exists()
    ]
    assert "imported from" not in runs[0].stderr
    assert len(set(runs)) == 1
