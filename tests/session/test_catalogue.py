"""The 48 event types of format 0: one of each, whole, and with one thing wrong (`spec/session-log.md` §5)."""

from pathlib import Path
from typing import Any

import pytest

from dsh.session.chunk_row import pack
from dsh.session.error import InvalidEvent
from dsh.session.header import header_from_line
from dsh.session.restore import restore
from dsh.session.value import JsonObject, decode_strict, encode
from dsh.session.vocabulary import KNOWN, check_payload, payload_fault, payload_of
from tests.ids import readable
from tests.session.build import header, stored

LINES = Path(__file__).with_name("one_of_each.jsonl").read_bytes().splitlines()
EVENTS: list[JsonObject] = [decode_strict(line) for line in LINES[1:]]
BY_TYPE: dict[str, JsonObject] = {event["type"]: event for event in EVENTS}


def changed(kind: str, path: str, value: Any) -> Any:
    """The payload of the fixture's last event of a type, with one field set, or taken out by `...`."""
    data = decode_strict(encode(BY_TYPE[kind]["data"]))
    at = data
    *way, last = path.split(".")
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if value is ...:
        del at[last]
    else:
        at[int(last) if isinstance(at, list) else last] = value
    return data


def test_there_are_48_types_and_the_fixture_has_each() -> None:
    assert len(KNOWN) == 48
    assert BY_TYPE.keys() == KNOWN
    assert all(payload_of(kind) is not None for kind in KNOWN)


def test_a_log_with_one_of_each_loads_clean_and_is_written_again_byte_for_byte() -> None:
    restored = restore(header_from_line(LINES[0]), EVENTS)

    assert restored.closers == ()
    assert restored.view.irregularities == []
    assert [encode(row) for row in pack(restored.entries)] == LINES[1:]
    assert [message["id"] for message in restored.view.derive_messages()] == ["m-4"]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event["type"])
def test_each_event_is_written_as_it_was_decoded(event: JsonObject) -> None:
    check_payload(event["type"], event["data"])

    assert encode(event) in LINES


@pytest.mark.parametrize("kind", sorted(KNOWN - {"session/end-seed"}))
def test_each_payload_misses_its_fields_and_no_other_value_stands_for_it(kind: str) -> None:
    others: tuple[Any, ...] = ({}, [], None, 1, "x")
    for wrong in others:
        with pytest.raises(InvalidEvent, match=f"^{kind}: "):
            check_payload(kind, wrong)


@pytest.mark.parametrize("kind", sorted(KNOWN - {"turn/end", "subagent/descriptor"}))
def test_extra_keys_are_tolerated_where_the_shape_is_not_closed(kind: str) -> None:
    check_payload(kind, {**BY_TYPE[kind]["data"], "more": 1})


WRONG: list[tuple[str, str, Any]] = [
    ("turn/start", "turn", 0),
    ("turn/start", "turn", True),
    ("turn/start", "turn", 2**53),
    ("turn/start", "turn", 1.5),
    ("turn/end", "more", 1),
    ("turn/end", "reason.reason", ...),
    ("turn/end", "reason.reason", {"kind": "hook"}),
    ("turn/end", "reason.reason", {"kind": "unheard-of"}),
    ("turn/end", "reason", {"kind": "error", "error": {"message": "m"}}),
    ("turn/end", "reason", {"kind": "completed", "more": 1}),
    ("step/start", "step", "1"),
    ("user/message", "content.0.text", ...),
    ("user/message", "content.0.type", 1),
    ("user/message", "source.plugin", ...),
    ("user/message", "source.form", "snapshot"),
    ("user/message", "source", {"kind": "subagent-settled", "form": "notice", "senderSessionId": "x"}),
    ("assistant/chunk", "chunk.type", "unheard-of"),
    ("assistant/chunk", "chunk.reason", {}),
    ("assistant/chunk", "chunk.reason", {"kind": "aborted"}),
    ("assistant/message", "interrupted", False),
    ("assistant/message", "usage", None),
    ("assistant/message", "usage.inputTokens", -1),
    ("assistant/message", "message.content.1.arguments", {}),
    ("tool/call", "arguments", {}),
    ("tool/result", "error", {"code": "X"}),
    ("tool/result", "error", None),
    ("tool/result", "message.content.0.isError", 1),
    ("tool/result", "message.content.0.content.0", "text"),
    ("request/header", "reason", "other"),
    ("request/header", "header.tools.0.parameters", []),
    ("request/header", "header.config.stop", "x"),
    ("request/context", "contextWindow", None),
    ("llm/retry", "maxRetries", ...),
    ("llm/retry", "mode", "sometimes"),
    ("llm/retry", "retry", 0),
    ("agent/inbox/spliced", "target", "later"),
    ("agent/inbox/spliced", "inserted", [{"id": "x"}]),
    ("agent/inbox/spliced", "outcome", "taken"),
    ("agent/inbox/spliced", "removedCount", None),
    ("todo/write", "todos.0.status", "done"),
    ("session/title", "source", {"kind": "provider"}),
    ("session/title", "source", {"kind": "other"}),
    ("session/title", "messageSeqs", [1.5]),
    ("session/title-llm-request", "messages.0.role", "robot"),
    ("approval/decided", "outcome", "allowed"),
    ("approval/policy", "source", "parent"),
    ("sandbox/mode", "mode", "open"),
    ("plan/mode", "active", 1),
    ("command/run", "source", {"kind": "model"}),
    ("command/done", "sourceEventSeq", -1),
    ("hook/invoked", "dialect", "claude"),
    ("compaction/start", "turn", ...),
    ("compaction/summary", "rawOutput", ...),
    ("compaction/summary", "llmStreamCall", False),
    ("compaction/summary", "summary", "text"),
    ("compaction/prune", "shadowedRange", [31, 31]),
    ("goal/change", "goal.blockedReason", ...),
    ("goal/change", "goal.phase", "active"),
    ("goal/change", "operation", "clear"),
    ("goal/change", "version", 2),
    ("schedule/change", "schedule.everySeconds", 299),
    ("schedule/change", "schedule.id", "s-1"),
    ("schedule/change", "schedule.scheduledAt", "20260-01-01T00:00:00Z"),
    ("schedule/change", "schedule.scheduledAt", "2026-01-01T00:00:00+01:00"),
    ("subagent/descriptor", "more", 1),
    ("subagent/descriptor", "label", ...),
    ("subagent/descriptor", "toolFilter", {}),
    ("subagent/descriptor", "version", "2"),
    ("tool-workflow/agent-end", "outcome", "done"),
    ("team/member", "member.context", "other"),
    ("team/task", "task.writeScopes", "src"),
    ("team/message/queued", "message.delivery", "loud"),
    ("tool/code-dispatch", "isError", None),
    ("web/deepseek-search-llm-request", "body.max_tokens", "4096"),
]


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=readable)
def test_a_payload_with_one_thing_wrong_is_refused_and_says_where(kind: str, path: str, value: Any) -> None:
    with pytest.raises(InvalidEvent, match=f"^{kind}: "):
        check_payload(kind, changed(kind, path, value))


