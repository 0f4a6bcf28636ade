"""Placeholders: which text is searched, which match counts, and what is wrong with one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.failure import LlmFailure
from dsh.llm.script.call import Call
from dsh.llm.script.entry import Chunks, Throw
from dsh.llm.script.error import ScriptError
from dsh.llm.script.placeholder import (
    check_placeholders,
    filled,
    filled_value,
    readable_text,
    request_text,
)
from dsh.llm.script.player import Script
from dsh.session.chunk import BlockEnd, BlockStart, Finish, ReasoningDelta, TextDelta, ToolCallDelta
from dsh.session.message import assistant_message, tool_result_message, user_message
from tests.aio import aio
from tests.llm.script_kit import adapter_of, refused, request


@pytest.mark.parametrize(
    ("text", "searched", "expected"),
    [
        ("no placeholder {{x}}", "", "no placeholder {{x}}"),
        ("see {{fromRequest:/tmp/\\S+}}!", "at /tmp/a\nthen /tmp/b end", "see /tmp/b!"),
        ("{{fromRequest:id=(\\w+)}}", "id=one id=two", "two"),
        ("{{fromRequest:(a)?b}}", "b", "b"),
        ("{{fromRequest:x{2}}}", "xxx", "xx"),
        ("{{fromRequest:x{2}}}}", "xx}", "xx}"),
        ("{{fromRequest:a}}{{fromRequest:b}}", "ab", "ab"),
        ("{{fromRequest:(?<name>a)}}", "a", "a"),
        ("{{fromRequest:(?<=a)b}}", "ab", "b"),
        ("{{fromRequest:x*}}", "", ""),
    ],
)
def test_the_last_match_stands_in(text: str, searched: str, expected: str) -> None:
    """Its group 1 where there is one; of a run of braces the last two close."""
    assert filled(text, searched) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{{fromRequest:abc}}", "nothing in the request matches"),
        ("{{fromRequest:abc", "has no end"),
        ("{{fromRequest:abc}", "has no end"),
        ("{{fromRequest:(}}", "no regular expression"),
    ],
)
def test_what_cannot_be_filled_is_an_error(text: str, told: str) -> None:
    with pytest.raises(ScriptError, match=told) as caught:
        filled(text, "nothing")
    assert caught.value.code == "SCRIPT_PLACEHOLDER"


def test_what_needs_no_request_is_known_beforehand() -> None:
    check_placeholders("{{fromRequest:abc}} and text")
    for text in ("{{fromRequest:abc", "{{fromRequest:a}}{{fromRequest:(}}"):
        for value in (text, ["x", {"k": [text]}]):
            with pytest.raises(ScriptError):
                check_placeholders(value)


HISTORY = (
    user_message("do it"),
    assistant_message([{"type": "tool-call", "id": "c9", "name": "bash", "arguments": '{"a":1}'}], "p", "m"),
    tool_result_message("c9", [{"type": "text", "text": "spilled to /tmp/x"}]),
)


def test_every_string_of_the_messages_is_searched() -> None:
    lines = request_text(HISTORY).split("\n")

    assert {"do it", "c9", "bash", '{"a":1}', "spilled to /tmp/x", "tool-result", HISTORY[0]["id"]} <= set(
        lines
    )


def test_what_is_said_holds_no_ids_and_no_roles() -> None:
    assert readable_text(HISTORY) == 'do it\nbash {"a":1}\nspilled to /tmp/x'


@aio
async def test_every_string_of_a_scripted_reply_is_filled() -> None:
    mark = "{{fromRequest:(/tmp/\\w+)}}"
    block = {"type": "tool-call", "id": mark, "name": mark, "arguments": f'{{"p":"{mark}"}}'}
    entry = Chunks(
        (
            BlockStart(0, "tool-call"),
            ToolCallDelta(0, mark, mark, f'{{"p":"{mark}"}}'),
            TextDelta(1, mark),
            ReasoningDelta(2, mark),
            BlockEnd(0, block),
            Finish({"kind": "error", "failure": {"code": "X", "message": mark}}),
        )
    )
    adapter = adapter_of(Script([Call(entry=entry)]))

    got = [chunk async for chunk in adapter.stream(request(*HISTORY))]
    assert "{{" not in repr(got)
    assert repr(got).count("/tmp/x") == 9


@aio
async def test_a_placeholder_without_a_match_fails_the_call() -> None:
    adapter = adapter_of(Script([Call(entry=Chunks((TextDelta(0, "{{fromRequest:nowhere}}"),)))]))

    async with refused("SCRIPT_PLACEHOLDER"):
        async for _ in adapter.stream(request()):
            pass


@given(st.text(), st.text())
def test_text_without_a_placeholder_is_left_alone(text: str, searched: str) -> None:
    if "{{fromRequest:" not in text:
        assert filled(text, searched) == text
        assert filled_value({"k": [text, 1, None]}, searched) == {"k": [text, 1, None]}


@aio
async def test_the_message_of_a_throw_is_filled_too() -> None:
    failure = LlmFailure("no {{fromRequest:(/tmp/\\w+)}}", "X")
    adapter = adapter_of(Script([Call(entry=Throw((), failure))]))

    async with refused("X") as caught:
        async for _ in adapter.stream(request(*HISTORY)):
            pass
    assert str(caught[0]) == "no /tmp/x"
