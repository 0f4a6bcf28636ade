"""Every session command on a standard output that is full, that nobody reads, or that was never there."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.cli.main import main
from tests.cli.sessions.home import Home
from tests.persistence.golden import TEXT

COMMANDS = [
    "list --all", "list --all --json", "show demo.1", "show --chunks demo.1", "show --raw demo.1",
    "inspect demo.1", "inspect --json demo.1", "stats demo.1", "stats --json demo.1", "stats --rows demo.1",
    "stats --rows --json demo.1", "verify demo.1", "verify --json demo.1", "verify --all", "export demo.1",
    "export -f markdown demo.1", "export -f html demo.1", "fork demo.1", "pack demo.1",
    "delete --yes demo.1", "prune --all --older-than 0m --dry-run", "prune --all --older-than 0m --yes",
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    for name in ("HOME", "DSH_HOME"):
        monkeypatch.setenv(name, str(made.path))
    monkeypatch.chdir(made.work)
    log = made.sessions / "--srv-app--" / "demo.1" / "session.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(TEXT)
    return made


@contextlib.contextmanager
def printing_to(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output is this descriptor, which is closed at the end."""
    output = os.fdopen(descriptor, "w", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        yield
    with contextlib.suppress(OSError):
        output.close()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_output_is_one_line_and_one_that_nobody_reads_is_none(
    words: str, home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = home.sessions / "--srv-app--" / "demo.1" / "session.jsonl"

    with printing_to(os.open("/dev/full", os.O_WRONLY), monkeypatch):
        code = main(["sessions", *words.split()])
    assert (code, capfd.readouterr().err) == (
        1, "dsh: standard output cannot be written: No space left on device\n"
    )  # fmt: skip

    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(TEXT)
    read, write = os.pipe()
    os.close(read)
    with printing_to(write, monkeypatch):
        code = main(["sessions", *words.split()])
    assert (code, capfd.readouterr().err) == (141, "")


@pytest.mark.parametrize("words", ["list --all", "stats demo.1", "export demo.1"])
def test_an_output_that_was_closed_from_the_start_is_the_null_device(words: str, home: Home) -> None:
    line = f"exec {sys.executable} -P -m dsh sessions {words} >&-"

    done = subprocess.run(["/bin/sh", "-c", line], stderr=subprocess.PIPE, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
