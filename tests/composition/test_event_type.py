"""Event types of installed packages: known by name without running anything, loaded when one is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.composition.event_type import InstalledEventTypes
from dsh.errors import CompositionError
from tests.composition.test_bundle import package

POINTS = """[dsh.events]
acme/note = acme_notes.types:Note
acme/any = acme_notes.types:ANY
acme/gone = acme_notes.types:Gone
acme/torn = acme_notes.nowhere:Note
acme/leaves = acme_notes.leaves:Note
"""
TYPES = "from typing import TypedDict\n\nANY = None\n\n\nclass Note(TypedDict):\n    text: str\n"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home where the profile `notes` has a package with event types."""
    before = list(sys.path)
    made = package(tmp_path / "profiles/notes/site", "acme_notes", POINTS, types__py=TYPES)
    (made / "__init__.py").write_text("")
    (made / "leaves.py").write_text("raise SystemExit(0)\n")
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("acme_notes")]:
        del sys.modules[name]


def test_a_name_is_known_from_the_site_of_any_profile_and_nothing_runs(home: Path) -> None:
    types = InstalledEventTypes(home)

    assert types.knows("acme/note")
    assert types.knows("acme/torn")
    assert not types.knows("acme/other")
    assert "acme_notes" not in sys.modules
    assert not InstalledEventTypes(None).knows("acme/note")


def test_the_payload_type_is_imported_when_it_is_asked_for(home: Path) -> None:
    types = InstalledEventTypes(home)

    assert types.payload("acme/note").__annotations__.keys() == {"text"}
    assert types.payload("acme/any") is None


@pytest.mark.parametrize("kind", ["acme/gone", "acme/torn", "acme/leaves"])
def test_a_payload_type_that_cannot_be_loaded_names_its_package(home: Path, kind: str) -> None:
    with pytest.raises(CompositionError, match=kind) as caught:
        InstalledEventTypes(home).payload(kind)

    assert "acme" in caught.value.hint


def test_a_package_with_torn_metadata_hides_no_other(home: Path) -> None:
    package(home / "profiles/notes/site", "torn", "[dsh.events\nx = \n\xff")

    assert InstalledEventTypes(home).knows("acme/note")
