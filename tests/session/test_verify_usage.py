"""The check of what requests used and cost."""

from typing import Any

import pytest

from dsh.session.digest import REQUEST_DIGEST
from dsh.session.projection.price import Price
from dsh.session.projection.request_usage import REQUEST_USAGE, usage_payload
from dsh.session.verify.log import verify
from tests.session.projection.build import Timed

USED = {"inputTokens": 30, "outputTokens": 20}
PRICE = Price(input=2.0, output=8.0)


def one_step() -> Timed:
    timed = Timed()
    timed.turn(1)
    timed.step(1)
    timed.route()
    request(timed)
    return timed


def request(timed: Timed, attempt: int = 1) -> None:
    """The digest of an attempt; its text is not what is looked at."""
    data = {**timed.where, "attempt": attempt, "algorithm": "none", "digest": "", "messages": 0}
    timed.put(REQUEST_DIGEST, data, ignorable=True)


def row(timed: Timed, **changes: Any) -> None:
    data = usage_payload(
        USED,
        provider="acme",
        model="acme-1",
        price=PRICE,
        turn=timed.where["turn"],
        step=timed.where["step"],
        attempt=1,
    )
    timed.put(REQUEST_USAGE, {**data, **changes}, ignorable=True)


def closed(timed: Timed) -> Timed:
    timed.end_step()
    timed.end_turn()
    return timed


def found(timed: Timed) -> list[tuple[str, str]]:
    told = [(each.level, each.code) for each in verify(timed.log).findings]
    return [each for each in told if each[1].startswith("USAGE_")]


def test_a_row_that_agrees_with_everything_is_no_finding() -> None:
    timed = one_step()
    row(timed)
    timed.retry()
    request(timed, 2)
    row(timed, attempt=2)
    timed.message(usage=USED)

    assert found(closed(timed)) == []


def test_a_summary_and_a_title_have_no_step() -> None:
    timed = one_step()
    data = usage_payload(USED, provider="acme", model="small", price=None, purpose="session-title")
    timed.put(REQUEST_USAGE, data, ignorable=True)
    timed.message(usage=USED)
    closed(timed)
    timed.put(REQUEST_USAGE, {**data, "purpose": "compaction"}, ignorable=True)

    assert found(timed) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"turn": 2}, "USAGE_PLACE"),
        ({"step": 7}, "USAGE_PLACE"),
        ({"attempt": 2}, "USAGE_PLACE"),
        ({"costUsd": 0.5}, "USAGE_COST"),
        ({"costUsd": None}, "USAGE_COST"),
        ({"costUsd": -1}, "USAGE_COST"),
        ({"price": None}, "USAGE_COST"),
        ({"price": {"input": "dear"}}, "USAGE_COST"),
        ({"usage": {"inputTokens": 30, "outputTokens": 21}, "costUsd": 228e-6}, "USAGE_OF_REPLY"),
    ],
)
def test_a_row_that_does_not_fit_is_an_error(changes: dict[str, Any], code: str) -> None:
    timed = one_step()
    row(timed, **changes)
    timed.message(usage=USED)

    assert found(closed(timed)) == [("error", code)]


def test_a_second_row_of_one_attempt_would_count_twice() -> None:
    timed = one_step()
    row(timed)
    row(timed)

    assert found(closed(timed)) == [("error", "USAGE_PLACE")]


def test_a_row_outside_of_a_step_belongs_to_none() -> None:
    timed = closed(one_step())
    row(timed)

    assert found(timed) == [("error", "USAGE_PLACE")]


@pytest.mark.parametrize("data", [{}, {"usage": USED}, {"usage": 7, "provider": "a", "model": "b"}])
def test_a_row_that_says_nothing_is_a_warning(data: dict[str, Any]) -> None:
    timed = one_step()
    timed.put(REQUEST_USAGE, data, ignorable=True)

    assert found(closed(timed)) == [("warning", "USAGE_UNREADABLE")]


def test_attempts_are_numbered_anew_in_each_step() -> None:
    timed = one_step()
    row(timed)
    timed.message(usage=USED)
    timed.end_step()
    timed.step(2)
    request(timed)
    row(timed)
    timed.message(usage=USED)

    assert found(closed(timed)) == []


def test_a_writer_without_digests_numbers_its_attempts_by_the_rows() -> None:
    timed = Timed()
    timed.turn(1)
    timed.step(1)
    row(timed)
    row(timed, attempt=2)
    timed.message(usage=USED)

    assert found(closed(timed)) == []


def test_the_row_of_an_attempt_that_failed_says_nothing_of_the_next_ones_reply() -> None:
    timed = one_step()
    row(timed)
    timed.retry()
    request(timed, 2)
    timed.message(usage={"inputTokens": 1, "outputTokens": 1})

    assert found(closed(timed)) == []


def test_a_reply_that_is_written_again_has_the_usage_of_its_own_time() -> None:
    timed = one_step()
    timed.message(usage={"inputTokens": 1, "outputTokens": 1})
    at = timed.log.length - 1
    timed.end_step()
    timed.step(2)
    request(timed)
    row(timed)
    again = {"op": "replace", "start": at, "end": at}
    shadow = {"shadowedRange": {"start": at, "end": at}, "shadowedSeqs": [at], "shadowedTokenCount": 1}
    timed.put("compaction/prune", shadow)
    said = {**timed.log.event(at).data, **timed.where}
    timed.put("assistant/message", said, surface=again, sources=[at])
    timed.message(usage=USED)

    assert found(closed(timed)) == []


def test_a_large_cost_may_be_off_by_its_share() -> None:
    timed = one_step()
    most = {"inputTokens": 10**15, "outputTokens": 0}
    row(timed, usage=most, costUsd=2e9 + 1, price={"input": 2.0, "output": 8.0})
    row(timed, usage=most, costUsd=2e9 + 10, price={"input": 2.0, "output": 8.0}, attempt=2)

    assert [code for _, code in found(closed(timed))].count("USAGE_COST") == 1


def test_a_cost_may_be_off_by_what_arithmetic_is() -> None:
    timed = one_step()
    row(timed, costUsd=220e-6 + 4e-10)
    timed.message(usage=USED)

    assert found(closed(timed)) == []
