"""The rules of the surface, one by one and in their order (`spec/session-log.md` §7)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.error import InvalidEvent, SurfaceError
from dsh.session.log import Session
from dsh.session.restore import restore
from dsh.session.value import MAX_SAFE_INT
from tests.ids import readable
from tests.session.build import (
    answer,
    as_stored,
    call,
    call_block,
    header,
    in_step,
    prompt,
    reply,
    result,
    say,
    session,
    stored,
)


def talk() -> Session:
    """Seqs 0, 1: user messages; 2, 3: turn and step; 4: reply with a call; 5: the call; 6: its result."""
    log = session()
    say(log, "one", "m-1")
    say(log, "two", "m-2")
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    data = {"turn": 1, "step": 1, "message": reply(call_block("c1"))}
    log.append("assistant/message", data, surface="append", sources=[])
    answer(log, "c1", call(log, "c1"))
    return log


def replace(start: Any, end: Any) -> dict[str, Any]:
    return {"op": "replace", "start": start, "end": end}


USER: Any = prompt("x", "m-9")
RESULT: Any = {"turn": 1, "step": 1, "message": result("c1", "shorter")}

CASES = [
    (2, "turn/end", {"surfaceOp": None}),
    (2, "turn/end", {"surfaceOp": "append", "sourceEventSeqs": [0]}),
    (3, "turn/end", {"sourceEventSeqs": [0]}),
    (4, "user/message", {}),
    (4, "user/message", {"sourceEventSeqs": "x"}),
    (5, "user/message", {"surfaceOp": None}),
    (5, "user/message", {"surfaceOp": ["append"]}),
    (5, "user/message", {"surfaceOp": "replace"}),
    (6, "user/message", {"surfaceOp": {}}),
    (6, "user/message", {"surfaceOp": {"op": "replace", "start": 0}}),
    (6, "user/message", {"surfaceOp": {**replace(0, 0), "x": 1}}),
    (6, "user/message", {"surfaceOp": {**replace(0, 0), "op": "append"}}),
    (6, "user/message", {"surfaceOp": replace(True, 0)}),
    (6, "user/message", {"surfaceOp": replace(0, -1)}),
    (6, "user/message", {"surfaceOp": replace(0, 2**53)}),
    (7, "user/message", {"surfaceOp": replace(2, 2)}),
    (8, "user/message", {"surfaceOp": replace(0, 99)}),
    (9, "user/message", {"surfaceOp": replace(1, 0), "sourceEventSeqs": "x"}),
    (10, "user/message", {"surfaceOp": "append", "sourceEventSeqs": None}),
    (10, "user/message", {"surfaceOp": "append", "sourceEventSeqs": {}}),
    (11, "user/message", {"surfaceOp": "append", "sourceEventSeqs": []}),
    (12, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [True]}),
    (12, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [-1]}),
    (12, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [0, 0.5]}),
    (12, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [MAX_SAFE_INT + 1]}),
    (13, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [0, 0]}),
    (14, "user/message", {"surfaceOp": "append", "sourceEventSeqs": [7]}),
    (15, "user/message", {"surfaceOp": replace(0, 1), "sourceEventSeqs": [0]}),
    (15, "user/message", {"surfaceOp": replace(0, 1)}),
    (16, "tool/result", {"surfaceOp": replace(4, 6), "sourceEventSeqs": [4, 6]}),
    (17, "tool/result", {"surfaceOp": replace(4, 4), "sourceEventSeqs": [4]}),
]
DATA = {
    "turn/end": {"turn": 1, "reason": {"kind": "completed"}},
    "user/message": USER,
    "tool/result": RESULT,
}


@pytest.mark.parametrize(("rule", "kind", "keys"), CASES, ids=readable)
def test_each_rule_has_its_own_error_and_its_turn(rule: int, kind: str, keys: dict[str, Any]) -> None:
    log = talk()

    with pytest.raises(SurfaceError) as caught:
        log.load(stored(kind, 7, DATA[kind], **keys))

    assert caught.value.rule == rule
    assert (log.length, log.surface_nodes, log.replace_generation) == (7, (0, 1, 4, 6), 0)


def test_a_gap_is_not_contiguous() -> None:
    with pytest.raises(InvalidEvent, match="not contiguous"):
        talk().load(stored("feedback/record", 8, {"text": "x"}))


@pytest.mark.parametrize(
    "change",
    [
        {"turn": 2},
        {"step": 2},
        {"error": {"name": "E", "code": "C"}},
        {"meta": {}},
        {"message": result("c1", "shorter", "other")},
        {"message": {**RESULT["message"], "source": {"kind": "tool", "callId": "c1", "x": 1}}},
        {"message": {**RESULT["message"], "content": [{**RESULT["message"]["content"][0], "isError": True}]}},
    ],
    ids=readable,
)
def test_a_rewritten_result_differs_in_its_content_only(change: dict[str, Any]) -> None:
    with pytest.raises(SurfaceError) as caught:
        talk().load(
            stored("tool/result", 7, {**RESULT, **change}, surfaceOp=replace(6, 6), sourceEventSeqs=[6])
        )

    assert caught.value.rule == 18


def test_a_rewritten_result_takes_the_place_of_the_old_one() -> None:
    log = talk()

    log.append("tool/result", RESULT, surface=replace(6, 6), sources=[6])

    assert log.surface_nodes == (0, 1, 4, 7)
    assert log.replace_generation == 1
    assert log.derive_messages()[-1]["content"][0]["content"][0]["text"] == "shorter"  # type: ignore[typeddict-item]


def test_the_range_is_positional() -> None:
    log = talk()
    log.append("user/message", USER, surface=replace(0, 0), sources=[0])
    after_one = log.surface_nodes
    log.append("user/message", prompt("y", "m-10"), surface=replace(7, 1), sources=[7, 1])

    assert (after_one, log.surface_nodes) == ((7, 1, 4, 6), (8, 4, 6))


def test_only_an_assistant_message_may_cite_nothing() -> None:
    log = in_step()

    event = log.append(
        "assistant/message", {"turn": 1, "step": 1, "message": reply()}, surface="append", sources=[]
    )

    assert event.to_json()["sourceEventSeqs"] == ()


def test_live_events_have_sources_before_the_operation() -> None:
    log = talk()

    event = log.append("user/message", USER, surface=replace(0, 0), sources=[0])

    assert list(event.to_json()) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]
    assert list(event.to_json()["surfaceOp"]) == ["op", "start", "end"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=25))
def test_the_live_surface_is_the_fold_of_the_log(steps: list[tuple[int, int, bool]]) -> None:
    log = session()
    for number, (a, b, append) in enumerate(steps):
        message = prompt(str(number), f"m-{number}")
        nodes = log.surface_nodes
        if append or not nodes:
            log.append("user/message", message, surface="append")
        else:
            first, last = sorted((a % len(nodes), b % len(nodes)))
            cited = list(nodes[first : last + 1])
            log.append("user/message", message, surface=replace(nodes[first], nodes[last]), sources=cited)
        before = log.derive_messages()
        view = restore(header(), as_stored(log)).view
        assert view.surface_nodes == log.surface_nodes
        assert view.replace_generation == log.replace_generation
        assert view.derive_messages() == log.derive_messages() == before
