"""Tests of paths on the command line: they are meant from where dsh was called."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.cli.argv import Invocation
from dsh.cli.directory import settled
from dsh.errors import UsageError


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A current directory of the test's own."""
    before, home = Path.cwd(), os.environ.pop("DSH_HOME", None)
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
    os.environ.pop("DSH_HOME", None)
    if home is not None:
        os.environ["DSH_HOME"] = home


def test_patches_and_home_are_absolute_before_the_directory_changes(here: Path) -> None:
    (here / "sub").mkdir()
    os.environ["DSH_HOME"] = "home"
    found = settled(Invocation("boot", "p", ("a.yml", "/b.yml"), "sub"))
    assert found.patches == (str(here / "a.yml"), "/b.yml")
    assert os.environ["DSH_HOME"] == str(here / "home")
    assert Path.cwd() == here / "sub"


@pytest.mark.parametrize("home", ["~/x", "/abs", "  "])
def test_other_homes_are_left_alone(here: Path, home: str) -> None:
    os.environ["DSH_HOME"] = home
    settled(Invocation("boot", "p"))
    assert os.environ["DSH_HOME"] == home


@pytest.mark.parametrize("directory", ["nope", "file", "nul\0byte"])
def test_directory_that_cannot_be_entered_is_a_usage_error(here: Path, directory: str) -> None:
    (here / "file").touch()
    with pytest.raises(UsageError, match="cannot work in"):
        settled(Invocation("boot", "p", cwd=directory))


def test_missing_current_directory_is_a_usage_error(here: Path) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    with pytest.raises(UsageError, match="current directory is gone"):
        settled(Invocation("boot", "p"))
