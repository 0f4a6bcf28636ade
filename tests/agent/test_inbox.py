"""The inbox is the fold of its events, whatever is done to it."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.agent.contract import InboxTarget
from dsh.agent.inbox import Inbox
from dsh.session.error import InvalidEvent
from dsh.session.header import SessionHeader
from dsh.session.inbox_fold import INBOX_SPLICED, fold_inbox
from dsh.session.log import Session
from dsh.session.message import Message, user_message


class Watched:
    """An inbox and what it told."""

    def __init__(self, session: Session | None = None) -> None:
        self.session = session or Session(SessionHeader(id="s", created_at=0))
        self.told: list[str] = []
        self.inbox = Inbox(
            self.session,
            inserted=lambda m: self.told.append(f"+{m['id']}"),
            discarded=lambda m: self.told.append(f"-{m['id']}"),
            claimed=lambda m, turn: self.told.append(f"claimed {m['id']} {turn}"),
        )

    @property
    def ids(self) -> tuple[list[str], list[str]]:
        return [m["id"] for m in self.inbox.next_turn], [m["id"] for m in self.inbox.next_step]

    @property
    def events(self) -> list[Any]:
        return [event.data for event in self.session.select(INBOX_SPLICED)]


def message(name: str) -> Message:
    return user_message(name, message_id=name)


TARGETS: tuple[InboxTarget, ...] = ("next-turn", "next-step")
numbers = st.one_of(
    st.integers(-6, 6), st.floats(-6, 6), st.sampled_from([math.inf, -math.inf, math.nan, 2.9, -0.5])
)
names = st.sampled_from("abcdefgh")
operations = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(TARGETS), names),
    st.tuples(st.just("prepend"), st.sampled_from(TARGETS), names),
    st.tuples(st.just("replace"), names, names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("splice"), st.sampled_from(TARGETS), numbers, numbers, st.lists(names, max_size=3)),
    st.tuples(st.just("claim"), st.sampled_from(TARGETS)),
    st.tuples(st.just("clear")),
)


def perform(inbox: Inbox, operation: tuple[Any, ...]) -> None:
    match operation:
        case ("append", target, name):
            inbox.append(target, message(name))
        case ("prepend", target, name):
            inbox.prepend(target, message(name))
        case ("replace", old, name):
            inbox.replace(old, message(name))
        case ("remove", name):
            inbox.remove(name)
        case ("splice", target, start, delete, inserted):
            inbox.splice(target, start, delete, [message(name) for name in inserted])
        case ("claim", target):
            inbox.claim(target, 1)
        case ("clear",):
            inbox.clear()


@settings(max_examples=300)
@given(st.lists(operations, max_size=25))
def test_any_sequence_of_operations_equals_the_fold_of_its_events(steps: list[tuple[Any, ...]]) -> None:
    it = Watched()
    for step in steps:
        before, length = it.ids, it.session.length
        try:
            perform(it.inbox, step)
        except InvalidEvent:
            if step[0] not in ("claim", "clear"):
                assert (it.ids, it.session.length) == (before, length), "a refused change changes nothing"
    folded = fold_inbox(it.session)
    assert [m["id"] for m in folded.next_turn] == it.ids[0]
    assert [m["id"] for m in folded.next_step] == it.ids[1]
    assert len({*it.ids[0], *it.ids[1]}) == len(it.ids[0]) + len(it.ids[1])
    again = Watched(it.session)
    assert again.ids == it.ids
    for data in it.events:
        assert data.get("removedCount", 1) > 0
        assert "inserted" in data
        assert data.get("removedCount") or data["inserted"], "a splice that does nothing is not logged"
        assert "outcome" not in data or data["removedCount"]


@given(st.lists(names, unique=True, max_size=6), numbers, numbers)
def test_coordinates_are_read_like_those_of_an_array_splice(
    present: list[str], start: float, delete: float
) -> None:
    it = Watched()
    for name in present:
        it.inbox.append("next-turn", message(name))
    whole = 0 if math.isnan(start) else start
    first = len(present) + int(whole) if -10 < whole <= -1 else int(min(max(whole, -0.0), len(present)))
    if whole == -math.inf:
        first = 0
    first = max(first, 0)
    count = 0 if math.isnan(delete) or delete < 0 else int(min(delete, len(present) - first))
    removed = it.inbox.splice("next-turn", start, delete)
    assert [m["id"] for m in removed] == present[first : first + count]
    assert it.ids[0] == present[:first] + present[first + count :]


def test_the_row_holds_its_keys_in_the_written_order() -> None:
    it = Watched()
    it.inbox.append("next-step", message("a"))
    it.inbox.replace("a", message("b"))
    assert [list(data) for data in it.events] == [
        ["target", "start", "inserted"],
        ["target", "start", "removedCount", "inserted", "outcome"],
    ]


def test_a_claim_takes_all_steps_and_one_prompt_and_is_no_cancellation() -> None:
    it = Watched()
    for target, name in (("next-turn", "p1"), ("next-turn", "p2"), ("next-step", "s1"), ("next-step", "s2")):
        it.inbox.append(target, message(name))  # type: ignore[arg-type]
    it.told.clear()
    claimed = it.inbox.claim("next-turn", 3)
    assert [m["id"] for m in claimed] == ["s1", "s2", "p1"]
    assert it.told == ["claimed s1 3", "claimed s2 3", "claimed p1 3"]
    assert it.ids == (["p2"], [])
    assert all("outcome" not in data for data in it.events)
    length = it.session.length
    assert it.inbox.claim("next-step", 3) == ()
    assert it.session.length == length, "an empty claim writes nothing"


def test_a_replacement_is_told_as_discarded_then_inserted() -> None:
    it = Watched()
    it.inbox.append("next-turn", message("a"))
    it.told.clear()
    assert it.inbox.replace("a", message("b"))
    assert it.told == ["-a", "+b"]
    assert not it.inbox.replace("a", message("c"))
    assert not it.inbox.remove("a")


def test_clear_empties_the_steps_first() -> None:
    it = Watched()
    it.inbox.append("next-turn", message("p"))
    it.inbox.append("next-step", message("s"))
    it.told.clear()
    it.inbox.clear()
    assert it.told == ["-s", "-p"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_id_may_not_wait_twice_in_either_list(target: InboxTarget) -> None:
    it = Watched()
    it.inbox.append("next-turn", message("a"))
    length = it.session.length
    with pytest.raises(InvalidEvent):
        it.inbox.append(target, message("a"))
    assert (it.session.length, it.ids) == (length, (["a"], []))


def test_observers_of_the_log_still_see_the_lists_as_they_were() -> None:
    it = Watched()
    seen: list[Any] = []
    it.session.on_append = lambda seq, event: seen.append(it.ids)
    it.inbox.append("next-turn", message("a"))
    it.inbox.remove("a")
    assert seen == [([], []), (["a"], [])]


def test_a_fork_does_not_inherit_what_waits_and_a_resume_does() -> None:
    it = Watched()
    it.inbox.append("next-turn", message("a"))
    seed = [event.to_json() for event in it.session.events()]
    fork = Session.seeded(SessionHeader(id="f", created_at=0, seed_length=1), seed)
    resumed = Session.seeded(SessionHeader(id="s", created_at=0), seed)
    assert Watched(fork).ids == ([], [])
    assert Watched(resumed).ids == (["a"], [])
