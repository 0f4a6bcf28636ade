"""The facts about a log that are most easily got wrong, one test each, in the order of `spec/session-log.md`.

How a headless log begins takes a run of the program: `tests/e2e/test_log_facts.py`.
"""

from typing import Any

import pytest

from dsh.session.chunk import ToolCallDelta
from dsh.session.chunk_row import pack, row_to_run
from dsh.session.error import CorruptLog, InvalidEvent, InvalidHeader, JsonError, SurfaceError, UnsupportedLog
from dsh.session.header import header_from_line
from dsh.session.log import Session
from dsh.session.restore import restore
from dsh.session.value import decode_strict, encode, json_equal, safe_int
from dsh.session.vocabulary import check_payload
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
from tests.session.sound import body

DONE: dict[str, Any] = {"turn": 1, "reason": {"kind": "completed"}}


def asked() -> Session:
    """A step whose only call has begun and has no result."""
    log = in_step()
    data = {"turn": 1, "step": 1, "message": reply(call_block("c1"))}
    log.append("assistant/message", data, surface="append", sources=[])
    call(log, "c1")
    return log


def test_sources_come_before_the_surface_operation_but_after_it_in_what_repair_writes() -> None:
    log = asked()
    live = log.event(answer(log, "c1", 3)).to_json()
    closer = restore(header(), as_stored(asked())).closers[0].to_json()

    assert list(live)[4:] == ["sourceEventSeqs", "surfaceOp"]
    assert list(closer)[4:] == ["surfaceOp", "sourceEventSeqs"]


def test_the_header_line_has_the_time_before_the_cwd_and_needs_the_depth_which_is_last_but_one() -> None:
    line = header(cwd="/w", agent_preset="p").to_line()

    assert list(line) == ["type", "version", "id", "createdAt", "cwd", "delegationDepth", "agentPreset"]
    without = {key: value for key, value in line.items() if key != "delegationDepth"}
    with pytest.raises(InvalidHeader, match="delegationDepth"):
        header_from_line(encode(without))


def test_the_data_of_a_user_message_is_the_message_and_the_others_wrap_it() -> None:
    log = asked()
    say(log, "hi", "m-1")
    answer(log, "c1", 3)

    user, wrapped = log.event(4).data, [log.event(seq).data["message"] for seq in (2, 5)]
    assert [message["role"] for message in (user, *wrapped)] == ["user", "assistant", "user"]
    with pytest.raises(InvalidEvent):
        log.append("user/message", {"message": prompt()}, surface="append")
    with pytest.raises(InvalidEvent):
        log.append("assistant/message", reply(id="a-2"), surface="append")


def test_an_assistant_message_may_cite_nothing_and_nobody_else_may_carry_an_empty_list() -> None:
    log = asked()
    assert log.event(2).sources == ()

    with pytest.raises(SurfaceError, match="must not be empty"):
        log.append("user/message", prompt(), surface="append", sources=[])
    data = {"turn": 1, "step": 1, "message": result("c1")}
    with pytest.raises(SurfaceError, match="must not be empty"):
        log.append("tool/result", data, surface="append", sources=[])


@pytest.mark.parametrize(
    ("kind", "data", "rule"), [("plan/mode", {"active": True}, 2), ("user/message", prompt(), 5)]
)
def test_a_surface_operation_of_null_is_present_and_invalid(kind: str, data: Any, rule: int) -> None:
    with pytest.raises(SurfaceError) as caught:
        Session(header()).load(stored(kind, 0, data, surfaceOp=None))

    assert caught.value.rule == rule


def test_the_end_of_a_seed_is_written_for_an_empty_one_and_not_for_a_fresh_session() -> None:
    assert [event.type for event in Session.seeded(header(), []).events()] == ["session/end-seed"]
    assert list(session().events()) == []
    with pytest.raises(InvalidEvent, match="construction"):
        session().append("session/end-seed", {})


def test_what_repair_writes_has_the_time_of_the_last_event() -> None:
    log = asked()

    closers = restore(header(), as_stored(log), clock=lambda: 9_999_999_999_999).closers

    assert {closer.time for closer in closers} == {log.event(log.length - 1).time}


@pytest.mark.parametrize("extra", [{"more": 1}, {"reason": {"kind": "completed", "more": 1}}])
def test_the_end_of_a_turn_is_checked_key_by_key_on_load_and_on_append(extra: dict[str, Any]) -> None:
    log = session()
    log.append("turn/start", {"turn": 1})
    with pytest.raises(InvalidEvent):
        log.append("turn/end", {**DONE, **extra})

    with pytest.raises(CorruptLog):
        restore(header(), [*as_stored(log), stored("turn/end", 1, {**DONE, **extra})])


