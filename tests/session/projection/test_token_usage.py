"""The projection `tokenUsage`: one report a step, the last one."""

from typing import Any

import pytest

from dsh.session.projection.token_usage import TOKEN_USAGE
from dsh.session.projection.unit import fold
from dsh.session.value import MAX_SAFE_INT
from tests.session.talk import Talk


def seen(talk: Talk) -> list[int]:
    """Uncached input, output, cache read, cache write."""
    view: Any = TOKEN_USAGE.show(fold(TOKEN_USAGE, talk.log.entries()))
    assert list(view) == ["uncachedInputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"]
    return list(view.values())


def used(input_tokens: int, output: int, read: int = 0, write: int = 0) -> dict[str, int]:
    return {
        "inputTokens": input_tokens,
        "outputTokens": output,
        "cacheReadTokens": read,
        "cacheWriteTokens": write,
    }


def stepping() -> Talk:
    talk = Talk()
    talk.turn()
    talk.step()
    return talk


def test_nothing_reported_is_zero() -> None:
    talk = stepping()
    talk.answer("hi")
    assert seen(talk) == [0, 0, 0, 0]


def test_the_message_repeats_what_the_stream_said() -> None:
    talk = stepping()
    talk.answer("hi", usage=used(10, 2, 5, 1))
    assert seen(talk) == [10, 2, 5, 1]


def test_a_retry_takes_the_place_of_the_attempt_before_it() -> None:
    talk = stepping()
    talk.stream("lost", usage=used(10, 90))
    assert seen(talk) == [10, 90, 0, 0]
    talk.answer("hi", usage=used(11, 2))
    assert seen(talk) == [11, 2, 0, 0]


def test_an_attempt_that_nothing_followed_counts() -> None:
    talk = stepping()
    talk.answer("hi", usage=used(10, 2))
    talk.end_step()
    talk.step(2)
    talk.stream("lost", usage=used(20, 3))
    talk.end_step()
    assert seen(talk) == [30, 5, 0, 0]


def test_steps_and_turns_add_up() -> None:
    talk = Talk()
    for _ in range(3):
        talk.turn()
        for step in (1, 2):
            talk.step(step)
            talk.answer("hi", usage=used(100, 10, 1000, 1))
            talk.end_step()
        talk.end_turn()
    assert seen(talk) == [600, 60, 6000, 6]


def test_what_a_summary_took_is_not_of_a_step() -> None:
    talk = stepping()
    talk.user("hello " * 50)
    talk.answer("hi", usage=used(100, 10))
    talk.compact(0, 1, "so far", usage=used(999, 99))
    assert seen(talk) == [100, 10, 0, 0]


@pytest.mark.parametrize("input_tokens", [MAX_SAFE_INT, 3])
def test_the_sums_of_a_foreign_log_stay_numbers_that_json_can_say(input_tokens: int) -> None:
    talk = Talk()
    for _ in range(2):
        talk.turn()
        talk.step()
        talk.answer("hi", usage=used(input_tokens, 1))
        talk.end_step()
        talk.end_turn()
    assert seen(talk)[0] == min(2 * input_tokens, MAX_SAFE_INT)


def test_a_report_that_says_the_same_leaves_the_very_same_state() -> None:
    talk = stepping()
    talk.stream("hi", usage=used(10, 2))
    state = fold(TOKEN_USAGE, talk.log.entries())
    length = talk.log.length
    talk.message("hi", usage=used(10, 2), sources=[])
    assert fold(TOKEN_USAGE, talk.log.entries(length), state) is state
