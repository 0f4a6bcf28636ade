"""What is remembered from request to request never shows in what is sent, and only what is new is read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm.boundary import Adapted, without_foreign_state, without_images
from dsh.llm.chat.body import WireHistory
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo, Seen
from dsh.llm.transport.body import encode_wire
from dsh.session.message import Message, assistant_message, user_message
from tests.chat_wire import deepseek_history, deepseek_messages
from tests.llm.build import assistant, reasoning, result, text, tool_call, user

IMAGE = {"type": "image", "attachment": {"digest": "sha256:0123456789abcdef"}}


class Owner:
    """Something that remembers."""


def history() -> tuple[Message, ...]:
    return (
        user("look \ud83d"),
        assistant(reasoning("why"), text("so"), tool_call("c1", arguments='{"a":1}')),
        result("c1", "한"),
        user("and?"),
        assistant(text("done")),
    )


parts = st.lists(st.integers(0, 4), max_size=6)
"""Each a history of that many messages: longer, shorter, the same again, as after retries, compaction."""


def array(known: WireHistory, system: str | None, messages: tuple[Message, ...]) -> bytes:
    return b"[" + b"".join(known.members(system, messages)) + b"]"


@given(parts, st.sampled_from([None, "", "be brief"]))
def test_remembered_text_is_the_text_that_would_be_made_anew(lengths: list[int], system: str | None) -> None:
    whole, known = history(), deepseek_history()
    for length in lengths:
        assert array(known, system, whole[:length]) == encode_wire(deepseek_messages(system, whole[:length]))


def test_another_history_of_the_same_length_is_not_taken_for_the_known_one() -> None:
    known = deepseek_history()
    known.members(None, (user("a"), user("b")))

    found = array(known, None, (user("a"), user("c")))

    assert found == encode_wire([{"role": "user", "content": "a"}, {"role": "user", "content": "c"}])


def test_a_history_that_cannot_be_put_into_words_leaves_nothing_behind() -> None:
    known, first = deepseek_history(), user("a")
    bad = user_message([IMAGE])
    known.members(None, (first,))
    with pytest.raises(LlmError, match="holds an image"):
        known.members(None, (first, bad))

    assert array(known, None, (first, user("b"))).count(b'"role"') == 2


def test_what_goes_out_unchanged_is_the_same_tuple_and_is_looked_at_once() -> None:
    seen: list[Message] = []

    def look(message: Message) -> Message:
        seen.append(message)
        return message

    known, whole = Adapted(), history()
    for length in (1, 1, 3, 5, 5):
        part = whole[:length]
        assert known.of(part, "rules", look) is part

    assert len(seen) == 5


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=8))
def test_each_route_gets_what_it_would_get_anew(steps: list[tuple[int, bool]]) -> None:
    whole = (
        user("a"),
        assistant_message([text("b")], "other", "m", replay_state={"id": 1}),
        user_message([IMAGE, text("c")]),
        user("d"),
    )
    known = Adapted()
    for length, takes_images in steps:

        def change(message: Message, takes_images: bool = takes_images) -> Message:
            message = without_foreign_state(message, lambda provider: provider == "p")
            return message if takes_images else without_images(message)

        part = whole[:length]
        found = known.of(part, takes_images, change)
        assert found == tuple(map(change, part))
        assert all(a is b for a, b in zip(found, known.of(part, takes_images, change), strict=True))


def test_a_beginning_is_told_by_the_objects_alone() -> None:
    seen, whole = Seen(), history()
    assert seen.count(whole) == 0
    seen.note(whole[:3])

    assert seen.count(whole) == seen.count(whole[:3]) == 3
    assert seen.count(whole[:2]) == 0
    assert seen.count((user("look \ud83d"), *whole[1:])) == 0


def test_each_owner_remembers_for_itself_until_it_goes() -> None:
    memo, one, two = Memo(), Owner(), Owner()
    made: list[Any] = [memo.of(owner, Seen) for owner in (one, two, one)]
    assert made[0] is made[2]
    assert made[0] is not made[1]

    del one

    assert memo.size == 1
