"""The Messages wire, outwards: every row of the table of messages, and the laws of any history."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm.anthropic.history import CONTINUE, LOST_RESULT, NO_OUTPUT, NO_RESULT, WireHistory
from dsh.llm.anthropic.tool_id import WireIds
from dsh.llm.failure import LlmError
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from tests.llm.anthropic_build import MODEL, ROUTE, SIGNED, claude, wire_messages
from tests.llm.build import reasoning, result, text, tool_call, user

IMAGE = {"type": "image", "attachment": {"digest": "sha256:0123456789abcdef"}}


def said(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def answered(wire_id: str, content: str, **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": wire_id, "content": content, **members}


def used(wire_id: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments}


def of(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def system(words: str) -> Message:
    message = user_message(words)
    return {**message, "role": "system"}


# -- roles -----------------------------------------------------------------------------------------


def test_messages_of_the_user_in_a_row_are_one_with_results_first() -> None:
    found = wire_messages(
        user("a"),
        claude(tool_call("c1"), tool_call("c2")),
        result("c2", "two", is_error=True),
        user("by the way"),
        result("c1", "one"),
        system("stay calm"),
    )

    assert found == [
        of("user", said("a")),
        of("assistant", used("c1"), used("c2")),
        of(
            "user",
            answered("c2", "two", is_error=True),
            answered("c1", "one"),
            said("by the way"),
            said("stay calm"),
        ),
    ]


def test_text_blocks_stay_apart_and_unknown_kinds_are_passed_over() -> None:
    message = user_message([text("a"), {"type": "odd", "x": 1}, text("b")])

    assert wire_messages(message) == [of("user", said("a"), said("b"))]
    assert wire_messages(user("q"), claude({"type": "odd"}, text("a"), text("b")), user("c"))[1] == of(
        "assistant", said("a"), said("b")
    )


@pytest.mark.parametrize("blank", ["", " ", " \n", "\t\u3000"])
def test_blank_text_is_never_sent_and_roles_alternate(blank: str) -> None:
    found = wire_messages(
        user("a"),
        claude(text(blank), tool_call("c1")),
        result("c1", blank),
        claude(text(blank)),
        user(blank),
        claude(),
        user("b"),
        claude(text("x")),
        user(blank),
        claude(text("y")),
    )

    assert found == [
        of("user", said("a")),
        of("assistant", used("c1")),
        of("user", answered("c1", NO_OUTPUT), said("b")),
        of("assistant", said("x")),
        of("user", said(CONTINUE)),
        of("assistant", said("y")),
        of("user", said(CONTINUE)),
    ]


def test_a_history_begins_and_ends_with_the_user() -> None:
    assert wire_messages() == [of("user", said(CONTINUE))]
    assert wire_messages(user(" ")) == [of("user", said(CONTINUE))]
    assert wire_messages(claude(text("a"))) == [
        of("user", said(CONTINUE)),
        of("assistant", said("a")),
        of("user", said(CONTINUE)),
    ]


# -- calls and results -----------------------------------------------------------------------------


def test_results_without_a_call_are_text_and_calls_without_a_result_get_one() -> None:
    found = wire_messages(
        result("gone", "early"),
        claude(tool_call("c1"), tool_call("c2")),
        result("c2", "two"),
        result("c2", "again"),
        claude(tool_call("c3")),
    )

    assert found == [
        of("user", said(LOST_RESULT + "early")),
        of("assistant", used("c1"), used("c2")),
        of(
            "user",
            answered("c2", "two"),
            answered("c1", NO_RESULT, is_error=True),
            said(LOST_RESULT + "again"),
        ),
        of("assistant", used("c3")),
        of("user", answered("c3", NO_RESULT, is_error=True)),
    ]


def test_ids_and_names_that_the_wire_does_not_take_are_made_to_fit_alike_in_call_and_result() -> None:
    odd = "call:1/ü"
    found = wire_messages(user("a"), claude(tool_call(odd, "fs.read")), result(odd, "x"))
    [call], [answer] = found[1]["content"], found[2]["content"]

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["id"])
    assert answer["tool_use_id"] == call["id"]
    assert call["name"] == "fs_read"
    assert wire_messages(user("a"), claude(tool_call("c", "")))[1]["content"][0]["name"] == "unknown"


def test_ids_that_come_again_are_told_apart_in_order() -> None:
    found = wire_messages(
        user("a"),
        claude(tool_call("c"), tool_call("c")),
        result("c", "first"),
        result("c", "second"),
        claude(tool_call("c")),
        result("c", "third"),
    )

    assert [block["id"] for block in found[1]["content"]] == ["c", "c-2"]
    assert [(block["tool_use_id"], block["content"]) for block in found[2]["content"]] == [
        ("c", "first"),
        ("c-2", "second"),
    ]
    assert found[4]["content"] == [answered("c-3", "third")]


@given(
    st.lists(st.one_of(st.text(max_size=80), st.sampled_from(["c", "c-2", "c-3", "", "a" * 70, "ü", "é"])))
)
def test_ids_fit_and_are_never_given_twice(ids: list[str]) -> None:
    wire = WireIds()
    given_ids = [wire.give(name) for name in ids]

    assert len(set(given_ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in given_ids)
    again = WireIds()
    assert [again.give(name) for name in ids] == given_ids


def test_an_id_that_always_comes_again_costs_no_more_each_time() -> None:
    looked_up = 0

    class Counting(set[str]):
        def __contains__(self, item: object) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super().__contains__(item)

    wire = WireIds()
    wire._given = Counting()
    assert len({wire.give("call_0") for _ in range(1000)}) == 1000
    assert looked_up <= 3000


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": [1, 2.50], "b": {"c": null}}', {"a": [1, 2.5], "b": {"c": None}}),
        ("", {}),
        ("{", {}),
        ("[1]", {}),
        ('"x"', {}),
        ("null", {}),
        ('{"a": NaN}', {}),
        ('{"a": 1e999}', {"a": 0}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\ud83d"}', {"a": "\ufffd"}),
        ("[" * 100_000, {}),
        ('{"a":' * 100_000, {}),
    ],
)
def test_arguments_are_sent_as_the_object_they_are_or_an_empty_one(arguments: str, sent: Any) -> None:
    call = {"type": "tool-call", "id": "c", "name": "n", "arguments": arguments}
    message = {**claude(text("x")), "content": (call,)}
    found = wire_messages(user("a"), message)  # type: ignore[arg-type]

    assert found[1]["content"][0]["input"] == sent


def test_arguments_keep_the_models_own_spelling() -> None:
    members = WireHistory().members(
        (user("a"), claude(tool_call(arguments='{ "b" : 1.0e0, "a":2 }'))), ROUTE, MODEL, b""
    )

    assert b'"input":{ "b" : 1.0e0, "a":2 }' in b"".join(members)


@pytest.mark.parametrize("message", [user_message([IMAGE]), tool_result_message("c", [IMAGE]), claude(IMAGE)])
def test_an_image_has_no_way_onto_this_wire(message: Message) -> None:
    with pytest.raises(LlmError) as caught:
        wire_messages(user("a"), message)
    assert caught.value.code == "UNSUPPORTED_CONTENT"


# -- thinking --------------------------------------------------------------------------------------

REDACTED = {"type": "redacted_thinking", "data": "secret"}


def test_thinking_goes_back_first_and_unchanged() -> None:
    message = claude(
        reasoning(" why\n"),
        reasoning(""),
        text("so"),
        tool_call("c1"),
        entries=[SIGNED, REDACTED, None, None],
    )

    assert wire_messages(user("a"), message)[1] == of(
        "assistant",
        {"type": "thinking", "thinking": " why\n", "signature": "sig"},
        {"type": "redacted_thinking", "data": "secret"},
        said("so"),
        used("c1"),
    )


@pytest.mark.parametrize(
    "message",
    [
        claude(reasoning("why"), text("so")),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None], model="claude-other"),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None], provider="elsewhere"),
        claude(reasoning("why"), text("so"), entries=[SIGNED]),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None, None]),
        claude(reasoning("why"), text("so"), entries=[None, None]),
        claude(reasoning("wh\ufffd"), text("so"), entries=[SIGNED, None]),
        claude(reasoning("wh\ud83d"), text("so"), entries=[SIGNED, None]),
        claude(reasoning("why"), text("so"), entries=[{"type": "thinking", "signature": ""}, None]),
        claude(reasoning("why"), text("so"), entries=[{"type": "thinking", "signature": 7}, None]),
        claude(reasoning("why"), text("so"), entries=[{"type": "redacted_thinking"}, None]),
        claude(reasoning("why"), text("so"), entries=[{"type": "odd", "signature": "s"}, None]),
        claude(reasoning("why"), text("so"), entries=["sig", None]),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None], response={"version": 2}),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None], response=None),
        claude(reasoning("why"), text("so"), entries=[SIGNED, None], blocks={"0": SIGNED}),
        assistant_message([reasoning("why"), text("so")], ROUTE, MODEL, replay_state={"other": 1}),
        assistant_message(
            [reasoning("why"), text("so")], ROUTE, MODEL, replay_state={"blocks": [SIGNED, None]}
        ),
    ],
)
def test_thinking_without_usable_state_of_this_very_model_is_left_out(message: Message) -> None:
    assert wire_messages(user("a"), message)[1] == of("assistant", said("so"))


def test_no_message_ends_with_thinking_or_consists_of_it() -> None:
    only = claude(reasoning("why"), entries=[SIGNED])
    late = claude(text("so"), reasoning("why"), entries=[None, SIGNED])

    assert wire_messages(user("a"), only, user("b")) == [of("user", said("a"), said("b"))]
    assert wire_messages(user("a"), late)[1] == of("assistant", said("so"))


def taken(*messages: Message) -> bool:
    known = WireHistory()
    known.members(messages, ROUTE, MODEL, b"")
    return known.can_think


def test_a_tool_loop_that_began_without_thinking_goes_on_without() -> None:
    own = claude(reasoning("why"), tool_call("c1"), entries=[SIGNED, None])
    foreign = assistant_message([reasoning("why"), tool_call("c1")], "deepseek-official", "m")
    later = claude(tool_call("c2"))

    assert taken(user("a"))
    assert taken(user("a"), own, result("c1", "x"))
    assert taken(user("a"), own, result("c1", "x"), later, result("c2", "y"))
    assert not taken(user("a"), foreign, result("c1", "x"))
    assert not taken(user("a"), foreign, result("c1", "x"), user("steer"))
    assert not taken(user("a"), foreign, result("c1", "x"), later, result("c2", "y"))
    assert not taken(user("a"), foreign)
    assert taken(user("a"), foreign, result("c1", "x"), claude(text("done")), user("b"))


# -- laws ------------------------------------------------------------------------------------------

names = st.sampled_from(["c", "d", "c.1", "c-2"])
words = st.sampled_from(["", " ", "hi", "\ud83d", "é\u2028", '"}]'])
block = st.one_of(
    words.map(text),
    st.builds(reasoning, words),
    st.builds(tool_call, names, arguments=st.sampled_from(["{}", '{"a":1}', "", "x"])),
)


@st.composite
def replies(draw: st.DrawFn) -> Message:
    blocks = draw(st.lists(block, max_size=4))
    entry = {"type": "thinking", "signature": "s"}
    entries = [entry if one["type"] == "reasoning" and draw(st.booleans()) else None for one in blocks]
    return claude(*blocks, entries=draw(st.sampled_from([None, entries])))


message = st.one_of(
    words.map(user),
    replies(),
    st.builds(result, names, words, is_error=st.booleans()),
    st.builds(system, words),
)
histories = st.lists(message, max_size=10).map(tuple)


def sent(known: WireHistory, messages: tuple[Message, ...], marker: bytes = b"", model: str = MODEL) -> bytes:
    return b"[" + b"".join(known.members(messages, ROUTE, model, marker)) + b"]"


@given(histories)
def test_any_history_is_a_legal_request(messages: tuple[Message, ...]) -> None:
    found = json.loads(sent(WireHistory(), messages, b',"cache_control":{}'))

    assert [one["role"] for one in found] == [["user", "assistant"][at % 2] for at in range(len(found))]
    assert len(found) % 2 == 1
    waiting: list[str] = []
    seen: set[str] = set()
    for one in found:
        content = one["content"]
        assert content
        assert all(part["text"].strip() for part in content if part["type"] == "text")
        kinds = [part["type"] for part in content]
        if one["role"] == "user":
            answers = [part["tool_use_id"] for part in content if part["type"] == "tool_result"]
            assert sorted(answers) == sorted(waiting)
            assert kinds[: len(answers)] == ["tool_result"] * len(answers)
        else:
            waiting = [part["id"] for part in content if part["type"] == "tool_use"]
            assert not seen.intersection(waiting) and len(set(waiting)) == len(waiting)
            seen.update(waiting)
            assert kinds[-1] != "thinking"
    marked = [at for at, one in enumerate(found) for part in one["content"] if "cache_control" in part]
    assert marked == [at for at in range(len(found)) if at % 2 == 0][-2:]


@given(histories, st.lists(st.integers(0, 10), max_size=6))
@settings(max_examples=60)
def test_remembered_text_is_the_text_that_would_be_made_anew(
    messages: tuple[Message, ...], lengths: list[int]
) -> None:
    known = WireHistory()
    for length in lengths:
        part = messages[:length]
        model = MODEL if length % 4 else "claude-other"
        marker = b"" if length % 3 else b',"m":1'
        assert sent(known, part, marker, model) == sent(WireHistory(), part, marker, model)


@given(histories, st.integers(0, 10))
def test_a_longer_history_begins_with_the_bytes_of_a_shorter_one_up_to_the_users_last_words(
    messages: tuple[Message, ...], length: int
) -> None:
    shorter = json.loads(sent(WireHistory(), messages[:length]))[:-1]
    longer = sent(WireHistory(), messages)

    assert longer.startswith(json.dumps(shorter, ensure_ascii=False, separators=(",", ":")).encode()[:-1])


def test_what_cannot_be_put_into_words_leaves_nothing_behind() -> None:
    known, first = WireHistory(), user("a")
    sent(known, (first,))
    with pytest.raises(LlmError):
        sent(known, (first, claude(tool_call("c")), tool_result_message("c", [IMAGE])))

    assert sent(known, (first, user("b"))) == sent(WireHistory(), (first, user("b")))


@pytest.mark.parametrize("frame", [None, b"frame"])
def test_a_request_costs_what_is_new_in_it(frame: bytes | None) -> None:
    """Counts what is put into words, over a thousand steps of one conversation."""
    known, looked_at = WireHistory(), 0

    class Counting(tuple[Any, ...]):
        def __iter__(self) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__iter__()

    history: list[Message] = []
    for step in range(1000):
        reply: Any = {**claude(tool_call(f"c{step}")), "content": Counting((tool_call(f"c{step}"),))}
        answer: Any = {**result(f"c{step}", "x"), "content": Counting(result(f"c{step}", "x")["content"])}
        history += [reply, answer]
        known.members(tuple(history), ROUTE, MODEL, b',"m":1', frame)

    assert looked_at <= 3 * len(history)


# -- thinking that is bound to what it stands behind -----------------------------------------------


class Bound:
    """A conversation with a model that takes thinking back only behind what it was thought behind."""

    def __init__(self, frame: bytes = b"frame") -> None:
        self.frame = frame
        self.messages: list[Message] = []
        self.known = WireHistory()

    def sent(self, known: WireHistory | None = None) -> list[list[str]]:
        """The kinds of the blocks of each reply, as they go out."""
        found = (known or self.known).members(tuple(self.messages), ROUTE, MODEL, b"", self.frame)
        replies: list[Any] = json.loads(b"[" + b"".join(found) + b"]")[1::2]
        return [[part["type"] for part in reply["content"]] for reply in replies]

    def step(self, *asked: Message, name: str) -> None:
        """The user says something, the model thinks and calls a tool."""
        self.messages += asked
        self.sent()
        state = {"version": 1, "behind": self.known.digest}
        blocks = [reasoning(f"why {name}"), tool_call(name)]
        self.messages.append(claude(*blocks, entries=[SIGNED, None], response=state))


WITH, BARE = ["thinking", "tool_use"], ["tool_use"]


def bound_steps(count: int) -> Bound:
    talk = Bound()
    talk.step(user("a"), name="c0")
    for step in range(1, count):
        talk.step(result(f"c{step - 1}", "x"), name=f"c{step}")
    return talk


def test_bound_thinking_goes_back_as_long_as_nothing_before_it_has_changed() -> None:
    talk = bound_steps(4)

    assert talk.sent() == [WITH] * 4
    assert talk.sent(WireHistory()) == [WITH] * 4
    talk.step(result("c3", "x"), user("steer"), name="c4")
    assert talk.sent(WireHistory()) == [WITH] * 5


@pytest.mark.parametrize("at", [0, 2, 4])
def test_bound_thinking_behind_a_message_that_changed_is_left_out(at: int) -> None:
    talk = bound_steps(4)
    changed: Any = {**talk.messages[at], "content": (text("other"), *talk.messages[at]["content"])}
    talk.messages[at] = changed

    expected = [WITH if step < at // 2 else BARE for step in range(4)]
    assert talk.sent() == talk.sent(WireHistory()) == expected
    talk.step(result("c3", "x"), name="c4")
    talk.step(result("c4", "x"), name="c5")
    assert talk.sent(WireHistory()) == [*expected, WITH, WITH], "what is thought from then on is kept"


def test_what_stands_far_before_bound_thinking_counts_too() -> None:
    """Also where no thinking in between is left out because of it."""
    talk = Bound()
    talk.messages = [user("a"), claude(text("no thought")), user("b"), claude(text("nor here"))]
    talk.step(user("c"), name="c0")
    assert talk.sent() == [["text"], ["text"], WITH]

    for at in (0, 1, 2, 3):
        kept, changed = talk.messages[at], (user("x"), claude(text("x")))[at % 2]
        talk.messages[at] = changed
        assert talk.sent() == [["text"], ["text"], BARE]
        talk.messages[at] = kept
    assert talk.sent() == [["text"], ["text"], WITH]


def test_bound_thinking_is_left_out_behind_another_frame_and_back_behind_its_own() -> None:
    talk = bound_steps(3)

    talk.frame = b"other tools"
    assert talk.sent() == [BARE] * 3
    talk.frame = b"frame"
    assert talk.sent() == [WITH] * 3


def test_bound_thinking_without_a_digest_is_left_out_and_unbound_needs_none() -> None:
    message = claude(reasoning("why"), text("so"), entries=[SIGNED, None])
    known = WireHistory()
    bound = json.loads(b"[" + b"".join(known.members((user("a"), message), ROUTE, MODEL, b"", b"f")) + b"]")

    assert bound[1] == of("assistant", said("so"))
    assert wire_messages(user("a"), message)[1]["content"][0]["type"] == "thinking"
    unbound = WireHistory()
    unbound.members((user("a"),), ROUTE, MODEL, b"")
    assert unbound.digest is None
