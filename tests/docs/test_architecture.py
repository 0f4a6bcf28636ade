"""The reading orders on the page about the architecture name modules that are there, and leave none out."""

import re

import pytest

from docs.generate.source import REPOSITORY

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
COMMANDS = {"show", "inspect", "stats", "verify", "export", "fork", "delete", "pack"}
"""Modules that are called like what they do."""


@pytest.mark.parametrize(
    ("folder", "unnamed"),
    [("dsh/session", set()), ("dsh/persistence", set()), ("dsh/cli/sessions", COMMANDS)],
)
def test_each_module_has_its_place_in_the_reading_order(folder: str, unnamed: set[str]) -> None:
    found = re.search(rf"in `{folder}/`(.*)\n\n((?:\|.*\n)+)", PAGE)
    assert found is not None
    rows = [row.rpartition(" | ")[2] for row in found[2].splitlines()[2:]]
    named = set(re.findall(r"`([a-z_/]+)`", "\n".join(rows)))
    modules = {path.stem for path in (REPOSITORY / folder).glob("*.py")} - {"__init__"}
    below = {path.stem for path in (REPOSITORY / folder).rglob("*.py")}

    assert modules - named - unnamed - set(re.findall(r"`([a-z]+)`", found[1])) == set()
    assert {
        name for name in named if not name.endswith("/") and name.rpartition("/")[2] not in below
    } == set()
    assert {
        name for name in named if name.endswith("/") and not (REPOSITORY / folder / name).is_dir()
    } == set()
