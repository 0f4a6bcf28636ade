"""The check of a log that opens: what is found, and that a sound log has nothing to be found."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.sessions.terminal import Look
from dsh.cli.sessions.timeline import drawn, timeline
from dsh.persistence.error import LogRefusal
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.chunk_row import is_row, pack, row_to_run
from dsh.session.chunk_run import ChunkRun
from dsh.session.envelope import event_from_json
from dsh.session.error import SessionError
from dsh.session.log import Session
from dsh.session.projection.context_size import CONTEXT_BREAKDOWN, CONTEXT_PRESSURE
from dsh.session.projection.error import ProjectionError
from dsh.session.projection.stats import STATS
from dsh.session.projection.title import TITLE
from dsh.session.projection.todos import TODOS
from dsh.session.projection.token_usage import TOKEN_USAGE
from dsh.session.projection.unit import Unit, fold
from dsh.session.restore import restore
from dsh.session.value import JsonObject, decode_strict, encode
from dsh.session.verify.finding import Finding, Findings
from dsh.session.verify.log import Verdict, verify
from tests.corpus import CORPUS, needs_corpus
from tests.session.build import header, prompt, result, stored
from tests.session.sound import CONFIG, Events, body, find, insert, remove, with_digests


def check(events: Events, **changes: Any) -> Verdict:
    """Both as single events and packed into rows: the findings are the same."""
    loose = verify(opened(list(events), **changes))
    rows = list(pack(event_from_json(event) for event in decode_strict(encode(events))))
    packed: list[JsonObject | ChunkRun] = [row_to_run(row) if is_row(row) else row for row in rows]
    assert verify(opened(packed, **changes)) == loose
    return loose


def opened(entries: list[Any], **changes: Any) -> Session:
    return restore(header(**changes), entries).view


def codes(events: Events, **changes: Any) -> list[tuple[str, str, int | None]]:
    return [(found.level, found.code, found.seq) for found in check(events, **changes).findings]


def test_a_sound_log_has_no_findings_and_everything_was_looked_at() -> None:
    assert check(body()) == Verdict(findings=(), calls=2, replies=2, digests=0)


def test_an_empty_log_has_no_findings() -> None:
    assert check([]).findings == ()


# -- calls and results ---------------------------------------------------------------------------


def test_a_call_without_result_in_a_turn_that_went_on_is_an_error() -> None:
    events = body()
    remove(events, find(events, "tool/result", 1)["seq"])

    assert codes(events) == [("error", "CALL_UNANSWERED", find(events, "assistant/message")["seq"])]


def test_a_call_without_result_in_a_turn_that_was_cut_off_is_a_warning() -> None:
    events = body()
    answer = find(events, "tool/result", 1)["seq"]
    second = find(events, "step/start", 1)["seq"]
    end = {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}}}
    events[second:] = [stored("turn/end", second, end)]
    remove(events, answer)

    assert codes(events) == [("warning", "CALL_UNANSWERED", find(events, "assistant/message")["seq"])]


def test_a_second_result_of_one_call() -> None:
    events = body()
    answer = find(events, "tool/result", 1)
    data = {**answer["data"], "message": result("c2", id="again")}
    insert(
        events,
        answer["seq"] + 1,
        "tool/result",
        data,
        sourceEventSeqs=[answer["seq"] - 1],
        surfaceOp="append",
    )

    found = codes(events)

    assert ("error", "RESULT_TWICE", answer["seq"] + 1) in found


def test_one_id_may_be_given_in_each_step_and_twice_in_one() -> None:
    events = decode_strict(encode(body()).replace(b'"c2"', b'"c1"'))

    assert codes(events) == []


def test_a_result_that_no_call_of_its_step_explains() -> None:
    events = body()
    end = find(events, "step/end", 0)["seq"]
    error = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    data = {"turn": 1, "step": 1, "message": result("c9"), "error": error}
    insert(events, end, "tool/result", data, surfaceOp="append")

    assert codes(events) == [("error", "RESULT_WITHOUT_CALL", end)]


def test_results_stand_in_the_order_of_the_calls() -> None:
    events = body()
    first, second = find(events, "tool/call", 0), find(events, "tool/call", 1)
    one, two = first["seq"], second["seq"]
    events[one : two + 2] = [events[two], events[two + 1], events[one], events[one + 1]]
    for seq, event in enumerate(events):
        event["seq"] = seq
    find(events, "tool/result", 0)["sourceEventSeqs"] = [one]
    find(events, "tool/result", 1)["sourceEventSeqs"] = [two]

    assert codes(events) == [("error", "RESULT_OUT_OF_PLACE", one + 1)]


def test_a_result_cites_its_call() -> None:
    events = body()
    find(events, "tool/result", 1)["sourceEventSeqs"] = [find(events, "tool/call", 0)["seq"]]
    del find(events, "tool/result", 0)["sourceEventSeqs"]

    assert codes(events) == [
        ("warning", "RESULT_UNCITED", find(events, "tool/result", 0)["seq"]),
        ("error", "RESULT_CITES_OTHER", find(events, "tool/result", 1)["seq"]),
    ]


def test_a_call_that_nobody_asked_for() -> None:
    events = body()
    end = find(events, "step/end", 0)["seq"]
    insert(
        events, end, "tool/call", {"turn": 1, "step": 1, "callId": "c9", "name": "bash", "arguments": "{}"}
    )

    assert codes(events) == [("error", "CALL_NOT_ASKED", end)]


def test_a_call_says_what_the_model_said() -> None:
    events = body()
    find(events, "tool/call", 1)["data"]["arguments"] = '{"command":"rm"}'

    assert codes(events) == [("error", "CALL_DIFFERS", find(events, "tool/call", 1)["seq"])]


# -- turns, steps, payloads ----------------------------------------------------------------------


def test_an_event_outside_of_its_step_is_an_error() -> None:
    events = body()
    remove(events, find(events, "step/end", 1)["seq"])

    assert codes(events) == [("error", "IRREGULAR", find(events, "turn/end")["seq"])]


def test_a_recording_of_a_model_is_told_as_one() -> None:
    events = [event for event in body() if event["type"] == "assistant/chunk"]
    for seq, event in enumerate(events):
        event["seq"] = seq

    assert codes(events) == [("warning", "RECORDING", 0)]


def test_a_fork_that_lacks_part_of_its_seed() -> None:
    count = len(body())

    assert codes(body(), parent_session="p", seed_length=count) == []
    assert codes(body(), parent_session="p", seed_length=count + 1) == [("error", "SEED_INCOMPLETE", None)]
    assert codes(body(), seed_length=1)[0] == ("error", "SEED_INCOMPLETE", None)


# -- what requests were sent with ----------------------------------------------------------------


@pytest.mark.parametrize("reason", ["resume", "change"])
def test_the_first_request_header_is_initial(reason: str) -> None:
    events = body()
    found = find(events, "request/header")
    found["data"]["reason"] = reason

    assert codes(events) == [("error", "HEADER_REASON", found["seq"])]


def second_header(
    reason: str, change: Callable[[dict[str, Any]], None], *, is_resumed: bool = False
) -> Events:
    """The log with a second request header in its second step."""
    events = body()
    made = decode_strict(encode(find(events, "request/header")["data"]["header"]))
    change(made)
    at = find(events, "step/start", 1)["seq"] + 1
    insert(events, at, "request/header", {"header": made, "reason": reason})
    if is_resumed:
        insert(events, at, "session/end-seed", {})
    return events


def effort(made: dict[str, Any]) -> None:
    made["config"]["reasoningEffort"] = "high"


def same(made: dict[str, Any]) -> None:
    made["system"] = ""


def reordered(made: dict[str, Any]) -> None:
    tool = made["tools"][0]
    made["tools"] = [dict(reversed(tool.items()))]


def test_a_later_header_says_why_it_is_there() -> None:
    assert codes(second_header("change", effort)) == []
    assert codes(second_header("resume", same)) == [], "a loop was built anew in one process"
    assert codes(second_header("resume", same, is_resumed=True)) == []
    for events in (second_header("initial", effort), second_header("change", effort, is_resumed=True)):
        assert codes(events) == [("error", "HEADER_REASON", find(events, "request/header", 1)["seq"])]


def test_a_change_that_changes_nothing() -> None:
    events = second_header("change", same)
    assert codes(events) == [("error", "HEADER_UNCHANGED", find(events, "request/header", 1)["seq"])]


def test_the_original_takes_another_order_of_keys_for_a_change() -> None:
    events = second_header("change", reordered)
    assert codes(events) == [("warning", "HEADER_REORDERED", find(events, "request/header", 1)["seq"])]


def test_a_reply_comes_from_where_the_request_went() -> None:
    events = body()
    find(events, "assistant/message", 1)["data"]["message"]["source"]["model"] = "acme-2"

    assert codes(events) == [("error", "REPLY_FROM_OTHER", find(events, "assistant/message", 1)["seq"])]


def test_a_reply_without_any_request_header() -> None:
    events = body()
    remove(events, find(events, "request/header")["seq"])

    assert {code for _, code, _ in codes(events)} == {"REPLY_WITHOUT_HEADER"}


def test_a_route_is_recorded_when_it_changes() -> None:
    events = body()
    at = find(events, "step/start", 1)["seq"] + 1
    insert(events, at, "request/context", CONFIG)

    assert codes(events) == [("warning", "CONTEXT_UNCHANGED", at)]


# -- digests -------------------------------------------------------------------------------------


def test_every_recorded_digest_is_computed_again() -> None:
    assert check(with_digests()) == Verdict(findings=(), calls=2, replies=2, digests=3)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"digest": "0" * 64}, ("error", "DIGEST_DIFFERS")),
        ({"messages": 3}, ("error", "DIGEST_DIFFERS")),
        ({"messages": True}, ("error", "DIGEST_DIFFERS")),
        ({"attempt": 2}, ("error", "DIGEST_ATTEMPT")),
        ({"algorithm": "blake3"}, ("warning", "DIGEST_UNCHECKED")),
    ],
)
def test_a_digest_that_does_not_fit(change: dict[str, Any], finding: tuple[str, str]) -> None:
    events = with_digests(**change)
    assert codes(events) == [(*finding, find(events, "request/digest", 2)["seq"])]


def test_a_text_that_was_changed_afterwards_shows_in_every_later_digest() -> None:
    events = with_digests()
    find(events, "user/message")["data"]["content"][0]["text"] = "say ho"

    assert [code for _, code, _ in codes(events)] == ["DIGEST_DIFFERS"] * 3


def test_a_digest_without_any_request_header() -> None:
    events = with_digests()
    remove(events, find(events, "request/header")["seq"])

    assert [code for level, code, _ in codes(events) if level == "error"] == ["DIGEST_DIFFERS"] * 3


# -- streamed pieces -----------------------------------------------------------------------------


def change_text(events: Events) -> None:
    find(events, "assistant/message")["data"]["message"]["content"][0]["text"] = "I looked it up"


def change_arguments(events: Events) -> None:
    find(events, "assistant/message")["data"]["message"]["content"][1]["arguments"] = "{ }"
    find(events, "tool/call")["data"]["arguments"] = "{ }"


def add_block(events: Events) -> None:
    find(events, "assistant/message")["data"]["message"]["content"].append({"type": "text", "text": "!"})


def change_usage(events: Events) -> None:
    find(events, "assistant/message")["data"]["usage"]["outputTokens"] = 3


def cite_too_few(events: Events) -> None:
    find(events, "assistant/message")["sourceEventSeqs"].pop()


def cite_the_failed(events: Events) -> None:
    message = find(events, "assistant/message")
    message["sourceEventSeqs"].insert(0, find(events, "assistant/chunk")["seq"])


def cite_in_disorder(events: Events) -> None:
    find(events, "assistant/message")["sourceEventSeqs"].reverse()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (change_text, "REPLY_DIFFERS"),
        (change_arguments, "REPLY_DIFFERS"),
        (add_block, "REPLY_DIFFERS"),
        (change_usage, "USAGE_DIFFERS"),
        (cite_too_few, "REPLY_CITES_OTHER"),
        (cite_the_failed, "REPLY_CITES_OTHER"),
        (cite_in_disorder, "REPLY_CITES_OTHER"),
    ],
)
def test_a_message_is_what_was_streamed(change: Callable[[Events], None], code: str) -> None:
    events = body()
    change(events)

    assert codes(events) == [("error", code, find(events, "assistant/message")["seq"])]


def test_the_state_to_replay_is_the_one_that_the_stream_ended_with() -> None:
    events = body()
    last = find(events, "assistant/message", 1)
    last["data"]["message"]["source"]["replayState"] = {"response": 8}

    assert codes(events) == [("error", "REPLAY_STATE_DIFFERS", last["seq"])]


def test_a_message_that_cites_nothing_is_a_warning_where_pieces_are_there() -> None:
    events = body()
    del find(events, "assistant/message")["sourceEventSeqs"]

    assert codes(events) == [("warning", "REPLY_UNCITED", find(events, "assistant/message")["seq"])]


def test_a_cut_message_holds_the_text_that_had_come_and_no_calls() -> None:
    events = body()
    message = find(events, "assistant/message")
    finish = message["sourceEventSeqs"][-1]
    del events[message["seq"] + 1 :]
    events.append(stored("step/end", len(events), {"turn": 1, "step": 1}))
    end = {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}
    events.append(stored("turn/end", len(events), end))
    message["data"] = {**message["data"], "interrupted": True}
    del message["data"]["message"]["content"][1:]
    remove(events, finish)

    assert codes(events) == []


def test_a_piece_of_a_kind_that_is_not_known_here_is_a_warning() -> None:
    events = body()
    seq = find(events, "assistant/message")["sourceEventSeqs"][0]
    events[seq]["data"]["chunk"] = {"type": "audio-delta", "index": 0}

    assert ("warning", "CHUNK_UNKNOWN", seq) in codes(events)
    assert "REPLY_DIFFERS" not in [code for _, code, _ in codes(events)]


# -- inbox and brackets --------------------------------------------------------------------------


def test_a_splice_that_does_not_fit_the_inbox() -> None:
    events = body()
    find(events, "agent/inbox/spliced", 1)["data"]["removedCount"] = 2

    assert codes(events) == [("error", "INBOX", 2)]


def test_a_fork_begins_with_an_empty_inbox() -> None:
    events = body()
    data = {"target": "next-turn", "start": 0, "inserted": [prompt(id="m-7")]}
    insert(events, len(events), "agent/inbox/spliced", data)
    insert(events, len(events), "session/end-seed", {})
    insert(events, len(events), "agent/inbox/spliced", data)

    assert codes(events, parent_session="p", seed_length=len(events) - 2) == []
    assert codes(events) == [("error", "INBOX", len(events) - 1)], "pending twice"


def ask(events: Events, *kinds: str) -> int:
    """Put approvals at the end; answers where they begin."""
    first = len(events)
    for kind in kinds:
        data: dict[str, Any] = {"id": "a1", "toolName": "bash"}
        if kind == "approval/decided":
            data = {"id": "a1", "outcome": "rejected"}
        insert(events, len(events), kind, {} if kind == "session/end-seed" else data)
    return first


@pytest.mark.parametrize(
    ("kinds", "findings"),
    [
        (("approval/asked", "approval/decided"), []),
        (("approval/asked",), [("warning", "BRACKET_OPEN", 0)]),
        (("approval/asked", "session/end-seed"), []),
        (("approval/decided",), [("error", "BRACKET_NOT_OPEN", 0)]),
        (("approval/asked", "approval/decided", "approval/decided"), [("error", "BRACKET_NOT_OPEN", 2)]),
        (("approval/asked", "approval/asked", "approval/decided"), [("error", "BRACKET_TWICE", 1)]),
    ],
)
def test_what_opens_closes_once(kinds: tuple[str, ...], findings: list[tuple[str, str, int]]) -> None:
    events = body()
    first = ask(events, *kinds)

    assert codes(events) == [(level, code, first + offset) for level, code, offset in findings]


PRICE = 10 + 23
"""Of what `compacted` replaces: the prompt, 2 tokens of text in 2 frames; the reply, 3 + 2 * 2 in 4."""


def compacted(**changes: Any) -> Events:
    """The log with a compaction after its turn that takes the place of prompt and first reply."""
    events = body()
    shadowed = [find(events, "user/message")["seq"], find(events, "assistant/message")["seq"]]
    start = len(events)
    ids = {"compactionId": "k1"}
    insert(events, start, "compaction/start", {**ids, "turn": None, **changes.get("start", {})})
    span = {"shadowedRange": {"start": shadowed[0], "end": shadowed[1]}, "shadowedSeqs": shadowed}
    route = {"shadowedTokenCount": PRICE, **CONFIG}
    text = [{"type": "text", "text": "short"}]
    summary = {**ids, "summary": text, **span, **route, **changes.get("summary", {})}
    insert(events, start + 1, "compaction/summary", summary)
    point = {
        "content": text,
        "source": {"kind": "plugin", "plugin": "compact", **ids},
        "role": "user",
        "id": "k",
    }
    operation = {"op": "replace", "start": shadowed[0], "end": shadowed[1]}
    cited = [start, start + 1, *shadowed]
    insert(events, start + 2, "user/message", point, sourceEventSeqs=cited, surfaceOp=operation)
    insert(events, start + 3, "compaction/end", {**ids, "turn": None, **changes.get("end", {})})
    return events


def test_a_compaction_that_is_as_it_should_be() -> None:
    assert codes(compacted()) == []


@pytest.mark.parametrize(
    ("changes", "code", "offset"),
    [
        ({"start": {"turn": 1}}, "IRREGULAR", 0),
        ({"summary": {"compactionId": "k2"}}, "IRREGULAR", 1),
        ({"summary": {"sourceCommandId": "cmd-1"}}, "IRREGULAR", 1),
        ({"summary": {"shadowedSeqs": [0, 4]}}, "COMPACTION", 2),
        ({"summary": {"shadowedSeqs": [4]}}, "COMPACTION", 1),
        ({"summary": {"shadowedSeqs": []}}, "COMPACTION", 1),
        ({"end": {"turn": 1}}, "IRREGULAR", 3),
        ({"end": {"compactionId": "k2"}}, "IRREGULAR", 3),
    ],
)
def test_a_compaction_that_does_not_fit_together(changes: dict[str, Any], code: str, offset: int) -> None:
    assert codes(compacted(**changes)) == [("error", code, len(body()) + offset)]


@pytest.mark.parametrize("stated", [0, PRICE - 1, PRICE + 1])
def test_a_price_that_is_not_the_one_of_what_is_replaced_is_a_warning(stated: int) -> None:
    events = compacted(summary={"shadowedTokenCount": stated})

    assert codes(events) == [("warning", "SHADOW_PRICE", len(body()) + 1)]


def test_a_checkpoint_that_nothing_prices_is_a_warning() -> None:
    events = compacted()
    remove(events, len(body()) + 1)

    assert codes(events) == [("warning", "REPLACEMENT_UNPRICED", len(body()) + 1)]


# -- damage --------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    3,
    1.5,
    "",
    "x",
    [],
    [[]],
    [{}],
    {},
    {"kind": "x"},
    {"blocks": 7},
    "append",
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with every key of it."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


@given(st.data())
def test_a_log_that_opens_is_checked_and_drawn_whatever_it_holds(data: st.DataObject) -> None:
    """No payload, however odd, breaks the check, the figures or the timeline."""
    events = data.draw(st.sampled_from([compacted(), with_digests()]))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from([place for event in events for place in places(event)]))
        container[key] = deepcopy(data.draw(st.sampled_from(ODD)))  # a later change may go into it
    try:
        log = opened(list(events))
    except SessionError:
        return
    verify(log)
    units: list[Unit[Any]] = [STATS, TITLE, TODOS, TOKEN_USAGE, CONTEXT_PRESSURE, CONTEXT_BREAKDOWN]
    for unit in units:
        try:
            state = fold(unit, log.entries())
        except ProjectionError:  # a replacement that follows the price of another one
            continue
        assert unit.load(unit.dump(state)) == state
        cut = data.draw(st.integers(0, log.length))
        assert fold(unit, log.entries(cut), fold(unit, log.entries(0, cut))) == state
    for line in drawn(timeline(log.walk()), Look(columns=40)):
        assert line.removesuffix("\n").isprintable()


# -- as a whole ----------------------------------------------------------------------------------


def test_so_many_findings_of_a_kind_are_kept_and_the_others_counted() -> None:
    findings = Findings()
    for seq in range(Findings.LIMIT + 3):
        findings.error("INBOX", seq, "odd")

    kept = findings.all()

    assert len(kept) == Findings.LIMIT + 1
    assert kept[-1] == Finding("error", "INBOX", None, "and 3 more of this kind")


@needs_corpus
@pytest.mark.parametrize("folder", ["fixtures", "runs", "variants"])
def test_no_recorded_log_that_opens_has_an_error(folder: str) -> None:
    checked = 0
    for path in sorted(CORPUS.glob(f"{folder}/*.jsonl")) + sorted(CORPUS.glob(f"{folder}/*.jsonl.zstd")):
        try:
            view = build_view(read_log(path))
        except LogRefusal:
            continue
        checked += 1
        assert [found for found in verify(view).findings if found.level == "error"] == [], path.name
    assert checked > 20
