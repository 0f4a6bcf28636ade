"""Any history, mended as the loop mends it, makes a request that the strictest server takes."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.agent.transcript import outgoing
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from dsh.testing.mock_server.part import Text, whole
from dsh.testing.mock_server.strict.anthropic import check_anthropic
from dsh.testing.mock_server.strict.chat import check_chat
from dsh.testing.mock_server.strict.rules import Issued, Rules
from tests.contract.wire.memory_http import Sent
from tests.contract.wire.wires import (
    ANTHROPIC_WIRE,
    OPENAI_WIRE,
    WIRES,
    Wire,
    in_memory,
    over_wires,
    spelling,
)
from tests.llm.build import schema

TEXTS = st.sampled_from(
    ["hi", "", " \n", "ü🏷", "x\ud83cy", "\u2028", "\x00", '"quoted"', "<think>no</think>"]
)
IDS = st.sampled_from(
    ["c1", "c2", "call:1", "call;1", "c 1", "ü", "x" * 100, "toolu_01Ab", "functions.read:0"]
)
ARGUMENTS = st.sampled_from(
    ["{}", "", '{"a": 1}', "{broken", "[1]", "null", '{"a":"\\ud83c"}', '"x"', "1e999", "[" * 2000, " {} "]
)
STATES: list[Any] = [
    None,
    {},
    {"response": {"version": 1}, "blocks": [None]},
    {"response": {"version": 99}, "blocks": [{"signature": "s"}, None]},
    {"response": {"version": 1}, "blocks": "none"},
    {"response": 7, "blocks": [1, 2, 3]},
    {"anything": ["else"]},
]
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "reasoning", "text": text}, TEXTS),
    st.builds(
        lambda call_id, arguments: {
            "type": "tool-call",
            "id": call_id,
            "name": "read",
            "arguments": arguments,
        },
        IDS,
        ARGUMENTS,
    ),
    st.just({"type": "some-day", "data": {"a": [1]}}),
)


def _distinct(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without a second call of the same id: within one message adapters see to that."""
    calls = {block["id"]: block for block in reversed(blocks) if block["type"] == "tool-call"}
    return [block for block in blocks if block["type"] != "tool-call" or block is calls[block["id"]]]


MESSAGES = st.one_of(
    st.builds(user_message, TEXTS),
    st.builds(
        lambda blocks, wire, state: assistant_message(
            _distinct(blocks), provider=wire.route, model="m", replay_state=state
        ),
        st.lists(BLOCKS, max_size=5),
        st.sampled_from(WIRES),
        st.sampled_from(STATES),
    ),
    st.builds(
        lambda call_id, texts, is_error: tool_result_message(
            call_id, [{"type": "text", "text": text} for text in texts], is_error=is_error
        ),
        IDS,
        st.lists(TEXTS, max_size=3),
        st.booleans(),
    ),
)


PLAIN = Rules()
DEMANDING = Rules(
    refuses=("stream_options", "max_tokens", "role:system", "messages.reasoning_content"),
    demands_tool_name=True,
    demands_assistant_after_tool=True,
)
COMPAT = {
    "streamOptions": False,
    "maxTokensField": "max_completion_tokens",
    "systemRole": "developer",
    "reasoningReplay": "none",
    "toolName": True,
    "assistantAfterTool": True,
}


def check(wire: Wire, sent: Sent, rules: Rules) -> None:
    """Raises where a real server would refuse the request."""
    headers = {name.lower(): value for name, value in sent.headers.items()}
    if wire is ANTHROPIC_WIRE:
        check_anthropic(sent.body, headers, rules, Issued())
    else:
        check_chat(sent.body, spelling(wire), rules, Issued())


async def ask(
    wire: Wire, history: list[Message], *, effort: str | None = None, rules: Rules = PLAIN, **route: Any
) -> None:
    messages = tuple(outgoing([*history, user_message("go on")], lambda _: False))
    async with in_memory(wire, wire.plan(whole(Text("yes"))), **route) as line:
        reply = await line.ask(messages=messages, system="sys", tools=(schema("read"),), effort=effort)

        assert reply.code == "", reply.failure
        check(wire, line.sent[0], rules)
        line.sent[0].raw.decode("utf-8")


@over_wires
@settings(max_examples=100, deadline=None)
@given(history=st.lists(MESSAGES, max_size=10), thinks=st.booleans())
def test_any_history_makes_a_request_that_is_taken(wire: Wire, history: list[Message], thinks: bool) -> None:
    asyncio.run(ask(wire, history, effort="low" if thinks and wire is not OPENAI_WIRE else None))


@settings(max_examples=100, deadline=None)
@given(history=st.lists(MESSAGES, max_size=10))
def test_a_server_that_differs_in_everything_is_satisfied_by_its_compat(history: list[Message]) -> None:
    asyncio.run(ask(OPENAI_WIRE, history, rules=DEMANDING, compat=COMPAT))
