"""Forks: where one may begin, what it takes over, and that neither side sees the other again (§12, RF-05)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.chunk import TextDelta
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import SessionForkError
from dsh.session.fork import boundary_of_turn, fork_of
from dsh.session.inbox_fold import INBOX_SPLICED, fold_inbox
from dsh.session.log import Session
from dsh.session.restore import restore
from tests.ids import readable
from tests.session.build import Ticks, as_stored, header, prompt, reply, say, session


def turn(log: Session, *, tokens: int = 4) -> Session:
    """One turn with a prompt and a streamed reply."""
    number = log.last_turn + 1
    log.append("turn/start", {"turn": number})
    log.append("step/start", {"turn": number, "step": 1})
    say(log, f"question {number}", f"q-{log.id}-{number}")
    for _ in range(tokens):
        log.append_chunk(number, 1, TextDelta(0, "x"))
    data = {"turn": number, "step": 1, "message": reply(id=f"a-{log.id}-{number}")}
    log.append("assistant/message", data, surface="append", sources=[])
    log.append("step/end", {"turn": number, "step": 1})
    log.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})
    return log


def turns(count: int, **fields: Any) -> Session:
    log = session(**fields)
    for _ in range(count):
        turn(log)
    return log


def child(log: Session, boundary: int | None = None, id: str = "child") -> Session:  # noqa: A002
    return fork_of(log, boundary).session(id, clock=Ticks())


def code_of(log: Session, boundary: Any) -> str:
    with pytest.raises(SessionForkError) as caught:
        fork_of(log, boundary)
    assert caught.value.hint
    return caught.value.code


def test_a_fork_takes_over_the_log_and_where_it_belongs() -> None:
    log = turns(2, cwd="/srv/app", agent_preset="coder", delegation_depth=2, origin="subagent", seed_length=3)

    made = child(log)

    assert made.header.to_json() == {
        "version": 0,
        "id": "child",
        "createdAt": made.header.created_at,
        "cwd": "/srv/app",
        "parentSession": "demo.1",
        "seedLength": log.length,
        "origin": "subagent",
        "delegationDepth": 2,
        "agentPreset": "coder",
    }
    assert as_stored(made)[:-1] == as_stored(log)
    assert made.event(made.length - 1).type == "session/end-seed"
    assert made.derive_messages() == log.derive_messages()
    assert (made.first_live_seq, made.last_turn) == (log.length, 2)


def test_an_empty_session_forks_an_empty_child_and_absent_fields_stay_absent() -> None:
    made = child(session())

    assert [event.type for event in made.events()] == ["session/end-seed"]
    assert made.header.to_json().keys() == {"version", "id", "createdAt", "parentSession", "seedLength"}
    assert made.header.seed_length == 0


@pytest.mark.parametrize("boundary", [-1, 16, 2**53, True, "1", 1.0, "x", [], -0.0], ids=readable)
def test_a_boundary_is_the_seq_of_an_event(boundary: Any) -> None:
    log = turns(1)
    assert log.length < 16

    assert code_of(log, boundary) == "INVALID_BOUNDARY"
    assert code_of(session(), 0) == "INVALID_BOUNDARY"


def test_a_fork_begins_between_turns_only() -> None:
    log = turns(2)
    end = boundary_of_turn(log, 1)

    for seq in range(log.length):
        inside = seq not in (end, log.length - 1)
        if inside:
            assert code_of(log, seq) == "OPEN_TURN"
        else:
            assert child(log, seq).length == seq + 2


def test_a_log_only_event_behind_a_turn_is_a_boundary_whatever_the_turn_ended_with() -> None:
    log = session()
    log.append("plan/mode", {"active": True})
    assert child(log, 0).length == 2
    log.append("turn/start", {"turn": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "C"}}})
    log.append("feedback/record", {"text": "a"})

    assert child(log, 2).length == 4
    assert child(log, 3).length == 5


def test_an_older_turn_is_forked_while_the_last_one_is_open() -> None:
    log = turns(1)
    end = log.length - 1
    log.append("turn/start", {"turn": 2})

    assert code_of(log, None) == "OPEN_TURN"
    assert child(log, end).last_turn == 1
    with pytest.raises(SessionForkError, match="turn 2") as caught:
        boundary_of_turn(log, 2)
    assert caught.value.code == "OPEN_TURN"


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_turn_that_is_not_there_is_no_boundary(number: int) -> None:
    with pytest.raises(SessionForkError, match="1 to 2") as caught:
        boundary_of_turn(turns(2), number)

    assert caught.value.code == "INVALID_BOUNDARY"
    with pytest.raises(SessionForkError, match="no turns"):
        boundary_of_turn(session(), 1)


def test_runs_stay_packed_and_are_cut_where_the_fork_begins() -> None:
    log = turns(1)
    log.append("turn/start", {"turn": 2})
    log.append("step/start", {"turn": 2, "step": 1})

    seed = fork_of(log, log.length - 3)

    assert [len(entry) for entry in seed.entries if isinstance(entry, ChunkRun)] == [4]
    shared = [a is b for a, b in zip(seed.entries, log.entries(), strict=False)]
    assert all(shared)


def test_a_fork_of_a_stored_log_is_made_from_its_repaired_view() -> None:
    log = turns(1)
    log.append("turn/start", {"turn": 2})
    view = restore(header(), as_stored(log)).view

    made = child(view)

    assert [event.type for event in made.events(log.length)] == ["turn/end", "session/end-seed"]
    assert made.header.seed_length == view.length == log.length + 1


def test_what_waits_in_the_inbox_of_the_parent_is_not_inherited() -> None:
    log = turns(1)
    splice = {"target": "next-turn", "start": 0, "inserted": [prompt("later", "p-1")]}
    log.append(INBOX_SPLICED, splice)

    made = child(log)

    assert [m["id"] for m in fold_inbox(log).next_turn] == ["p-1"]
    assert fold_inbox(made).next_turn == []
    made.append(INBOX_SPLICED, splice)
    assert [m["id"] for m in fold_inbox(made).next_turn] == ["p-1"]
    resumed = restore(made.header, as_stored(made)).open()
    assert [m["id"] for m in fold_inbox(resumed).next_turn] == ["p-1"]


def test_a_fork_is_forked_and_a_parent_again() -> None:
    log = turns(2)

    first, second = child(log, boundary_of_turn(log, 1), "first"), child(log, id="second")
    turn(first)
    grandchild = child(first, id="third")

    assert (grandchild.header.parent_session, grandchild.header.seed_length) == ("first", first.length)
    assert grandchild.derive_messages()[:2] == log.derive_messages()[:2]
    assert second.derive_messages() == log.derive_messages()
    assert [event.type for event in grandchild.events()].count("session/end-seed") == 2


def test_a_fork_right_after_a_seed_repeats_no_mark() -> None:
    made = child(turns(1))

    again = child(made, id="again")

    assert again.length == made.length
    assert again.header.seed_length == made.length


@given(st.lists(st.sampled_from(["parent", "child", "chunk"]), max_size=12), st.integers(0, 2))
def test_neither_side_sees_what_the_other_one_appends(moves: list[str], at: int) -> None:
    log = turns(2)
    made = child(log, None if at == 0 else boundary_of_turn(log, at))
    seen = {log.id: as_stored(log), made.id: as_stored(made)}
    for move in moves:
        grown = made if move == "child" else log
        turn(grown, tokens=3 if move == "chunk" else 0)
        seen[grown.id] = as_stored(grown)
        assert as_stored(log) == seen[log.id]
        assert as_stored(made) == seen[made.id]
    for one in (log, made):
        view = restore(one.header, as_stored(one)).view
        assert (view.irregularities, view.derive_messages()) == ([], one.derive_messages())
