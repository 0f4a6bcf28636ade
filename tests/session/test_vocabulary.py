"""Event types of plugins: registered by name, with a payload type, or found where they are installed."""

from collections.abc import Iterator
from typing import Any, TypedDict

import msgspec
import pytest

from dsh.errors import CompositionError
from dsh.session.error import InvalidEvent, UnsupportedLog
from dsh.session.restore import restore
from dsh.session.vocabulary import install_finder, is_known, register_types
from tests.session.build import header, session, stored


class Note(TypedDict):
    """A payload of a plugin."""

    text: str


class Mark(msgspec.Struct, frozen=True):
    """A payload of a plugin as a struct."""

    at: int


class Finder:
    """Finds `acme/note`, and remembers what it was asked."""

    def __init__(self, form: Any = Note) -> None:
        self.form = form
        self.asked: list[str] = []
        self.loaded: list[str] = []

    def knows(self, kind: str) -> bool:
        self.asked.append(kind)
        return kind == "acme/note"

    def payload(self, kind: str) -> Any:
        self.loaded.append(kind)
        if isinstance(self.form, Exception):
            raise self.form
        return self.form


@pytest.fixture
def finder() -> Iterator[Finder]:
    made = Finder()
    undo = install_finder(made)
    yield made
    undo()
    undo()


@pytest.mark.parametrize(
    ("form", "good", "bad"), [(Note, {"text": "a"}, {"text": 1}), (Mark, {"at": 1}, {"at": "x"})]
)
def test_a_registered_type_is_checked_against_its_payload_type(
    form: Any, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    undo = register_types({"acme/note": form, "acme/free": None})
    log = session()

    log.append("acme/free", ["anything"])
    log.append("acme/note", good)
    with pytest.raises(InvalidEvent, match=r"acme/note: data\.(text|at): expected"):
        log.append("acme/note", bad)
    with pytest.raises(InvalidEvent, match="acme/note: data"):
        log.append("acme/note", bad, ignorable=True)
    undo()

    assert not is_known("acme/note")
    with pytest.raises(InvalidEvent, match="no known event type"):
        log.append("acme/note", good)
    assert log.length == 2


def test_a_type_that_is_no_payload_type_is_told_at_the_first_append() -> None:
    undo = register_types({"acme/odd": session})

    with pytest.raises(InvalidEvent, match="acme/odd") as caught:
        session().append("acme/odd", {})

    assert "TypedDict" in caught.value.hint
    undo()


def test_a_found_type_is_checked_on_append_and_only_named_on_load(finder: Finder) -> None:
    restored = restore(header(), [stored("acme/note", 0, {"text": 1})])
    assert (restored.view.length, finder.loaded) == (1, [])

    log = session()
    log.append("acme/note", {"text": "a"})
    with pytest.raises(InvalidEvent, match=r"acme/note: data\.text"):
        log.append("acme/note", {"text": 1})

    assert finder.loaded == ["acme/note", "acme/note"]


def test_nothing_is_looked_for_that_is_known_or_may_be_passed_over(finder: Finder) -> None:
    log = session()
    log.append("plan/mode", {"active": True})
    log.append("acme/other", {}, ignorable=True)
    restore(header(), [stored("acme/other", 0, {}, ignorable=True), stored("plan/mode", 1, {"active": True})])
    assert finder.asked == []

    with pytest.raises(UnsupportedLog, match="acme/other"):
        restore(header(), [stored("acme/other", 0, {})])
    assert finder.asked == ["acme/other"]


def test_a_payload_type_that_cannot_be_loaded_refuses_the_append(finder: Finder) -> None:
    finder.form = CompositionError("cannot be loaded", hint="reinstall it")
    log = session()

    with pytest.raises(CompositionError, match="cannot be loaded"):
        log.append("acme/note", {})

    assert log.length == 0