def test_writers_pack_three_and_readers_take_one_and_gaps_may_be_negative_and_are_one_fewer() -> None:
    def data(texts: list[str], dt: list[int]) -> dict[str, Any]:
        return {"turn": 1, "step": 1, "index": 0, "dt": dt, "texts": texts}

    def run(texts: list[str], dt: list[int]) -> Any:
        return row_to_run({"type": "text-chunks", "seq0": 0, "time0": 9, "data": data(texts, dt)})

    assert [row["type"] for row in pack([run(["a"], [])])] == ["assistant/chunk"]
    assert [row["type"] for row in pack([run(["a", "b"], [1])])] == ["assistant/chunk"] * 2
    assert [row["data"]["dt"] for row in pack([run(["a", "b", "c"], [1, -7])])] == [[1, -7]]
    with pytest.raises(InvalidEvent):
        run(["a", "b"], [1, 2])


def test_a_name_on_the_first_delta_alone_leaves_that_one_loose_and_packs_the_rest_without_a_name() -> None:
    log = in_step()
    log.append_chunk(1, 1, ToolCallDelta(0, "c1", "bash", arguments_delta=""))
    for piece in ("{", "}", " "):
        log.append_chunk(1, 1, ToolCallDelta(0, "c1", arguments_delta=piece))

    loose, row = pack(log.entries(2))

    assert (loose["type"], loose["data"]["chunk"]["name"]) == ("assistant/chunk", "bash")
    assert (row["type"], "name" in row["data"], row["data"]["args"]) == (
        "tool-call-chunks",
        False,
        ["{", "}", " "],
    )


def test_a_replaced_range_is_one_of_positions_and_may_go_down_in_numbers() -> None:
    log = session()
    first, second = say(log, "a", "m-1"), say(log, "b", "m-2")
    span = {"op": "replace", "start": first, "end": first}
    third = log.append("user/message", prompt(id="m-3"), surface=span, sources=[first]).seq
    assert log.surface_nodes == (third, second)

    span = {"op": "replace", "start": third, "end": second}
    log.append("user/message", prompt(id="m-4"), surface=span, sources=[second, third])
    assert third > second
    assert len(log.surface_nodes) == 1


def test_the_dialect_of_hooks_is_claude_code() -> None:
    hook = {"turn": 1, "point": "Stop", "handlerId": "h"}
    check_payload("hook/invoked", {**hook, "dialect": "claude-code"})

    with pytest.raises(InvalidEvent, match="dialect"):
        check_payload("hook/invoked", {**hook, "dialect": "claude"})


def test_the_length_of_the_seed_is_lineage_and_the_first_live_seq_is_of_this_process() -> None:
    parent = session()
    say(parent, "a", "m-1")
    child = Session.seeded(header(parent_session="p", seed_length=1), parent.entries())
    assert (child.header.seed_length, child.first_live_seq) == (1, 1)
    say(child, "b", "m-2")

    resumed = restore(child.header, as_stored(child)).open()

    assert (resumed.header.seed_length, resumed.first_live_seq) == (1, 3)


def test_an_unknown_type_is_no_corruption() -> None:
    with pytest.raises(UnsupportedLog) as caught:
        restore(header(), [stored("new.kind/x", 0, {}), stored("plan/mode", 1, {"active": True})])

    assert not isinstance(caught.value, CorruptLog)
    assert caught.value.index == 0


@pytest.mark.parametrize("number", [True, 1.5, "1", 2**53])
def test_true_is_no_number_and_no_equal_of_one(number: Any) -> None:
    assert json_equal(1, 1.0)
    assert not json_equal(1, True)
    assert (safe_int(1.0), safe_int(number)) == (1, None)
    with pytest.raises((InvalidEvent, JsonError)):
        session().append("turn/start", {"turn": number})
    with pytest.raises(InvalidEvent):
        Session(header()).load({**stored("plan/mode", 0, {"active": True}), "seq": number})


def test_chunks_of_a_failed_attempt_stay_and_are_not_cited() -> None:
    view = restore(header(), decode_strict(encode(body()))).view

    chunks = [event.seq for event in view.events() if event.type == "assistant/chunk"]
    cited = [seq for event in view.select("assistant/message") for seq in event.sources or ()]
    assert sorted(set(chunks) - set(cited)) == [7, 8], "the attempt before llm/retry"
