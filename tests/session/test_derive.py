"""What the model sees, and the request header, as folds of the log (`spec/session-log.md` §8, §9)."""

from typing import Any

import pytest

import dsh.session.derive
from dsh.session.event import SessionEvent
from dsh.session.message import Message, text_of, user_message
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.restore import restore
from dsh.session.value import json_equal
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
    say,
    session,
)


def test_every_prefix_derives_what_the_live_log_did_at_that_point() -> None:
    log = in_step()
    seen: list[tuple[int, tuple[Message, ...]]] = []

    def note() -> None:
        seen.append((log.length, log.derive_messages()))

    say(log, "one", "m-1")
    note()
    data = {"turn": 1, "step": 1, "message": reply(call_block("c1"))}
    log.append("assistant/message", data, surface="append", sources=[])
    answer(log, "c1", call(log, "c1"))
    note()
    log.append(
        "user/message",
        prompt("short", "m-2"),
        surface={"op": "replace", "start": 2, "end": 3},
        sources=[2, 3],
    )
    note()
    entries = as_stored(log)

    for length, messages in seen:
        prefix = session()
        for entry in entries[:length]:
            prefix.load(entry)
        assert json_equal(prefix.derive_messages(), messages)
    assert [len(messages) for _, messages in seen] == [1, 3, 2]


def test_a_reply_that_only_carries_usage_is_not_shown() -> None:
    log = in_step()
    message: Any = {**reply(), "content": []}
    log.append("assistant/message", {"turn": 1, "step": 1, "message": message}, surface="append", sources=[])

    assert log.surface_nodes == (2,)
    assert log.derive_messages() == ()


def test_each_event_is_projected_once_whatever_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    log, projected = session(), []
    original = dsh.session.derive.project

    def counted(event: SessionEvent) -> Message | None:
        projected.append(event.seq)
        return original(event)

    monkeypatch.setattr(dsh.session.derive, "project", counted)
    for number in range(10):
        say(log, "x", f"m-{number}")
        first = log.derive_messages()
        assert log.derive_messages() is first

    assert projected == list(range(10))
    log.append(
        "user/message", prompt("y", "m-10"), surface={"op": "replace", "start": 0, "end": 8}, sources=range(9)
    )
    assert len(log.derive_messages()) == 2
    assert projected[10:] == [10]


def test_derived_messages_are_the_very_objects_of_the_log() -> None:
    log = session()
    say(log, "x", "m-1")

    assert log.derive_messages()[0] is log.event(0).data


def test_message_constructors_have_their_own_key_orders() -> None:
    from tests.session.build import result

    assert list(user_message("x")) == ["content", "source", "role", "id"]
    assert list(reply()) == ["role", "content", "source", "id"]
    assert list(result("c")) == ["source", "content", "role", "id"]
    assert list(result("c")["content"][0]) == ["type", "toolCallId", "content", "isError"]
    assert user_message("x")["id"] != user_message("x")["id"]
    assert text_of(user_message("x")) == "x"


# -- the request header ------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {"provider": "p", "model": "m"}
TOOL: dict[str, Any] = {"name": "t", "description": "d", "parameters": {"type": "object", "properties": {}}}
TWIN: dict[str, Any] = {"parameters": {"properties": {}, "type": "object"}, "description": "d", "name": "t"}
OTHER: dict[str, Any] = {**TOOL, "name": "u"}


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ({}, {}, True),
        ({"system": ""}, {}, True),
        ({"tools": []}, {}, True),
        ({"adapterDefaults": {}}, {}, True),
        ({"system": "a"}, {"system": "b"}, False),
        ({"tools": [TOOL]}, {"tools": [TWIN]}, True),
        ({"tools": [TOOL, OTHER]}, {"tools": [OTHER, TOOL]}, False),
        ({"tools": [TOOL]}, {"tools": [TOOL, OTHER]}, False),
        ({"config": {**CONFIG, "model": "n"}}, {}, False),
        ({"config": {**CONFIG, "temperature": 1}}, {"config": {**CONFIG, "temperature": 1.0}}, True),
        ({"config": {**CONFIG, "temperature": 0}}, {}, False),
        ({"config": {**CONFIG, "stop": ["a"]}}, {"config": {**CONFIG, "stop": ["a"]}}, True),
        ({"config": {**CONFIG, "stop": []}}, {}, False),
        ({"config": {**CONFIG, "stop": None}}, {}, False),
        (
            {"config": {**CONFIG, "maxTokens": 1}, "adapterDefaults": {"maxTokens": True}},
            {"config": {**CONFIG, "maxTokens": 1}},
            False,
        ),
        ({"config": {"model": "m", "provider": "p"}}, {}, True),
    ],
    ids=readable,
)
def test_equality_of_request_headers(left: dict[str, Any], right: dict[str, Any], equal: bool) -> None:
    a, b = canonical_header({"config": CONFIG, **left}), canonical_header({"config": CONFIG, **right})

    assert headers_equal(a, b) is equal
    assert headers_equal(b, a) is equal


def test_the_last_header_and_context_count() -> None:
    log = in_step()
    assert (log.request_header, log.request_context) == (None, None)
    log.append(
        "request/header", {"header": {"config": CONFIG, "system": "a", "tools": []}, "reason": "initial"}
    )
    log.append("request/context", {**CONFIG, "contextWindow": 10})
    first = log.request_header
    assert log.request_header is first
    log.append("request/header", {"header": {"config": CONFIG, "system": ""}, "reason": "change"})
    log.append("request/context", CONFIG)

    assert first == {"config": CONFIG, "system": "a"}
    assert log.request_header == {"config": CONFIG}
    assert log.request_context == CONFIG
    assert restore(header(), as_stored(log)).view.request_header == {"config": CONFIG}
