"""The title and the to-do list: the last one that was written counts, and what is none changes nothing."""

from typing import Any

import pytest

from dsh.session.event import SessionEvent
from dsh.session.projection.title import TITLE
from dsh.session.projection.todos import TODOS, Todo
from dsh.session.projection.unit import fold
from dsh.session.value import freeze
from tests.session.build import in_step, session


def events(kind: str, *payloads: Any) -> list[SessionEvent]:
    return [SessionEvent(kind, seq, seq, freeze(data, kind)) for seq, data in enumerate(payloads)]


def test_the_last_title_counts() -> None:
    log = session()
    for title in ("first", "second"):
        log.append("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})

    assert fold(TITLE, log.entries()) == "second"
    assert fold(TITLE, session().entries()) is None


def test_the_last_list_counts_whole_also_an_empty_one() -> None:
    log = in_step()
    log.append("todo/write", {"todos": [{"content": "a", "status": "pending"}]})
    log.append("todo/write", {"todos": [{"content": "b", "status": "completed"}]})
    assert fold(TODOS, log.entries()) == (Todo("b", "completed"),)
    assert TODOS.show(fold(TODOS, log.entries())) == ({"content": "b", "status": "completed"},)

    log.append("todo/write", {"todos": []})
    assert fold(TODOS, log.entries()) == ()


def test_the_list_lasts_until_the_next_turn_begins() -> None:
    log = session()
    assert fold(TODOS, log.entries()) is None
    log.append("turn/start", {"turn": 1})
    log.append("todo/write", {"todos": [{"content": "a", "status": "pending"}]})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert fold(TODOS, log.entries()) == (Todo("a", "pending"),)

    log.append("turn/start", {"turn": 2})

    assert fold(TODOS, log.entries()) is None
    assert TODOS.show(None) is None
    assert TODOS.load(TODOS.dump(None)) is None


@pytest.mark.parametrize("broken", [None, [], {}, {"title": 7}, {"title": None}])
def test_a_title_that_is_none_leaves_the_one_before(broken: Any) -> None:
    assert fold(TITLE, events("session/title", {"title": "kept"}, broken)) == "kept"


@pytest.mark.parametrize(
    "broken", [None, 7, {}, {"todos": 7}, {"todos": [{"content": "x"}]}, {"todos": [{"status": "pending"}]}]
)
def test_a_list_that_is_none_leaves_the_one_before(broken: Any) -> None:
    kept = {"todos": [{"content": "kept", "status": "in_progress"}]}
    assert fold(TODOS, events("todo/write", kept, broken)) == (Todo("kept", "in_progress"),)


def test_half_a_surrogate_pair_in_a_title_is_kept_as_it_is() -> None:
    state = fold(TITLE, events("session/title", {"title": "\ud83d"}))
    assert TITLE.load(TITLE.dump(state)) == "\ud83d"