RIGHT: list[tuple[str, str, Any]] = [
    ("turn/end", "reason", {"kind": "unheard-of", "more": 1}),
    ("turn/end", "reason", {"kind": "aborted", "reason": {"kind": "hook", "reason": "limit:steps"}}),
    ("user/message", "source", {"kind": "unheard-of"}),
    ("user/message", "content.0", {"type": "unheard-of"}),
    ("user/message", "content", []),
    ("assistant/chunk", "chunk.reason", {"kind": "unheard-of"}),
    ("compaction/start", "turn", None),
    ("llm/retry", "delayMs", 5),
    ("goal/change", "goal.phase", "blocked"),
    ("schedule/change", "schedule.scheduledAt", "0001-01-01T00:00:00Z"),
    ("subagent/descriptor", "version", 3),
]


@pytest.mark.parametrize(("kind", "path", "value"), RIGHT, ids=readable)
def test_what_is_open_stays_open(kind: str, path: str, value: Any) -> None:
    check_payload(kind, changed(kind, path, value))


def test_half_a_surrogate_pair_is_a_string_like_any_other() -> None:
    check_payload("sandbox/mode", {"mode": "read-only", "\ud83d": "\ude00"})
    check_payload("user/message", changed("user/message", "source", {"kind": "user", "\ud83d": 1}))
    check_payload("feedback/record", {"text": "\ud83d"})

    with pytest.raises(InvalidEvent, match="mode"):
        check_payload("sandbox/mode", {"mode": "\ud83d"})


def test_other_forms_of_a_payload_are_told_apart_by_a_key() -> None:
    cleared = {"id": "goal-1", "revision": 2}
    schedule = {"id": "schedule-1", "prompt": "look", "scheduledAt": "2026-01-01T00:00:00Z"}
    retry = changed("llm/retry", "maxRetries", ...)

    goal = {"kind": "goal/change", "version": 1, "operation": "clear", "clearedAt": 3}
    check_payload("goal/change", {**goal, "cleared": cleared})
    check_payload("llm/retry", {**retry, "mode": "always"})
    for kind, more in (("at", {}), ("after", {"afterSeconds": 5})):
        change = {"version": 1, "operation": "create", "schedule": {**schedule, "kind": kind, **more}}
        check_payload("schedule/change", change)
    check_payload("schedule/change", {"version": 1, "operation": "delete", "id": "schedule-1"})
    check_payload("schedule/change", {"version": 1, "operation": "dispatch", "id": "schedule-1"})
    check_payload("subagent/descriptor", {"version": 2, "mode": "one-shot", "provider": "spawn"})


REFUSED = {"turn/start", "turn/end", "user/message", "assistant/message", "tool/result", "request/header"}


@pytest.mark.parametrize(
    ("kind", "data"), [(kind, {}) for kind in sorted(KNOWN - REFUSED - {"session/end-seed"})]
)
def test_a_stored_defect_that_nothing_depends_on_is_noted_and_the_log_opens(kind: str, data: Any) -> None:
    view = restore(header(), [stored(kind, 0, data), stored("plan/mode", 1, {"active": True})]).view

    assert (0, payload_fault(kind, data)) in view.irregularities
    assert all(seq == 0 for seq, _ in view.irregularities)
    assert view.copy().irregularities == view.irregularities


def test_irregularities_are_the_first_hundred_in_order() -> None:
    entries = [stored("plan/mode", seq, {"active": "yes"}) for seq in range(150)]

    found = restore(header(), entries).view.irregularities

    assert [seq for seq, _ in found] == list(range(100))
