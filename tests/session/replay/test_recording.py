"""A recorded log as lives, and where its turns were cancelled."""

from typing import Any

import pytest

from dsh.session.chunk import TextDelta
from dsh.session.log import Session
from dsh.session.repair import OpenEnds
from dsh.session.replay.recording import Life, Recording, is_compared
from tests.session.build import after_turn, call_block, header, in_step, prompt, reply, result, session

ABORTED = {"name": "AbortError", "code": "ABORTED"}
BEFORE = {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}


def recording(log: Session) -> Recording:
    return Recording(log.header, log.walk())


def closed(log: Session) -> Recording:
    """As a repaired view of the log tells it."""
    ends = OpenEnds()
    for entry in log.walk():
        ends.see(entry)
    return Recording(log.header, [*log.walk(), *ends.closers()])


def end(log: Session, reason: dict[str, Any]) -> None:
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": reason})


def stop(log: Session, cause: dict[str, Any]) -> None:
    end(log, {"kind": "aborted", "reason": cause})


def answer(log: Session, call_id: str, error: dict[str, str] | None) -> int:
    data: dict[str, Any] = {"turn": 1, "step": 1, "message": result(call_id)}
    if error is not None:
        data["error"] = error
    return log.append("tool/result", data, surface="append").seq


def call(log: Session, *names: str) -> None:
    blocks = [call_block(name) for name in names]
    log.append("assistant/message", {"turn": 1, "step": 1, "message": reply(*blocks)}, surface="append")


def start(log: Session, call_id: str) -> int:
    data = {"turn": 1, "step": 1, "callId": call_id, "name": "read", "arguments": "{}"}
    return log.append("tool/call", data).seq


def test_a_plain_log_is_one_life() -> None:
    assert recording(after_turn()).lives == (Life(given=0, start=0, stop=4),)


def test_settings_at_the_start_are_given() -> None:
    log = session()
    log.append("sandbox/mode", {"mode": "read-only"})
    log.append("approval/policy", {"policy": "ask"})
    log.append("turn/start", {"turn": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})

    assert recording(log).lives == (Life(given=2, start=2, stop=4),)


def test_each_process_that_went_on_is_a_life_of_its_own() -> None:
    first = after_turn()
    second = Session.seeded(first.header, list(first.walk()))
    second.append("turn/start", {"turn": 2})
    second.append("turn/end", {"turn": 2, "reason": {"kind": "completed"}})

    assert recording(second).lives == (Life(given=0, start=0, stop=4), Life(given=4, start=5, stop=7))


def test_a_fork_begins_where_its_seed_ends() -> None:
    first = after_turn()
    fork = Session.seeded(header(parent_session="demo.0", seed_length=4), list(first.walk()))

    assert recording(fork).lives == (Life(given=4, start=5, stop=5),)


def test_a_life_that_a_crash_cut_ends_before_its_repair() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "he"))

    assert closed(log).lives == (Life(given=0, start=0, stop=3, is_cut=True),)


def test_results_that_repair_made_up_belong_to_the_repair() -> None:
    log = in_step()
    call(log, "c1")
    start(log, "c1")

    [life] = closed(log).lives

    assert (life.stop, life.is_cut) == (log.length, True)


def test_entries_before_a_seq_may_end_inside_a_packed_run() -> None:
    log = in_step()
    for text in "abc":
        log.append_chunk(1, 1, TextDelta(0, text))

    *_, run = recording(log).before(4)

    assert run.to_row()["data"]["texts"] == ["a", "b"]  # type: ignore[union-attr]


def test_a_cancelled_stream_was_cancelled_before_what_was_kept_of_it() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "he"))
    data = {"turn": 1, "step": 1, "message": reply(), "interrupted": True}
    kept = log.append("assistant/message", data, surface="append").seq
    stop(log, {"kind": "user"})

    [found] = recording(log).cancellations

    assert (found.seq, found.turn, found.cause, found.is_in_tool) == (kept, 1, {"kind": "user"}, False)
    assert not found.keeps_inbox


def test_a_stopped_tool_and_the_calls_behind_it_were_stopped_at_once() -> None:
    log = in_step()
    call(log, "c1", "c2", "c3")
    start(log, "c1")
    answer(log, "c1", None)
    start(log, "c2")
    first = answer(log, "c2", ABORTED)
    start(log, "c3")
    answer(log, "c3", BEFORE)
    stop(log, {"kind": "user"})

    [found] = recording(log).cancellations

    assert (found.seq, found.is_in_tool) == (first, True)


@pytest.mark.parametrize(
    ("cause", "keeps"),
    [
        ({"kind": "user"}, False),
        ({"kind": "hook", "reason": "limit:steps"}, True),
        ({"kind": "disposed"}, True),
        ({"kind": "hook", "reason": "signal:SIGTERM"}, False),
    ],
)
def test_limits_and_ends_keep_what_waits(cause: dict[str, Any], keeps: bool) -> None:
    log = in_step()
    stop(log, cause)

    [found] = recording(log).cancellations

    assert (found.seq, found.keeps_inbox) == (2, keeps)


def test_what_was_dropped_was_dropped_by_the_cancellation() -> None:
    log = in_step()
    log.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [prompt()]})
    dropped = {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": [], "outcome": "canceled"}
    first = log.append("agent/inbox/spliced", dropped).seq
    stop(log, {"kind": "user"})

    [found] = recording(log).cancellations

    assert (found.seq, found.keeps_inbox) == (first, False)


def test_a_turn_that_ended_by_itself_was_not_cancelled() -> None:
    log = in_step()
    end(log, {"kind": "completed"})

    assert recording(log).cancellations == ()


def test_titles_and_what_readers_may_ignore_is_not_compared() -> None:
    log = session()
    events = [
        log.append("acme/note", {}, ignorable=True),
        log.append("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "fallback"}}),
        log.append("turn/start", {"turn": 1}),
    ]

    assert [is_compared(event) for event in events] == [False, False, True]
