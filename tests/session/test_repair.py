"""Closers of a log that a crash cut short (`spec/session-log.md` §13, case RF-01)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.chunk import TextDelta
from dsh.session.chunk_run import Entry
from dsh.session.error import CorruptLog, InvalidEvent
from dsh.session.event import RepairEvent
from dsh.session.log import Session
from dsh.session.repair import OpenEnds
from dsh.session.restore import restore
from dsh.session.value import JsonObject
from tests.ids import readable
from tests.session.build import (
    answer,
    as_stored,
    call,
    call_block,
    header,
    in_step,
    plain,
    reply,
    session,
    stored,
)


def closers(entries: Iterable[JsonObject | Entry]) -> list[RepairEvent]:
    ends = OpenEnds()
    for entry in entries:
        ends.see(entry)
    return ends.closers()


def asked(*calls: str) -> Session:
    """A session whose model has asked for these calls in step 1."""
    log = in_step()
    blocks = [call_block(call_id) for call_id in calls]
    data = {"turn": 1, "step": 1, "message": reply(*blocks)}
    log.append("assistant/message", data, surface="append", sources=[])
    return log


def brief(log: Session | list[JsonObject]) -> list[tuple[Any, ...]]:
    """What repair adds: type, seq and what distinguishes it."""
    entries = as_stored(log) if isinstance(log, Session) else log
    out: list[tuple[Any, ...]] = []
    for event in closers(entries):
        data, more = event.data, tuple[Any, ...]()
        if event.type == "tool/result":
            more = (data["message"]["source"]["callId"], data["error"]["code"], event.sources, data["step"])
        elif event.type == "step/end":
            more = (data["turn"], data["step"])
        else:
            more = (data["turn"], data["reason"]["kind"])
        out.append((event.type, event.seq, *more))
    return out


def end(log: Session, *, step: bool = True) -> Session:
    if step:
        log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return log


def test_an_empty_and_a_balanced_log_need_nothing() -> None:
    assert closers([]) == []
    assert brief(end(in_step())) == []


def test_an_open_turn_is_closed() -> None:
    log = session()
    log.append("turn/start", {"turn": 1})

    assert brief(log) == [("turn/end", 1, 1, "interrupted")]


def test_an_open_step_is_closed_before_its_turn_at_the_time_of_the_last_event() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "a"))
    log.append_chunk(1, 1, TextDelta(0, "b"))

    assert brief(log) == [("step/end", 4, 1, 1), ("turn/end", 5, 1, "interrupted")]
    assert {event.time for event in closers(log.entries())} == {log.event(3).time}


def test_calls_that_never_started_say_so_in_the_order_of_the_model() -> None:
    assert brief(asked("c1", "c2")) == [
        ("tool/result", 3, "c1", "TOOL_NOT_STARTED", None, 1),
        ("tool/result", 4, "c2", "TOOL_NOT_STARTED", None, 1),
        ("step/end", 5, 1, 1),
        ("turn/end", 6, 1, "interrupted"),
    ]


def test_started_calls_have_an_unknown_outcome_and_answered_ones_nothing() -> None:
    log = asked("c1", "c2", "c3")
    first, second = call(log, "c1"), call(log, "c2")
    answer(log, "c2", second)

    assert brief(log)[:-2] == [
        ("tool/result", 6, "c1", "TOOL_OUTCOME_UNKNOWN", (first,), 1),
        ("tool/result", 7, "c3", "TOOL_NOT_STARTED", None, 1),
    ]


def test_a_call_that_no_message_asked_for_is_ignored() -> None:
    log = in_step()
    call(log, "stray")

    assert [row[0] for row in brief(log)] == ["step/end", "turn/end"]


def test_calls_that_the_last_step_closed_over_get_results_before_the_turn_ends() -> None:
    log = asked("c1", "c2", "c3")
    first = call(log, "c1")
    answer(log, "c3", call(log, "c3"))
    log.append("step/end", {"turn": 1, "step": 1})

    assert brief(log) == [
        ("tool/result", 7, "c1", "TOOL_OUTCOME_UNKNOWN", (first,), 1),
        ("tool/result", 8, "c2", "TOOL_NOT_STARTED", None, 1),
        ("turn/end", 9, 1, "interrupted"),
    ]
    view = restore(header(), as_stored(log)).view
    assert view.irregularities == []
    assert restore(header(), as_stored(view)).closers == ()


def test_calls_that_an_earlier_step_closed_over_are_left_to_the_request() -> None:
    log = asked("c1")
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("step/start", {"turn": 1, "step": 2})

    assert [row[0] for row in brief(log)] == ["step/end", "turn/end"]
    log.append("step/end", {"turn": 1, "step": 2})
    assert [row[0] for row in brief(log)] == ["turn/end"]


@pytest.mark.parametrize(
    "change", [{"step": 2}, {"turn": 2}, {"error": {"name": "X", "code": "X"}}], ids=readable
)
def test_only_what_repair_would_write_may_follow_a_closed_step(change: dict[str, Any]) -> None:
    log = asked("c1")
    call(log, "c1")
    log.append("step/end", {"turn": 1, "step": 1})
    made = plain(closers(as_stored(log))[0].data)

    with pytest.raises(InvalidEvent, match="open is"):
        log.append("tool/result", {**made, **change}, surface="append", sources=[3])
    log.append("tool/result", made, surface="append", sources=[3])
    with pytest.raises(InvalidEvent, match="open is"):
        log.append("tool/result", made, surface="append", sources=[3])


def test_a_call_registered_outside_a_step_is_answered_without_a_step_end() -> None:
    log = [*as_stored(in_step()), stored("step/end", 2, {"turn": 1, "step": 1})]
    message = {"turn": 1, "step": 1, "message": plain(reply(call_block("c1")))}
    log.append(stored("assistant/message", 3, message, surfaceOp="append"))

    assert brief(log) == [
        ("tool/result", 4, "c1", "TOOL_NOT_STARTED", None, 1),
        ("turn/end", 5, 1, "interrupted"),
    ]
    assert restore(header(), log).view.length == 6


def test_an_id_asked_for_again_forgets_its_start_and_keeps_its_place() -> None:
    log = asked("c1", "c2")
    call(log, "c1")
    data = {"turn": 1, "step": 1, "message": reply(call_block("c1"), id="a-2")}
    log.append("assistant/message", data, surface="append", sources=[])

    assert [row[2:4] for row in brief(log)[:2]] == [("c1", "TOOL_NOT_STARTED"), ("c2", "TOOL_NOT_STARTED")]


def test_a_result_is_written_key_for_key_as_specified() -> None:
    log = asked("c7")
    seq = call(log, "c7")

    event = closers(as_stored(log))[0].to_json()

    assert list(event) == ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs"]
    assert list(event["data"]) == ["turn", "step", "message", "error"]
    assert list(event["data"]["message"]) == ["id", "role", "source", "content"]
    assert list(event["data"]["message"]["content"][0]) == ["type", "toolCallId", "isError", "content"]
    assert event["data"]["message"]["id"] == "interrupted-tool-result-c7-4"
    assert event["data"]["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert event["sourceEventSeqs"] == (seq,)
    assert "unknown" in event["data"]["message"]["content"][0]["content"][0]["text"]


def test_a_turn_number_that_no_reader_accepts_is_refused_closers_included() -> None:
    with pytest.raises(CorruptLog) as caught:
        restore(header(), [stored("turn/start", 0, {"turn": 0})])

    assert caught.value.index == 1


@pytest.mark.parametrize(
    "junk",
    [
        stored("turn/start", 1, None),
        stored("assistant/message", 1, {"message": {"content": [1, {"type": "tool-call", "id": 3}]}}),
        stored("assistant/message", 1, {"message": 1}),
        stored("tool/result", 1, {"message": {"source": 1}}),
        stored("tool/call", 1, {"callId": []}),
        {"seq": 1},
        {},
    ],
    ids=readable,
)
def test_the_scan_survives_what_was_not_validated_yet(junk: dict[str, Any]) -> None:
    added = closers([stored("turn/start", 0, {"turn": 1}), junk])

    assert added[-1].type == "turn/end"


@given(st.lists(st.sampled_from(["ask", "start", "answer", "step", "turn", "text"]), max_size=25), st.data())
def test_every_cut_of_a_log_is_repaired_once_and_every_call_is_answered(
    moves: list[str], data: st.DataObject
) -> None:
    log = in_step()
    waiting: list[str] = []
    started: list[tuple[str, int]] = []
    for number, move in enumerate(moves):
        turn, step = log.open_turn, log.open_step
        if turn is None:
            log.append("turn/start", {"turn": log.last_turn + 1})
            log.append("step/start", {"turn": log.last_turn, "step": 1})
        elif step is None:
            raise AssertionError("a step is always open")
        elif move == "ask" and not waiting and not started:
            waiting = [f"c{number}-{i}" for i in range(2)]
            message = {
                "turn": turn,
                "step": step,
                "message": reply(*map(call_block, waiting), id=f"a{number}"),
            }
            log.append("assistant/message", message, surface="append", sources=[])
        elif move == "start" and waiting:
            call_id = waiting.pop(0)
            started.append((call_id, call(log, call_id)))
        elif move == "answer" and started:
            answer(log, *started.pop(0))
        elif move == "text":
            log.append_chunk(turn, step, TextDelta(0, "x"))
        elif move in ("step", "turn") and not waiting and not started:
            log.append("step/end", {"turn": turn, "step": step})
            if move == "turn":
                log.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            else:
                log.append("step/start", {"turn": turn, "step": step + 1})
    entries = as_stored(log)
    cut = entries[: data.draw(st.integers(0, len(entries)))]

    restored = restore(header(), cut)

    view = restored.view
    assert (view.open_turn, view.open_step, view.irregularities) == (None, None, [])
    assert closers(view.entries()) == []
    assert restore(header(), as_stored(view)).closers == ()
    owed: list[str] = []
    for shown in view.derive_messages():
        if shown["role"] == "assistant":
            assert owed == []
            owed = [block["id"] for block in shown["content"] if block["type"] == "tool-call"]
        else:
            assert shown["source"]["callId"] == owed.pop(0)
    assert owed == []
