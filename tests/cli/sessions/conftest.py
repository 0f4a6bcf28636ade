"""A home of the test's own, and running the bodies of commands on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.sessions.home import Call, Home, Told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own, and a working directory."""
    made = Home(tmp_path)
    monkeypatch.setenv("DSH_HOME", str(made.path))
    monkeypatch.setenv("HOME", str(made.path))
    monkeypatch.delenv("PWD", raising=False)
    monkeypatch.chdir(made.work)
    return made


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Run a body: exit code, stdout, stderr."""

    def run(body: Callable[[], int]) -> Told:
        code = body()
        out, err = capfdbinary.readouterr()
        return Told(code, out.decode(), err.decode())

    return run
