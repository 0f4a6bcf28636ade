"""From what a log derives to what a provider accepts: answers in order, nothing blank, valid Unicode."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.cleaning import EMPTY, NO_OUTPUT, cleaned
from dsh.agent.transcript import NOT_STARTED, OUTCOME_UNKNOWN, Transcript, outgoing, settled_before
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from dsh.session.value import FrozenDict
from tests.agent.provider_check import problems


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "reasoning", "text": words}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": "look", "arguments": "{}"}


def user(*blocks: Any) -> Message:
    return user_message([text(block) if isinstance(block, str) else block for block in blocks])


def says(*blocks: Any) -> Message:
    return assistant_message([text(b) if isinstance(b, str) else b for b in blocks], "p", "m")


def result(call_id: str, *words: str) -> Message:
    return tool_result_message(call_id, [text(word) for word in words])


def never(call_id: str) -> bool:
    return False


def lines(messages: Sequence[Message]) -> list[str]:
    """One line a message: `user a | b`, `assistant call c1`, `result c1: x`."""
    out = []
    for message in messages:
        words = []
        for block in message["content"]:
            match block["type"]:
                case "tool-result":
                    inner = "|".join(b["text"] for b in block["content"] if b["type"] == "text")
                    words.append(f"{block['toolCallId']}: {inner}")
                case "tool-call":
                    words.append(f"call {block['id']}")
                case "text" | "reasoning":
                    words.append(block["text"])
                case _:
                    words.append(block["type"])
        role = "result" if message["source"]["kind"] == "tool" else message["role"]
        out.append(f"{role} {' | '.join(words)}")
    return out


# -- one message -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        user("a", "b"),
        says("a", call("c")),
        says(thought("why"), "so"),
        says(thought("only")),
        says(call("c")),
        result("c", "out"),
        user_message([{"type": "hologram", "of": "something"}]),
        user_message([{"type": "image", "attachment": {"digest": "x"}}]),
        user("한 🏷"),
    ],
)
def test_what_needs_nothing_stays_the_same_object(message: Message) -> None:
    assert cleaned(message) is message


@pytest.mark.parametrize("words", ["", " ", " \n", "\u00a0\u2003", "\t\r\n"])
def test_blank_text_is_left_out_and_the_rest_stays(words: str) -> None:
    assert lines([cleaned(says(words, "a", words, call("c"))) or user()]) == ["assistant a | call c"]
    assert lines([cleaned(user(words, "a")) or user()]) == ["user a"]
    assert lines([cleaned(result("c", words, "a", words)) or user()]) == ["result c: a"]


@pytest.mark.parametrize("content", [(), ("",), (" \n",), ("", " ")])
def test_a_result_that_says_nothing_says_so(content: tuple[str, ...]) -> None:
    found = cleaned(result("c", *content))
    assert found is not None
    assert lines([found]) == [f"result c: {NO_OUTPUT}"]
    assert found["id"]


@pytest.mark.parametrize("blocks", [(), ("",), (" \n", ""), (thought(""),), (thought(" "), "")])
def test_a_message_of_which_nothing_is_left_is_none(blocks: tuple[Any, ...]) -> None:
    assert cleaned(user(*blocks)) is None
    assert cleaned(says(*blocks)) is None


def test_reasoning_is_kept_to_the_letter_beside_anything_else() -> None:
    message = says(thought(" \n"), call("c"))
    assert cleaned(message) is message


def test_half_a_character_becomes_the_sign_for_one_wherever_it_stands() -> None:
    broken = says("a\ud83d", {**call("c\udc00"), "arguments": '{"a":"\ud83d"}'}, thought("\ud83d\udc4d"))
    found = cleaned(broken)
    assert found is not None
    assert lines([found]) == ["assistant a\ufffd | call c\ufffd | 👍"]
    assert type(found) is FrozenDict
    assert found["id"] == broken["id"]


def test_a_result_among_other_blocks_answers_nobody_and_is_left_out() -> None:
    inner = result("c", "x")["content"][0]
    assert lines(outgoing([user(inner, "a")], never)) == ["user a"]
    assert outgoing([user(inner, inner)], never)[0]["content"] == (text(EMPTY),)


# -- RF-01: calls and results ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "started", "expected"),
    [
        pytest.param(
            [user("q"), says(call("a"), call("b"))],
            "",
            ["user q", "assistant call a | call b", f"result a: {NOT_STARTED}", f"result b: {NOT_STARTED}"],
            id="a: none started",
        ),
        pytest.param(
            [user("q"), says(call("a"), call("b")), result("a", "x")],
            "ab",
            ["user q", "assistant call a | call b", "result a: x", f"result b: {OUTCOME_UNKNOWN}"],
            id="b: both started, one result",
        ),
        pytest.param(
            [user("q"), says(call("a")), *(m for n in range(10) for m in (user(f"u{n}"), says(f"r{n}")))],
            "a",
            [
                "user q",
                "assistant call a",
                f"result a: {OUTCOME_UNKNOWN}",
                *(line for n in range(10) for line in (f"user u{n}", f"assistant r{n}")),
            ],
            id="c: an orphan deep in history",
        ),
        pytest.param(
            [user("q"), result("z", "lost"), says("ok"), result("y", "lost"), user("go")],
            "",
            ["user q", "assistant ok", "user go"],
            id="d: a result whose call is missing",
        ),
        pytest.param(
            [
                user("q"),
                says(call("a"), call("b"), call("c")),
                result("a", "x"),
                result("c", "z"),
                user("go"),
            ],
            "abc",
            [
                "user q",
                "assistant call a | call b | call c",
                "result a: x",
                f"result b: {OUTCOME_UNKNOWN}",
                "result c: z",
                "user go",
            ],
            id="e: the middle one of three is lost",
        ),
        pytest.param(
            [user("q"), says(call("a"), call("b")), result("b", "y"), user("note"), result("a", "x")],
            "ab",
            ["user q", "assistant call a | call b", "result a: x", "result b: y", "user note"],
            id="out of order, with something between",
        ),
        pytest.param(
            [user("q"), says(call("a")), result("a", "x"), result("a", "again"), says("ok")],
            "a",
            ["user q", "assistant call a", "result a: x", "assistant ok"],
            id="two results of one call",
        ),
    ],
)
def test_each_call_is_answered_once_in_order_right_after_its_message(
    history: list[Message], started: str, expected: list[str]
) -> None:
    found = outgoing(history, started.__contains__)
    assert lines(found) == expected
    assert problems(found) == []


# -- AN-03: nothing blank --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param(
            [user("q"), says("", call("a")), result("a", "x")],
            ["user q", "assistant call a", "result a: x"],
            id="a: only calls",
        ),
        pytest.param([user("q"), says(""), user("go")], ["user q", "user go"], id="b: no text"),
        pytest.param([user("q"), says(" \n"), user("go")], ["user q", "user go"], id="c: blank text"),
        pytest.param(
            [user("q"), says(call("a")), result("a", "")],
            ["user q", "assistant call a", f"result a: {NO_OUTPUT}"],
            id="d: no output",
        ),
        pytest.param([user("q"), says(), user("go")], ["user q", "user go"], id="e: nothing at all"),
        pytest.param([user("")], [f"user {EMPTY}"], id="a blank prompt alone"),
        pytest.param([user(""), user("note")], ["user note"], id="a blank prompt, something after it"),
        pytest.param([user("note"), user(" ")], ["user note"], id="a blank prompt, something before it"),
        pytest.param([user(""), user(" ")], [f"user {EMPTY}"], id="two blank ones say it once"),
        pytest.param(
            [user("q"), says("ok"), user(""), says("what?")],
            ["user q", "assistant ok", f"user {EMPTY}", "assistant what?"],
            id="a blank one between two replies",
        ),
        pytest.param(
            [user("q"), says(call("a")), result("a", "x"), user(" ")],
            ["user q", "assistant call a", "result a: x"],
            id="a blank one beside a result",
        ),
        pytest.param(
            [user(""), says(""), user("go")], ["user go"], id="a blank reply does not part blank and spoken"
        ),
    ],
)
def test_nothing_blank_goes_out_and_somebody_speaks_for_the_user(
    history: list[Message], expected: list[str]
) -> None:
    found = outgoing(history, never)
    assert lines(found) == expected
    assert problems(found) == []


# -- laws ------------------------------------------------------------------------------------------

words = st.sampled_from(["", " ", "a", "b\ud83d", "\n"])
ids = st.sampled_from(["a", "b", "c"])
replies = st.builds(
    lambda blocks, calls: says(*blocks, *map(call, calls)),
    st.lists(words, max_size=2),
    st.lists(ids, max_size=3, unique=True),
)
histories = st.lists(
    st.one_of(
        st.builds(lambda w: user(*w), st.lists(words, max_size=2)),
        replies,
        st.builds(lambda i, w: result(i, *w), ids, st.lists(words, max_size=2)),
    ),
    max_size=14,
)


@given(histories, st.frozensets(ids))
def test_whatever_the_history_no_provider_refuses_it(history: list[Message], started: frozenset[str]) -> None:
    assert problems(outgoing(history, started.__contains__)) == []


@given(histories)
def test_cleaning_twice_changes_nothing(history: list[Message]) -> None:
    once = outgoing(history, never)
    twice = outgoing(once, never)
    assert all(a is b for a, b in zip(once, twice, strict=True))


@given(histories, st.integers(0, 14))
def test_what_goes_out_of_the_parts_is_what_goes_out_of_the_whole(history: list[Message], start: int) -> None:
    at = settled_before(history[: start + 1])
    parts = [*outgoing(history[:at], never), *outgoing(history[at:], never)]
    assert parts == outgoing(history, never)


class Log:
    """A session that messages are put into as they come, without the rules of turns and steps."""

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.replace_generation = 0
        self.scans = 0

    def derive_messages(self) -> tuple[Message, ...]:
        return self.messages

    def select(self, *types: str) -> list[Any]:
        self.scans += 1
        return []


@given(histories, st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8))
def test_the_remembered_transcript_is_the_one_that_would_be_made_anew(
    history: list[Message], moves: list[tuple[int, bool]]
) -> None:
    log: Any = Log()
    transcript = Transcript(log)
    for count, is_replaced in moves:
        if is_replaced:
            log.messages, log.replace_generation = log.messages[1:], log.replace_generation + 1
        else:
            start = len(log.messages)
            log.messages = (*log.messages, *history[start : start + count])
        sent = transcript.messages()
        assert list(sent) == outgoing(log.messages, never)
        assert transcript.messages() is sent


def test_what_was_sent_before_the_last_reply_stays_the_same_objects() -> None:
    log: Any = Log()
    transcript = Transcript(log)
    whole = [user("q"), says(call("a")), user("\ud83d"), says("so"), user(""), says("yes"), user("go")]
    before: Sequence[Message] = ()
    for count in range(1, len(whole) + 1):
        log.messages = tuple(whole[:count])
        sent = transcript.messages()
        settled = len(outgoing(whole[: settled_before(whole[: count - 1])], never))
        assert all(a is b for a, b in zip(sent[:settled], before[:settled], strict=True))
        before = sent
    assert log.scans <= 3, "the log is looked through while an answer is missing, and not afterwards"


def test_an_event_may_be_looked_up_in_a_real_log() -> None:
    session = Session(SessionHeader(id="s", created_at=0))
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.append("user/message", user("q"), surface="append")
    said = {"turn": 1, "step": 1, "message": says(call("a"), call("b"))}
    session.append("assistant/message", said, surface="append", sources=[])
    started = {"turn": 1, "step": 1, "callId": "a", "name": "look", "arguments": "{}"}
    session.append("tool/call", started)

    found = lines(Transcript(session).messages())

    assert found[2:] == [f"result a: {OUTCOME_UNKNOWN}", f"result b: {NOT_STARTED}"]
