"""The inbox as the log tells it (`spec/session-log.md` §14)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.error import InvalidEvent
from dsh.session.inbox_fold import INBOX_SPLICED, InboxLists, consumed_work, fold_inbox, unentered
from dsh.session.log import Session
from tests.ids import readable
from tests.session.build import Ticks, header, prompt, session, stored


def splice(log: Session, target: str, start: int, *ids: str, removed: int = 0, outcome: str = "") -> None:
    data: dict[str, Any] = {"target": target, "start": start}
    if removed:
        data["removedCount"] = removed
    data["inserted"] = [prompt("x", message_id) for message_id in ids]
    if outcome:
        data["outcome"] = outcome
    log.append(INBOX_SPLICED, data)


def ids(lists: InboxLists) -> tuple[list[str], list[str]]:
    return [m["id"] for m in lists.next_turn], [m["id"] for m in lists.next_step]


def test_splices_leave_what_is_pending() -> None:
    log = session()
    splice(log, "next-turn", 0, "a", "b")
    splice(log, "next-step", 0, "c")
    splice(log, "next-turn", 0, removed=1)
    splice(log, "next-turn", 1, "d")
    splice(log, "next-turn", 0, "b2", removed=1, outcome="canceled")

    assert ids(fold_inbox(log)) == (["b2", "d"], ["c"])


def test_a_fork_does_not_inherit_what_is_pending_and_a_resume_does() -> None:
    parent = session()
    splice(parent, "next-turn", 0, "a")

    fork = Session.seeded(header(id="f", seed_length=1), parent.entries(), clock=Ticks())
    resumed = Session.seeded(header(), parent.entries(), clock=Ticks())

    assert ids(fold_inbox(fork)) == ([], [])
    assert ids(fold_inbox(resumed)) == (["a"], [])


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"target": "later", "start": 0, "inserted": []},
        {"target": "next-turn", "start": 2, "inserted": []},
        {"target": "next-turn", "start": -1, "inserted": []},
        {"target": "next-turn", "start": True, "inserted": []},
        {"target": "next-turn", "start": 0, "removedCount": 2, "inserted": []},
        {"target": "next-turn", "start": 0, "removedCount": -1, "inserted": []},
        {"target": "next-turn", "start": 0},
        {"target": "next-turn", "start": 0, "inserted": [{}]},
        {"target": "next-turn", "start": 0, "inserted": [{"id": []}]},
        {"target": "next-turn", "start": 0, "inserted": [{"id": {}}]},
        {"target": "next-step", "start": 0, "inserted": [prompt("x", "a")]},
        {"target": "next-turn", "start": 0, "inserted": [prompt("x", "b"), prompt("x", "b")]},
    ],
    ids=readable,
)
def test_a_stored_splice_that_does_not_fit_names_its_seq(data: Any) -> None:
    log = session()
    splice(log, "next-turn", 0, "a")
    log.load(stored(INBOX_SPLICED, 1, data))

    with pytest.raises(InvalidEvent, match="event 1"):
        fold_inbox(log)


def test_a_message_may_take_its_own_place() -> None:
    log = session()
    splice(log, "next-turn", 0, "a")
    splice(log, "next-turn", 0, "a", removed=1)

    assert ids(fold_inbox(log)) == (["a"], [])


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), max_size=20)
)
def test_replayed_splices_are_the_live_lists(moves: list[tuple[bool, int, int, int]]) -> None:
    log = session()
    live: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    for number, (turn, start, removed, inserted) in enumerate(moves):
        target = "next-turn" if turn else "next-step"
        there = live[target]
        start = min(start, len(there))
        removed = min(removed, len(there) - start)
        fresh = [f"m{number}-{i}" for i in range(inserted)]
        splice(log, target, start, *fresh, removed=removed)
        there[start : start + removed] = fresh

    assert ids(fold_inbox(log)) == (live["next-turn"], live["next-step"])


def turn(
    log: Session, number: int, *, step: bool = False, claim: bool = False, reason: str = "completed"
) -> int:
    log.append("turn/start", {"turn": number})
    if claim:
        splice(log, "next-turn", 0, removed=1)
    if step:
        log.append("step/start", {"turn": number, "step": 1})
        log.append("step/end", {"turn": number, "step": 1})
    return log.append("turn/end", {"turn": number, "reason": {"kind": reason}}).seq


@pytest.mark.parametrize(
    ("step", "claim", "reason", "counts"),
    [
        (True, False, "completed", True),
        (False, True, "completed", False),
        (False, True, "blocked", True),
        (False, False, "blocked", False),
    ],
)
def test_a_turn_did_work_when_it_entered_a_step_or_took_input_in_vain(
    step: bool, claim: bool, reason: str, counts: bool
) -> None:
    log = session()
    splice(log, "next-turn", 0, "a")
    seq = turn(log, 1, step=step, claim=claim, reason=reason)

    end = consumed_work(log).end

    assert (end.seq if end else None) == (seq if counts else None)


def test_cancelled_input_is_dropped_until_the_next_turn_that_did_work() -> None:
    log = session()
    splice(log, "next-turn", 0, "a", "b")
    splice(log, "next-turn", 0, removed=1, outcome="canceled")
    assert consumed_work(log).dropped_unrun
    turn(log, 1)
    assert consumed_work(log).dropped_unrun
    turn(log, 2, step=True)
    assert not consumed_work(log).dropped_unrun
    splice(log, "next-turn", 0, "c", removed=1, outcome="canceled")
    assert not consumed_work(log).dropped_unrun


# -- claimed and not entered ---------------------------------------------------------------------------


def claimed(log: Session, number: int, *ids: str) -> None:
    """A turn that has claimed the first of these prompts, and a note."""
    for message_id in ids:
        splice(log, "next-turn", 0, message_id)
    splice(log, "next-step", 0, "note")
    log.append("turn/start", {"turn": number})
    splice(log, "next-step", 0, removed=1)
    splice(log, "next-turn", 0, removed=1)


def cut(log: Session, number: int, *, step: bool = False) -> None:
    """What repair writes."""
    if step:
        log.append("step/end", {"turn": number, "step": 1})
    log.append("turn/end", {"turn": number, "reason": {"kind": "interrupted"}})


def out(log: Session) -> list[tuple[str, str]]:
    return [(target, message["id"]) for target, message in unentered(log)]


def test_a_claim_that_was_cut_off_names_its_messages_and_their_lists() -> None:
    log = session()
    claimed(log, 1, "a")
    assert out(log) == [], "the turn is open: its driver knows better"
    cut(log, 1)
    assert out(log) == [("next-step", "note"), ("next-turn", "a")]


def test_what_entered_before_the_cut_is_not_among_them() -> None:
    log = session()
    claimed(log, 1, "a")
    log.append("step/start", {"turn": 1, "step": 1})
    log.append("user/message", prompt("x", "note"), surface="append")
    cut(log, 1, step=True)
    assert out(log) == [("next-turn", "a")]


def test_what_a_listener_left_out_of_a_step_that_went_on_is_not_among_them() -> None:
    log = session()
    claimed(log, 1, "a")
    log.append("step/start", {"turn": 1, "step": 1})
    log.append("user/message", prompt("x", "a"), surface="append")
    log.append("request/context", {"provider": "p", "model": "m"})
    cut(log, 1, step=True)
    assert out(log) == []


@pytest.mark.parametrize("reason", ["completed", "blocked", "max-tokens"])
def test_a_turn_that_ended_by_itself_has_decided(reason: str) -> None:
    log = session()
    claimed(log, 1, "a")
    log.append("turn/end", {"turn": 1, "reason": {"kind": reason}})
    assert out(log) == []


def test_what_was_put_back_already_is_not_put_back_again_even_if_it_was_dropped_since() -> None:
    log = session()
    claimed(log, 1, "a")
    cut(log, 1)
    splice(log, "next-turn", 0, "a")
    assert out(log) == [("next-step", "note")]
    splice(log, "next-turn", 0, removed=1, outcome="canceled")
    assert out(log) == [("next-step", "note")]


def test_a_later_turn_closes_the_case() -> None:
    log = session()
    claimed(log, 1, "a")
    cut(log, 1)
    log.append("turn/start", {"turn": 2})
    assert out(log) == []
    cut(log, 2)
    assert out(log) == []


def test_a_fork_gets_back_nothing_that_its_parent_claimed() -> None:
    parent = session()
    claimed(parent, 1, "a")
    cut(parent, 1)
    fork = Session.seeded(header(id="f", seed_length=parent.length), parent.entries(), clock=Ticks())
    assert out(fork) == []


def test_a_session_without_turns_has_claimed_nothing() -> None:
    log = session()
    splice(log, "next-turn", 0, "a")
    assert out(log) == []
