"""What each switch of a dialect changes in a request, and that nothing else changes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.kernel.schema import ValidationError, resolve_config
from dsh.llm.chat.body import BRIDGE, WireHistory, request_body
from dsh.llm.chat.dialect import DEEPSEEK, Compat, Dialect, dialect_of
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmCallConfig
from dsh.session.message import Message, assistant_message, user_message
from tests.llm.build import reasoning, request, result, schema, text, tool_call, user

HERE, ELSEWHERE = "openai-compatible", "deepseek-official"
EFFORTS: dict[str, str | None] = {"off": "none", "low": "minimal", "high": "hard", "as-it-likes": ""}


def said(*blocks: Mapping[str, Any], provider: str = HERE) -> Message:
    return assistant_message(blocks, provider=provider, model="m")


HISTORY = (
    user("look"),
    said(reasoning("why"), text("I look."), tool_call("c1", "read")),
    result("c1", "content"),
    said(reasoning("elsewhere"), tool_call("c2", "bash"), tool_call("c3"), provider=ELSEWHERE),
    result("c2", "", is_error=True),
    result("c3", "x"),
    user("and now?"),
)


def body(
    dialect: Dialect,
    *messages: Message,
    thinking: bool | None = None,
    effort: str | None = None,
    config: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    asked = request(*messages, config=LlmCallConfig(HERE, "m", **(config or {})), **changes)
    made = request_body(asked, dialect, WireHistory(dialect, HERE), thinking=thinking, effort=effort)
    found: dict[str, Any] = json.loads(made)
    return found


def wire(dialect: Dialect, messages: Sequence[Message] = HISTORY, system: str | None = None) -> list[Any]:
    found: list[Any] = body(dialect, *messages, system=system)["messages"]
    return found


def dialect(**compat: Any) -> Dialect:
    return dialect_of(resolve_config(Compat, compat))


def test_the_plain_dialect_is_that_of_most_servers() -> None:
    full = body(
        Dialect(),
        user("hi"),
        config={"temperature": 0, "max_tokens": 9, "stop": ("x",)},
        system="be brief",
        tools=(schema(),),
    )

    assert list(full) == [
        "model", "messages", "stream", "stream_options", "tools", "temperature", "max_tokens", "stop",
    ]  # fmt: skip
    assert full["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize(
    ("compat", "present", "absent"),
    [
        ({"maxTokensField": "max_completion_tokens"}, {"max_completion_tokens": 9}, "max_tokens"),
        ({"streamOptions": False}, {"stream": True, "max_tokens": 9}, "stream_options"),
    ],
)
def test_a_switch_of_a_member_changes_that_member(
    compat: dict[str, Any], present: dict[str, Any], absent: str
) -> None:
    found = body(dialect(**compat), config={"max_tokens": 9})

    assert absent not in found
    assert present.items() <= found.items()


def test_the_system_prompt_and_system_messages_have_the_role_that_the_server_knows() -> None:
    noted: Message = {**user("mind the gap"), "role": "system"}

    found = wire(dialect(systemRole="developer"), (user("hi"), noted), system="be brief")

    assert [message["role"] for message in found] == ["developer", "user", "developer"]


@pytest.mark.parametrize(
    ("compat", "own", "foreign"),
    [
        ({}, {"reasoning_content": "why", "content": "I look."}, {"content": ""}),
        ({"reasoningReplay": "reasoning"}, {"reasoning": "why", "content": "I look."}, {"content": ""}),
        ({"reasoningReplay": "text"}, {"content": "why\n\nI look."}, {"content": ""}),
        ({"reasoningReplay": "none"}, {"content": "I look."}, {"content": ""}),
        (
            {"foreignReasoning": True},
            {"reasoning_content": "why", "content": "I look."},
            {"reasoning_content": "elsewhere", "content": ""},
        ),
        (
            {"foreignReasoning": True, "reasoningReplay": "text"},
            {"content": "why\n\nI look."},
            {"content": "elsewhere"},
        ),
        ({"foreignReasoning": True, "reasoningReplay": "none"}, {"content": "I look."}, {"content": ""}),
    ],
)
def test_reasoning_goes_back_in_the_form_and_from_the_route_that_is_asked_for(
    compat: dict[str, Any], own: dict[str, str], foreign: dict[str, str]
) -> None:
    found = [message for message in wire(dialect(**compat)) if message["role"] == "assistant"]

    for message in found:
        del message["role"], message["tool_calls"]
    assert found == [own, foreign]


def test_results_carry_the_name_of_their_tool_where_the_server_wants_it() -> None:
    found = [message for message in wire(dialect(toolName=True)) if message["role"] == "tool"]

    assert [message["name"] for message in found] == ["read", "bash", "read"]
    assert not any("name" in message for message in wire(Dialect()))


def test_a_result_of_a_call_that_nobody_made_has_no_name() -> None:
    assert "name" not in wire(dialect(toolName=True), (result("c9", "x"),))[0]


def test_an_assistants_message_stands_between_results_and_a_user_where_the_server_wants_it() -> None:
    found = wire(dialect(assistantAfterTool=True))

    assert [message["role"] for message in found] == [
        "user", "assistant", "tool", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    assert found[-2] == {"role": "assistant", "content": BRIDGE}
    assert len(wire(Dialect())) == len(found) - 1


@pytest.mark.parametrize(
    ("style", "thinking", "effort", "expected"),
    [
        ("none", None, None, {}),
        ("none", True, "low", {"reasoning_effort": "minimal"}),
        ("none", False, "off", {"reasoning_effort": "none"}),
        ("none", True, "as-it-likes", {}),
        ("thinking", None, None, {}),
        ("thinking", True, "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "hard"}),
        ("thinking", False, None, {"thinking": {"type": "disabled"}, "reasoning_effort": "none"}),
        ("enable_thinking", True, "as-it-likes", {"enable_thinking": True}),
        ("enable_thinking", False, "off", {"enable_thinking": False, "reasoning_effort": "none"}),
        ("chat_template_kwargs", True, "as-it-likes", {"chat_template_kwargs": {"enable_thinking": True}}),
        (
            "chat_template_kwargs",
            False,
            "off",
            {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none"},
        ),
        ("reasoning", None, None, {}),
        ("reasoning", True, "high", {"reasoning": {"effort": "hard"}}),
        ("reasoning", True, "as-it-likes", {"reasoning": {"enabled": True}}),
        ("reasoning", False, "off", {"reasoning": {"effort": "none"}}),
    ],
)
def test_thinking_is_switched_as_the_server_knows_it(
    style: str, thinking: bool | None, effort: str | None, expected: dict[str, Any]
) -> None:
    found = body(dialect(thinkingStyle=style, effortMap=EFFORTS), thinking=thinking, effort=effort)

    del found["model"], found["messages"], found["stream"], found["stream_options"]
    assert found == expected


@pytest.mark.parametrize(("spelling", "sent"), [("minimal", "minimal"), ("", "none"), (None, "none")])
def test_the_reasoning_member_spells_off_as_the_server_does(spelling: str | None, sent: str) -> None:
    spoken = dialect(thinkingStyle="reasoning", effortMap={"off": spelling})

    assert body(spoken, thinking=False, effort="off")["reasoning"] == {"effort": sent}


def test_an_effort_without_a_spelling_for_off_sends_none() -> None:
    for nothing in (None, ""):
        found = body(dialect(effortMap={"off": nothing, "low": "low"}), thinking=False, effort="off")
        assert "reasoning_effort" not in found


def test_a_models_ways_are_laid_over_those_of_its_route() -> None:
    made = dialect_of(
        Compat(tool_name=True, effort_map={"low": "l"}, stream_options=False),
        None,
        Compat(tool_name=False, effort_map={}),
    )

    assert made == Dialect(tool_name=False, effort_map={}, stream_options=False)


@pytest.mark.parametrize(
    "raw",
    [
        {"systemRole": "boss"},
        {"maxTokensField": "limit"},
        {"thinkingStyle": "loud"},
        {"effortMap": {" ": "low"}},
        {"effortMap": {"low": 1}},
        {"keyless": True},
    ],
)
def test_a_compat_that_cannot_be_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(Compat, raw)


def test_every_switch_of_compat_is_one_of_the_dialect() -> None:
    switches = {field.name for field in msgspec.structs.fields(Compat)}

    assert switches == {field.name for field in msgspec.structs.fields(Dialect)}


# -- one conversation, request after request ---------------------------------------------------------

texts = st.text(max_size=6)
turns = st.lists(
    st.one_of(
        st.builds(user, texts),
        st.builds(
            lambda r, t, c, p: said(reasoning(r), text(t), tool_call(c), provider=p),
            texts,
            texts,
            st.sampled_from(["c1", "c2"]),
            st.sampled_from([HERE, ELSEWHERE]),
        ),
        st.builds(result, st.sampled_from(["c1", "c2", "c3"]), texts),
    ),
    min_size=1,
    max_size=9,
)
dialects = st.one_of(
    st.just(DEEPSEEK),
    st.builds(
        Dialect,
        reasoning_replay=st.sampled_from(["reasoning_content", "reasoning", "text", "none"]),
        foreign_reasoning=st.booleans(),
        tool_name=st.booleans(),
        assistant_after_tool=st.booleans(),
        system_role=st.sampled_from(["system", "developer"]),
    ),
)


@given(turns, st.lists(st.integers(0, 9), max_size=4), dialects)
def test_what_is_remembered_is_what_would_be_made_anew_and_requests_extend_one_another(
    history: list[Message], cuts: list[int], spoken: Dialect
) -> None:
    known, before = WireHistory(spoken, HERE), b""
    for cut in [*sorted(cuts), len(history)]:
        messages = tuple(history[:cut])
        head, made = known.members("s", messages)
        anew_head, anew = WireHistory(spoken, HERE).members("s", messages)

        assert (head, bytes(made)) == (anew_head, bytes(anew))
        assert bytes(made).startswith(before)
        before = bytes(made)


def test_a_message_that_cannot_be_sent_leaves_nothing_of_itself_behind() -> None:
    spoken = Dialect(tool_name=True, assistant_after_tool=True)
    known = WireHistory(spoken, HERE)
    start = HISTORY[:3]
    known.members(None, start)
    bad = user_message([text("see"), {"type": "image", "attachment": {"id": "a"}}])
    with pytest.raises(LlmError, match="holds an image"):
        known.members(None, (*start, bad))

    again = (*start, user("on"))
    assert known.members(None, again) == WireHistory(spoken, HERE).members(None, again)


def test_what_could_not_be_put_into_words_leaves_nothing_behind() -> None:
    bridged = dialect(assistantAfterTool=True)
    history, start = WireHistory(bridged, HERE), (user("a"),)
    image = user_message([{"type": "image", "attachment": {}}])
    history.members(None, start)
    with pytest.raises(LlmError, match="image"):
        history.members(None, (*start, said(tool_call()), result("c1", "r"), image))

    after = (*start, user("b"))
    assert history.members(None, after) == WireHistory(bridged, HERE).members(None, after)
