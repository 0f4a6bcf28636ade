"""The mock server's opinion of what it is sent: what real servers refuse, each with its reason."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dsh.testing.mock_server import Rules
from dsh.testing.mock_server.dialect.anthropic import signature
from dsh.testing.mock_server.dialect.chat import DEEPSEEK
from dsh.testing.mock_server.plan import MockOptions
from dsh.testing.mock_server.quirk.chat import CHAT_QUIRKS
from dsh.testing.mock_server.strict.anthropic import check_anthropic
from dsh.testing.mock_server.strict.chat import check_chat
from dsh.testing.mock_server.strict.look import RequestProblem
from dsh.testing.mock_server.strict.rules import Issued

Change = Callable[[dict[str, Any]], object]
HEADERS = {"anthropic-version": "2023-06-01"}


def call(call_id: str = "c1", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": arguments}}


CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [call("c1"), call("c2")],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "thinking": {"type": "enabled"},
    "reasoning_effort": "high",
    "tools": [{"type": "function", "function": {"name": "bash", "description": "d", "parameters": {}}}],
    "max_tokens": 10,
    "temperature": 1,
    "stop": ["END"],
}


def wrong_chat(change: Change, spelling: str = "deepseek", rules: Rules | None = None) -> str:
    """Why a changed request is refused; empty where it is not."""
    request = copy.deepcopy(CHAT)
    change(request)
    issued = Issued()
    issued.remember("m", {"c1": "hm", "c2": "hm"})
    try:
        check_chat(request, spelling, rules or Rules(), issued)
    except RequestProblem as problem:
        return str(problem)
    return ""


def put(path: str, value: Any) -> Change:
    """Set a member, as `messages.2.content`."""

    def change(request: Any) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in way:
            request = request[part]
        request[last] = value

    return change


def drop(path: str) -> Change:
    def change(request: Any) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in way:
            request = request[part]
        del request[last]

    return change


@pytest.mark.parametrize("spelling", ["deepseek", "openai"])
def test_a_sound_chat_request_is_accepted(spelling: str) -> None:
    assert wrong_chat(lambda request: None, spelling) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("model", ""), "model"),
        (drop("model"), "model: expected a string, found null"),
        (put("stream", False), "stream"),
        (put("nonsense", 1), "nonsense: extra inputs"),
        (put("messages", []), "messages: [] is too short"),
        (drop("messages"), "messages: expected a list"),
        (put("messages.0", "hi"), "messages.0: expected an object"),
        (put("messages.0.role", "robot"), "messages.0.role"),
        (put("messages.1.content", None), "messages.1.content"),
        (put("messages.2.content", None), "messages.2.content"),
        (put("messages.2.tool_calls", []), "messages.2.tool_calls: [] is too short"),
        (put("messages.2.tool_calls.0.id", ""), "messages.2.tool_calls.0.id: it is empty"),
        (put("messages.2.tool_calls.1.id", "c1"), "ids must be unique"),
        (put("messages.2.tool_calls.0.type", "x"), "messages.2.tool_calls.0.type"),
        (put("messages.2.tool_calls.0.function.name", ""), "function.name: it is empty"),
        (put("messages.2.tool_calls.0.function.arguments", {}), "arguments: expected a string"),
        (put("messages.2.colour", "red"), "messages.2.colour: extra inputs"),
        (put("messages.3.tool_call_id", "other"), "no call before it has the id 'other'"),
        (drop("messages.3"), "the calls ['c2'] are not answered"),
        (put("messages.3", {"role": "user", "content": "x"}), "the calls ['c1', 'c2'] are not answered"),
        (drop("messages.2"), "no call before it has the id 'c2'"),
        (put("tools", []), "tools: [] is too short"),
        (put("tools.0.function.name", "a b"), "does not match"),
        (put("tools", [CHAT["tools"][0]] * 2), "names must be unique"),
        (put("max_tokens", 0), "max_tokens"),
        (put("max_tokens", None), "max_tokens"),
        (put("temperature", 3), "temperature"),
        (put("stop", []), "stop"),
        (put("reasoning_effort", "off"), "reasoning_effort"),
        (put("thinking", {"type": "disabled"}), "thinking is disabled"),
        (put("stream_options", {"usage": 1}), "stream_options.usage"),
        (drop("messages.2.reasoning_content"), "must be passed back"),
        (lambda r: (drop("tools")(r), put("tool_choice", "auto")(r)), "tool_choice: there are no tools"),
        (put("stop", ["x"] * 17), "stop: at most 16"),
        (put("messages.2.reasoning_content", "hmm"), "must be passed back"),
    ],
)
def test_a_wrong_chat_request_is_refused_with_its_reason(change: Change, says: str) -> None:
    assert says in wrong_chat(change)


def test_what_servers_differ_in_is_a_rule() -> None:
    def with_developer(request: dict[str, Any]) -> None:
        request["messages"][0]["role"] = "developer"

    def with_a_word_after(request: dict[str, Any]) -> None:
        request["messages"].append({"role": "user", "content": "and?"})

    assert wrong_chat(with_developer, "openai") == ""
    assert "messages.0.role" in wrong_chat(with_developer, "deepseek")
    assert "developer" in wrong_chat(with_developer, "openai", Rules(refuses=("role:developer",)))
    assert "stream_options" in wrong_chat(lambda r: None, "openai", Rules(refuses=("stream_options",)))
    refuses = Rules(refuses=("messages.reasoning_content",))
    assert "reasoning_content" in wrong_chat(lambda r: None, "openai", refuses)
    assert "name" in wrong_chat(lambda r: None, "openai", Rules(demands_tool_name=True))
    rules = Rules(demands_assistant_after_tool=True)
    assert "role user after role tool" in wrong_chat(with_a_word_after, "openai", rules)
    assert wrong_chat(with_a_word_after, "openai") == ""


def test_reasoning_is_demanded_where_it_was_given_and_only_there() -> None:
    without = drop("messages.2.reasoning_content")

    assert wrong_chat(without, "openai") == ""
    assert wrong_chat(without, "openai", Rules(demands_reasoning=True)) != ""
    assert wrong_chat(without, "deepseek", Rules(demands_reasoning=False)) == ""
    assert wrong_chat(lambda r: (without(r), put("model", "other")(r))) == ""
    unthinking = put("thinking", {"type": "disabled"})
    assert wrong_chat(lambda r: (without(r), unthinking(r), drop("reasoning_effort")(r))) == ""


MARK = {"type": "ephemeral"}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5000,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": signature("hm")},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "look:"},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "bash", "input": {"cache_control": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "two", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
                {"type": "text", "text": "and?", "cache_control": MARK},
            ],
        },
    ],
    "tools": [{"name": "bash", "input_schema": {"type": "object"}, "cache_control": MARK}],
    "stream": True,
    "thinking": {"type": "enabled", "budget_tokens": 2048},
}


def wrong_messages(change: Change, rules: Rules | None = None, headers: Any = HEADERS) -> str:
    """Why a changed request is refused; empty where it is not."""
    request = copy.deepcopy(MESSAGES)
    change(request)
    issued = Issued()
    issued.remember("m", {"c1": "hm", "c2": "hm"})
    try:
        check_anthropic(request, headers, rules or Rules(), issued)
    except RequestProblem as problem:
        return str(problem)
    return ""


def test_a_sound_messages_request_is_accepted() -> None:
    assert wrong_messages(lambda request: None) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("max_tokens"), "max_tokens: expected an integer"),
        (drop("model"), "model"),
        (put("stream", False), "stream"),
        (put("stop", ["x"]), "stop: extra inputs"),
        (put("system", " "), "system: text must be non-empty"),
        (put("system", []), "system: [] is too short"),
        (put("thinking.budget_tokens", 1000), "thinking.budget_tokens"),
        (put("thinking.budget_tokens", 5000), "must be greater than thinking.budget_tokens"),
        (put("temperature", 0.5), "temperature: it may only be 1"),
        (put("top_k", 3), "top_k"),
        (put("tool_choice", {"type": "any"}), "tool_choice"),
        (put("stop_sequences", ["\n"]), "stop_sequences.0"),
        (put("stop_sequences", []), "stop_sequences"),
        (put("messages", []), "messages"),
        (put("messages.0.role", "assistant"), "messages.0.role: roles must alternate"),
        (put("messages.0.role", "system"), "messages.0.role"),
        (put("messages.0.content", ""), "messages.0.content: text must be non-empty"),
        (put("messages.0.content", []), "messages.0.content: [] is too short"),
        (put("messages.0.content", [{"type": "text", "text": " \n"}]), "messages.0.content.0.text"),
        (put("messages.0.content", [{"type": "tool_use"}]), "messages.0.content.0.type"),
        (put("messages.1.content.0.signature", "forged"), "invalid signature"),
        (put("messages.1.content.0.thinking", "hmm"), "invalid signature"),
        (drop("messages.1.content.0.signature"), "signature"),
        (put("messages.1.content.0.cache_control", MARK), "cache_control: extra inputs"),
        (put("messages.1.content.1.data", ""), "data: it is empty"),
        (lambda r: r["messages"][1]["content"].reverse(), "the final block cannot be thinking"),
        (put("messages.1.content.2.text", ""), "messages.1.content.2.text"),
        (put("messages.1.content.3.id", "c.1"), "messages.1.content.3.id"),
        (put("messages.1.content.4.id", "c1"), "ids must be unique"),
        (put("messages.1.content.3.input", "{}"), "input: expected an object"),
        (put("messages.1.content", []), "messages.1.content"),
        (put("messages.2.content.0.content", ""), "messages.2.content.0.content"),
        (put("messages.2.content.0.content", []), "messages.2.content.0.content"),
        (put("messages.2.content.0.is_error", "yes"), "is_error"),
        (put("messages.2.content.0.tool_use_id", "c9"), "need one `tool_result` each"),
        (drop("messages.2.content.0"), "need one `tool_result` each"),
        (lambda r: r["messages"][2]["content"].reverse(), "`tool_result` blocks must come first"),
        (drop("messages.2"), "must end with a user message"),
        (put("messages.0.cache_control", MARK), "cache_control"),
        (put("tools.0.input_schema", {}), "input_schema.type"),
        (put("tools.0.name", "a.b"), "does not match"),
        (put("tools.0.parameters", {}), "parameters: extra inputs"),
        (drop("messages.1.content.0"), "must be passed back"),
        (lambda r: (drop("tools")(r), put("tool_choice", {"type": "auto"})(r)), "tool_choice"),
        (lambda r: (drop("thinking")(r), put("temperature", 1.5)(r)), "temperature"),
        (put("metadata", {"name": "x"}), "metadata.name"),
        (put("thinking", {"type": "disabled", "budget_tokens": 2048}), "thinking.budget_tokens"),
        (put("system.0.cache_control", {"type": "long"}), "cache_control.type"),
    ],
)
def test_a_wrong_messages_request_is_refused_with_its_reason(change: Change, says: str) -> None:
    assert says in wrong_messages(change)


def test_four_cache_markers_are_the_most() -> None:
    fourth = put("messages.2.content.0.cache_control", MARK)
    fifth = put("messages.2.content.1.cache_control", MARK)

    assert wrong_messages(fourth) == ""
    assert "at most 4 blocks with cache_control, found 5" in wrong_messages(lambda r: (fourth(r), fifth(r)))


def test_what_is_refused_counts_on_the_messages_wire_too() -> None:
    assert "thinking: extra inputs" in wrong_messages(lambda r: None, Rules(refuses=("thinking",)))


def test_the_version_header_is_required() -> None:
    assert "anthropic-version" in wrong_messages(lambda r: None, headers={})


def test_thinking_is_demanded_for_the_calls_that_go_on_and_only_while_it_is_enabled() -> None:
    without = drop("messages.1.content.0")

    def over(request: dict[str, Any]) -> None:
        without(request)
        answer = [{"type": "text", "text": "done"}]
        request["messages"] += [{"role": "assistant", "content": answer}, {"role": "user", "content": "next"}]

    assert wrong_messages(without) != ""
    assert wrong_messages(over) == ""
    assert wrong_messages(lambda r: (without(r), drop("thinking")(r))) == ""
    assert wrong_messages(lambda r: (without(r), put("model", "other")(r))) == ""
    assert wrong_messages(without, Rules(demands_reasoning=False)) == ""


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, "", "x", [], [None], [[]], {}, {"a": {}}, float("nan"), 2**70),
    *({"type": []}, {"type": "text"}, {"type": "tool_use", "id": "c1"}, {"type": "tool_result"}),
)


def places(value: object, place: str = "") -> Iterator[str]:
    """Every member at any depth, as `messages.2.content`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield f"{place}{name}"
        yield from places(inner, f"{place}{name}.")


@pytest.mark.parametrize(("sound", "wrong"), [(CHAT, wrong_chat), (MESSAGES, wrong_messages)])
def test_whatever_stands_anywhere_is_accepted_or_refused_in_one_line(
    sound: dict[str, Any], wrong: Callable[[Change], str]
) -> None:
    changes = [put(place, odd) for place in places(sound) for odd in ODD]
    told = [wrong(change) for change in (*changes, *map(drop, places(sound)))]
    assert len([line for line in told if line]) > len(told) / 2
    assert not [line for line in told if "\n" in line]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("tool_call_and_stop", {"mock-call-1"}),
        ("tool_calls_interleaved", {"mock-call-1", "mock-call-2"}),
        ("tool_call_late_name", {"mock-call-1"}),
        ("tool_call_without_id", set()),
    ],
)
def test_a_misspelt_call_is_known_to_have_had_no_reasoning(name: str, ids: set[str]) -> None:
    plan = CHAT_QUIRKS[name](DEEPSEEK, MockOptions())

    assert plan.calls == dict.fromkeys(ids, "")
