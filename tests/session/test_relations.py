"""Which event may follow which: refused on append, noted on load (`spec/session-log.md` §10)."""

from typing import Any

import pytest

from dsh.session.error import InvalidEvent
from dsh.session.log import Session
from dsh.session.restore import restore
from tests.ids import readable
from tests.session.build import (
    after_turn,
    answer,
    as_stored,
    call,
    header,
    in_step,
    prompt,
    reply,
    result,
    session,
    stored,
)

DONE: dict[str, Any] = {"turn": 1, "reason": {"kind": "completed"}}


def between_steps() -> Session:
    log = in_step()
    log.append("step/end", {"turn": 1, "step": 1})
    return log


def with_result(**data: Any) -> dict[str, Any]:
    return {"turn": 1, "step": 1, "message": result("c1"), **data}


@pytest.mark.parametrize(
    ("build", "kind", "data"),
    [
        (session, "turn/start", {"turn": 2}),
        (session, "turn/start", {"turn": 0}),
        (session, "turn/start", {"turn": True}),
        (session, "turn/start", {}),
        (session, "turn/start", None),
        (session, "turn/end", DONE),
        (session, "step/start", {"turn": 1, "step": 1}),
        (session, "todo/write", {"todos": []}),
        (session, "request/context", {"provider": "p", "model": "m"}),
        (session, "request/header", {"header": {"config": {"provider": "p", "model": "m"}}}),
        (session, "assistant/chunk", {"turn": 1, "step": 1, "chunk": {}}),
        (in_step, "turn/start", {"turn": 2}),
        (in_step, "turn/end", DONE),
        (in_step, "step/start", {"turn": 1, "step": 2}),
        (in_step, "step/end", {"turn": 1, "step": 2}),
        (in_step, "step/end", {"turn": 2, "step": 1}),
        (in_step, "tool/call", {"turn": 1, "step": 2, "callId": "c"}),
        (in_step, "assistant/chunk", {"turn": 1, "step": 2, "chunk": {}}),
        (in_step, "assistant/chunk", "x"),
        (between_steps, "turn/end", {**DONE, "turn": 2}),
        (between_steps, "step/start", {"turn": 1, "step": 1}),
        (between_steps, "step/start", {"turn": 1, "step": 3}),
        (between_steps, "step/start", {"turn": 2, "step": 2}),
        (between_steps, "step/end", {"turn": 1, "step": 1}),
        (after_turn, "turn/start", {"turn": 1}),
        (after_turn, "turn/start", {"turn": 3}),
    ],
    ids=readable,
)
def test_an_append_that_does_not_fit_is_refused_and_moves_nothing(build: Any, kind: str, data: Any) -> None:
    log = build()
    before = (log.length, log.last_turn, log.open_turn, log.open_step)

    with pytest.raises(InvalidEvent):
        log.append(kind, data)

    assert (log.length, log.last_turn, log.open_turn, log.open_step) == before


def test_numbers_of_turns_and_steps_go_on_after_an_end() -> None:
    log = after_turn()

    log.append("turn/start", {"turn": 2})
    log.append("step/start", {"turn": 2, "step": 1})

    assert (log.last_turn, log.open_turn, log.open_step) == (2, 2, 1)


def test_a_result_needs_a_started_call_of_this_step_or_says_it_did_not_start() -> None:
    log = in_step()
    with pytest.raises(InvalidEvent, match="waits for"):
        log.append("tool/result", with_result(), surface="append")

    not_started = with_result(error={"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"})
    log.append("tool/result", not_started, surface="append")
    answer(log, "c2", call(log, "c2"))
    with pytest.raises(InvalidEvent, match="waits for"):
        log.append("tool/result", with_result(message=result("c2", id="again")), surface="append")


def test_calls_of_an_ended_step_wait_no_more() -> None:
    log = in_step()
    seq = call(log, "c1")
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("step/start", {"turn": 1, "step": 2})

    with pytest.raises(InvalidEvent, match="waits for"):
        log.append("tool/result", with_result(step=2), surface="append", sources=[seq])


def test_a_rewritten_result_needs_an_open_turn_only() -> None:
    log = in_step()
    seq = answer(log, "c1", call(log, "c1"))
    log.append("step/end", {"turn": 1, "step": 1})
    rewrite: Any = {"op": "replace", "start": seq, "end": seq}

    log.append("tool/result", with_result(), surface=rewrite, sources=[seq])
    log.append("turn/end", DONE)

    rewrite = {"op": "replace", "start": log.length - 2, "end": log.length - 2}
    with pytest.raises(InvalidEvent, match="open turn"):
        log.append("tool/result", with_result(), surface=rewrite, sources=[log.length - 2])


def test_user_messages_and_events_of_plugins_may_stand_anywhere() -> None:
    log = session()

    log.append("user/message", prompt(), surface="append")
    log.append("plan/mode", {"active": True})
    log.append("acme/note", {}, ignorable=True)

    assert log.length == 3


def test_a_restored_log_is_told_what_does_not_fit_and_opens() -> None:
    log = after_turn()
    extra = stored("assistant/message", 4, {"turn": 1, "step": 1, "message": reply()}, surfaceOp="append")

    view = restore(header(), [*as_stored(log), extra]).view

    assert [seq for seq, _ in view.irregularities] == [4]
    assert view.derive_messages() == (reply(),)
    assert view.copy().irregularities == view.irregularities
