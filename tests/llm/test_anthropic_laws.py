"""Any history, however it is asked for, is a request that the Messages API takes, and always the same one."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm.anthropic.body import request_body
from dsh.llm.anthropic.history import WireHistory
from dsh.llm.anthropic.route import AnthropicRoute, ThinkingBudgets
from dsh.llm.request import LlmRequest
from dsh.session.message import Message, assistant_message, user_message
from dsh.testing.mock_server.dialect.anthropic import signature
from dsh.testing.mock_server.strict.anthropic import check_anthropic
from dsh.testing.mock_server.strict.rules import Issued, Rules
from tests.llm.anthropic_build import MODEL, ROUTE, request
from tests.llm.anthropic_rules import problems
from tests.llm.build import reasoning, result, schema, text, tool_call

WORDS = st.sampled_from(["hi", "", " ", " \n\t", "\u3000", "\ud83d", "é\u2028", '"}]', "\x00", "a" * 70])
IDS = st.sampled_from(["c", "c-2", "c-3", "d", "call:1", "call.1", "call_1", "", "é", "a" * 64, "a" * 65])
NAMES = st.sampled_from(["read", "fs.read", "", "ü", "n" * 200])
ARGUMENTS = st.sampled_from(
    ["{}", "", ' {"a" : 1} ', '{"a":', "[1]", "null", "7", '{"a":"\\ud83d"}', "[" * 3000, "\ufeff{}"]
)
MODELS = ("claude-sonnet-4-5", "claude-opus-4-7", "claude-opus-5", "claude-sonnet-5-5", "claude-fable-5-2")
WHERE = st.sampled_from([(ROUTE, model) for model in (*MODELS, "m")] + [("elsewhere", MODEL), ("", "")])
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 7, "sig", [], {}, {"type": "thinking"}, {"type": "thinking", "signature": 1}]
)

blocks = st.one_of(
    WORDS.map(text),
    WORDS.map(reasoning),
    st.builds(tool_call, IDS, NAMES, ARGUMENTS),
    st.sampled_from(
        [{"type": "some-day", "x": 1}, {"type": "tool-result", "toolCallId": "c", "content": []}]
    ),
)


@st.composite
def states(draw: st.DrawFn, said: list[Any]) -> Any:
    """Sound state of these blocks, unsound state, another wire's, or none."""
    if draw(st.integers(0, 4)) == 0:
        return draw(
            st.sampled_from([None, {}, 7, {"response": {"version": 9}, "blocks": []}, {"id": "resp_1"}])
        )
    entries: list[Any] = []
    for block in said:
        if block["type"] != "reasoning" or draw(st.integers(0, 5)) == 0:
            entries.append(draw(JUNK))
        elif draw(st.booleans()):
            entries.append({"type": "thinking", "signature": signature(block["text"])})
        else:
            entries.append({"type": "redacted_thinking", "data": "c2VjcmV0"})
    cut = draw(st.sampled_from([0, 0, 0, 1]))
    return {"response": {"version": 1}, "blocks": entries[: len(entries) - cut]}


@st.composite
def replies(draw: st.DrawFn) -> Message:
    said = draw(st.lists(blocks, max_size=5))
    provider, model = draw(WHERE)
    state = draw(states(said))
    made: Any = assistant_message(
        said, provider or "p", model or "m", state if isinstance(state, dict) else None
    )
    if draw(st.booleans()):
        made = {**made, "interrupted": True}
    return made  # type: ignore[no-any-return]


@st.composite
def asked(draw: st.DrawFn) -> Message:
    made: Any = dict(user_message(draw(st.lists(st.one_of(WORDS.map(text), blocks), max_size=3)) or "x"))
    made["role"] = draw(st.sampled_from(["user", "system"]))
    return made  # type: ignore[no-any-return]


messages = st.one_of(replies(), asked(), st.builds(result, IDS, WORDS, is_error=st.booleans()))
histories = st.lists(messages, max_size=12).map(tuple)
routes = st.builds(
    AnthropicRoute,
    api_key_env=st.just("K"),
    cache_retention=st.sampled_from(["none", "short", "long"]),
    thinking_budgets=st.just(ThinkingBudgets(high=8191)),
)


def asking(history: tuple[Message, ...], model: str, effort: str, with_tools: bool) -> LlmRequest:
    config = {"model": model, "reasoning_effort": None if effort == "off" else effort}
    tools = (schema("read"), schema("write")) if with_tools else ()
    return request(*history, config=config, system="sys" if with_tools else " ", tools=tools)


def taken(body: bytes) -> None:
    """Raises where the API would refuse it."""
    value = json.loads(body.decode("utf-8"))
    assert problems(value) == []
    check_anthropic(value, {"anthropic-version": "2023-06-01"}, Rules(), Issued())


@given(histories, routes, st.sampled_from(MODELS), st.sampled_from(["off", "low", "high"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_history_is_taken(
    history: tuple[Message, ...], route: AnthropicRoute, model: str, effort: str, with_tools: bool
) -> None:
    taken(request_body(asking(history, model, effort, with_tools), route, WireHistory()))


@given(
    histories,
    routes,
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(MODELS), st.booleans()), max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_what_is_remembered_changes_no_byte(
    history: tuple[Message, ...], route: AnthropicRoute, calls: list[tuple[int, str, bool]]
) -> None:
    """Of one conversation that grows, shrinks, changes its model and its tools."""
    known = WireHistory()
    for length, model, with_tools in calls:
        request = asking(history[:length], model, "low", with_tools)
        body, anew = request_body(request, route, known), WireHistory()
        assert body == request_body(request, route, anew)
        assert known.digest == anew.digest
        taken(body)
