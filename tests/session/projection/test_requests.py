"""What each request of a session used: once, from its own row or from what else the log says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.session.error import SessionError
from dsh.session.event import SessionEvent
from dsh.session.projection.price import LongRates, Price, Tokens
from dsh.session.projection.request_usage import REQUEST_USAGE, RequestUsage, logged_usage, usage_payload
from dsh.session.projection.requests import requests
from dsh.session.projection.stats import STATS, view
from dsh.session.projection.unit import fold
from dsh.session.value import MAX_SAFE_INT
from tests.corpus import CORPUS, needs_corpus
from tests.session.projection.build import ROUTE, Timed
from tests.session.test_corpus import read

PRICE = Price(input=2.0, output=8.0, cache_read=0.5)
USED = {"inputTokens": 30, "outputTokens": 20, "cacheReadTokens": 10}


def one_step() -> Timed:
    timed = Timed()
    timed.turn(1)
    timed.step(1)
    timed.route()
    return timed


def row(timed: Timed, usage: dict[str, int], price: Price | None = PRICE, **place: Any) -> None:
    place = place or {**timed.where, "attempt": 1}
    data = usage_payload(usage, provider="acme", model="acme-1", price=price, **place)
    timed.put(REQUEST_USAGE, data, ignorable=True)


def found(timed: Timed) -> list[RequestUsage]:
    return requests(timed.log.entries())


def figures(timed: Timed, price: Price | None = None) -> dict[str, Any]:
    return view(fold(STATS, timed.log.entries()), lambda _: price)


# -- the row -----------------------------------------------------------------------------------------


def test_a_row_says_the_place_the_route_the_tokens_the_price_and_the_cost() -> None:
    data = usage_payload(USED, provider="acme", model="acme-1", price=PRICE, turn=1, step=2, attempt=3)

    assert list(data) == ["turn", "step", "attempt", "provider", "model", "usage", "costUsd", "price"]
    # 30 x $2 + 10 x $0.50 + 20 x $8, per million
    assert data["costUsd"] == pytest.approx(225e-6, abs=1e-12)
    assert data["price"] == {"input": 2.0, "output": 8.0, "cacheRead": 0.5}
    read_back = logged_usage(data)
    assert read_back is not None
    assert read_back.route == "acme/acme-1"
    assert read_back.tokens == Tokens(input=30, output=20, cache_read=10)
    assert read_back.cost_usd == data["costUsd"]


def test_without_a_price_there_is_a_row_all_the_same_and_no_cost() -> None:
    data = usage_payload(USED, provider="acme", model="acme-1", price=None, purpose="session-title")

    assert list(data) == ["purpose", "provider", "model", "usage", "costUsd", "price"]
    assert (data["costUsd"], data["price"]) == (None, None)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"usage": []},
        {"usage": {}, "provider": "a"},
        {"usage": {}, "provider": "a", "model": ""},
    ],
)
def test_a_row_of_another_shape_is_none(data: Any) -> None:
    assert logged_usage(data) is None


@pytest.mark.parametrize("cost", [-1, True, "1", float("inf"), float("nan"), None])
def test_a_cost_that_is_none_counts_as_unknown(cost: Any) -> None:
    read_back = logged_usage({"provider": "a", "model": "b", "usage": {}, "costUsd": cost})
    assert read_back is not None
    assert read_back.cost_usd is None


# -- once --------------------------------------------------------------------------------------------


def test_a_request_counts_once_though_row_stream_and_message_tell_of_it() -> None:
    timed = one_step()
    timed.text("x")
    timed.used(**USED)
    row(timed, USED)
    timed.message(usage=USED)
    timed.end_step()

    assert [(each.turn, each.step, each.attempt, each.route) for each in found(timed)] == [(1, 1, 1, ROUTE)]
    shown = figures(timed)
    assert (shown["requests"], shown["tokens"][ROUTE]["input"]) == (1, 30)
    assert shown["costUsd"] == pytest.approx(225e-6, abs=1e-12)
    assert shown["decodeTokens"] == 20, "times are measured as without the row"


def test_a_failed_attempt_has_a_row_and_so_has_the_one_after_it() -> None:
    timed = one_step()
    timed.text("half")
    timed.used(**USED)
    row(timed, USED)
    timed.retry()
    timed.used(**USED)
    row(timed, USED, PRICE, **timed.where, attempt=2)
    timed.message(usage=USED)
    timed.end_step()

    assert [each.attempt for each in found(timed)] == [1, 2]
    shown = figures(timed)
    assert (shown["requests"], shown["retries"], shown["tokens"][ROUTE]["output"]) == (2, 1, 40)


def test_without_rows_attempts_are_counted_by_what_the_stream_said() -> None:
    timed = one_step()
    timed.used(inputTokens=7, outputTokens=3)
    timed.retry()
    timed.message(usage=USED)
    timed.end_step()

    assert [(each.attempt, each.tokens.input, each.cost_usd) for each in found(timed)] == [
        (1, 7, None), (2, 30, None),
    ]  # fmt: skip


def test_attempts_that_nobody_announced_are_requests_by_their_rows() -> None:
    timed = one_step()
    row(timed, USED)
    row(timed, USED, PRICE, **timed.where, attempt=2)
    row(timed, USED, PRICE, **timed.where, attempt=3)
    timed.message(usage=USED)
    timed.end_step()

    shown = figures(timed)
    assert (shown["requests"], shown["tokens"][ROUTE]["input"]) == (3, 90)


@pytest.mark.parametrize(("purpose", "requests"), [("session-title", 0), ("other", 1), ("compaction", 1)])
def test_a_call_beside_the_turns_is_a_request_unless_its_own_event_says_so(
    purpose: str, requests: int
) -> None:
    timed = Timed()
    row(timed, USED, purpose=purpose)

    assert figures(timed)["requests"] == requests


def test_an_attempt_that_left_no_message_counts_by_its_row() -> None:
    timed = one_step()
    timed.used(**USED)
    row(timed, USED)
    timed.end_step()
    timed.end_turn("blocked")

    assert len(found(timed)) == 1
    assert figures(timed)["requests"] == 1


def test_a_row_is_enough_to_tell_of_an_attempt() -> None:
    timed = one_step()
    row(timed, USED)
    timed.end_step()

    assert figures(timed)["requests"] == 1


SUMMARY = {
    "compactionId": "k", "summary": [{"type": "text", "text": "s"}], "rawOutput": [], "llmStreamCall": True,
    "shadowedRange": {"start": 0, "end": 0}, "shadowedSeqs": [0], "shadowedTokenCount": 1,
    "provider": "acme", "model": "acme-1", "usage": USED,
}  # fmt: skip


def test_a_summary_counts_by_its_rows_or_by_itself() -> None:
    timed = one_step()
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    row(timed, USED, purpose="compaction")
    row(timed, USED, purpose="compaction")  # the first try came to nothing
    timed.put("compaction/summary", SUMMARY)
    timed.put("compaction/end", {"compactionId": "k", "turn": 1})
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    timed.put("compaction/summary", SUMMARY)

    assert [(each.purpose, each.cost_usd is None) for each in found(timed)] == [
        ("compaction", False), ("compaction", False), ("compaction", True),
    ]  # fmt: skip
    shown = figures(timed)
    assert (shown["requests"], shown["tokens"][ROUTE]["input"]) == (3, 90)


def test_another_call_meanwhile_does_not_make_a_summary_count_twice() -> None:
    timed = one_step()
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    row(timed, USED, purpose="compaction")
    row(timed, USED, purpose="other")
    timed.put("compaction/summary", SUMMARY)

    assert [each.purpose for each in found(timed)] == ["compaction", "other"]
    assert (figures(timed)["requests"], figures(timed)["tokens"][ROUTE]["input"]) == (2, 60)


def test_a_header_that_names_no_route_leaves_the_one_before_it() -> None:
    config = {"provider": "p", "model": "m"}
    said: list[tuple[str, Any]] = [
        ("request/header", {"header": {"config": config}}), ("request/header", {"header": {}}),
        ("step/start", {}), ("assistant/chunk", used(inputTokens=1)), ("step/end", {}),
    ]  # fmt: skip
    events = events_of(said)

    assert [each.route for each in requests(events)] == ["p/m"]
    assert list(fold(STATS, events).tokens) == ["p/m"]


def test_a_row_stands_for_one_summary_and_no_more() -> None:
    timed = one_step()
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    row(timed, USED, purpose="compaction")
    timed.put("compaction/summary", SUMMARY)
    timed.put("compaction/summary", SUMMARY)

    assert [each.cost_usd is None for each in found(timed)] == [False, True]
    assert figures(timed)["tokens"][ROUTE]["input"] == 60


def test_rows_of_a_compaction_that_failed_do_not_hide_the_next_summary() -> None:
    timed = one_step()
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    row(timed, USED, purpose="compaction")
    timed.put("compaction/end", {"compactionId": "k", "turn": 1, "error": "no"})
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    timed.put("compaction/summary", SUMMARY)

    assert len(found(timed)) == 2
    assert figures(timed)["tokens"][ROUTE]["input"] == 60


def test_a_title_has_tokens_only_by_its_row() -> None:
    timed = one_step()
    row(timed, USED, purpose="session-title")
    timed.message(usage=USED)

    assert [each.purpose for each in found(timed)] == ["session-title", None]
    assert figures(timed)["tokens"][ROUTE]["input"] == 60


# -- money -------------------------------------------------------------------------------------------


def test_what_the_log_says_stays_whatever_tokens_cost_now() -> None:
    timed = one_step()
    row(timed, USED)
    timed.message(usage=USED)

    assert figures(timed)["costUsd"] == figures(timed, Price(input=99, output=99))["costUsd"]


def test_a_logged_cost_needs_no_price_whatever_the_tokens_are() -> None:
    timed = one_step()
    row(timed, {**USED, "cacheWriteTokens": 5, "reasoningTokens": 7})

    assert figures(timed)["costUsd"] is not None


def test_a_request_without_tokens_and_without_a_price_has_no_cost_either() -> None:
    timed = one_step()
    row(timed, {"inputTokens": 0, "outputTokens": 0}, None)

    assert figures(timed)["costUsd"] is None
    assert figures(timed, PRICE)["costUsd"] == 0.0


def test_what_the_log_has_no_cost_of_is_priced_now_and_unknown_without_a_price() -> None:
    timed = one_step()
    row(timed, USED)
    timed.message(usage=USED)
    timed.end_step()
    timed.step(2)
    row(timed, USED, None)
    timed.message(usage=USED)

    assert figures(timed)["costUsd"] is None
    assert figures(timed)["knownCostUsd"] == pytest.approx(225e-6, abs=1e-12)
    # the second one at $1 and $1: 30 + 10 + 20
    assert figures(timed, Price(input=1, output=1))["costUsd"] == pytest.approx(285e-6, abs=1e-12)


LONG = Price(input=1, output=2, long=LongRates(above_input_tokens=100, input=10, output=20, cache_read=5))


def test_a_request_with_long_input_costs_more_as_a_whole() -> None:
    assert Tokens(input=60, cache_read=40, output=1).cost_usd(LONG) == pytest.approx((60 + 40 + 2) / 1e6)
    assert Tokens(input=60, cache_read=20, cache_write=20).cost_usd(LONG) == pytest.approx(100 / 1e6)
    # 61 x $10 + 40 x $10, which has no price of its own
    assert Tokens(input=61, cache_write=40).cost_usd(LONG) == pytest.approx(1010 / 1e6)
    # 61 x $10 + 40 x $5 + 1 x $20
    assert Tokens(input=61, cache_read=40, output=1).cost_usd(LONG) == pytest.approx((610 + 200 + 20) / 1e6)


def test_cached_input_costs_what_other_input_costs_unless_it_is_said() -> None:
    """Also where the input is long: by the rates of long input then."""
    price = Price(input=1, output=0, long=LongRates(above_input_tokens=9, input=10, output=0))
    assert Tokens(cache_read=5, cache_write=4).cost_usd(price) == pytest.approx(9 / 1e6)
    assert Tokens(cache_read=5, cache_write=5).cost_usd(price) == pytest.approx(100 / 1e6)
    said = Price(input=1, output=0, cache_read=0, cache_write=3)
    assert Tokens(cache_read=5, cache_write=4).cost_usd(said) == pytest.approx(12 / 1e6)


def test_a_sum_of_requests_has_a_cost_by_a_price_that_depends_on_length_only_if_all_are_short() -> None:
    timed = one_step()
    timed.message(usage={"inputTokens": 60, "outputTokens": 1, "cacheReadTokens": 40})
    assert figures(timed, LONG)["costUsd"] == pytest.approx(102e-6, abs=1e-12)
    timed.end_step()
    timed.step(2)
    timed.message(usage={"inputTokens": 1, "outputTokens": 0})

    assert (figures(timed, LONG)["costUsd"], figures(timed, LONG)["knownCostUsd"]) == (None, 0.0)


@pytest.mark.parametrize("cost", [1e300, 1.1e18])
def test_a_cost_that_nobody_can_pay_counts_as_unknown(cost: float) -> None:
    """Two of the first would add up to a number that JSON cannot say."""
    timed = one_step()
    for _ in range(2):
        data = {"purpose": "x", "provider": "acme", "model": "acme-1", "usage": USED, "costUsd": cost}
        timed.put(REQUEST_USAGE, data, ignorable=True)

    assert (figures(timed)["costUsd"], figures(timed)["knownCostUsd"]) == (None, 0.0)


def test_the_dearest_tokens_there_can_be_have_a_cost_that_is_kept() -> None:
    most = dict.fromkeys(("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"), MAX_SAFE_INT)
    data = usage_payload(most, provider="a", model="b", price=Price(input=1e6, output=1e6), purpose="x")
    kept = logged_usage(data)
    assert kept is not None
    assert kept.cost_usd == data["costUsd"] > 1e16


def events_of(said: list[tuple[str, Any]]) -> list[SessionEvent]:
    """Events of any shape, as a log holds them that another program wrote."""
    return [SessionEvent(kind, seq, 0, data, None, None) for seq, (kind, data) in enumerate(said)]


def used(**tokens: int) -> dict[str, Any]:
    return {"chunk": {"type": "usage", "usage": tokens}}


def record(tokens: int, **place: Any) -> tuple[str, Any]:
    return REQUEST_USAGE, {**place, "provider": "p", "model": "m", "usage": {"inputTokens": tokens}}


ANY_EVENTS = st.lists(
    st.sampled_from(
        [
            ("step/start", {"turn": 1, "step": 1}),
            ("step/end", {"turn": 1, "step": 1}),
            ("turn/end", {"turn": 1}),
            ("llm/retry", {}),
            ("request/header", {"header": {"config": {"provider": "p", "model": "m"}}}),
            ("request/header", {"header": {"config": {"provider": "p", "model": "n"}}}),
            ("request/header", {}),
            ("assistant/chunk", used(inputTokens=1)),
            ("assistant/chunk", used()),
            ("assistant/chunk", {"chunk": {"type": "usage", "usage": 7}}),
            ("assistant/chunk", {"chunk": {"type": "text-delta", "text": "x"}}),
            ("assistant/message", {"message": {"source": {"provider": "p", "model": "m"}}}),
            ("assistant/message", {"message": {}, "usage": {"inputTokens": 10}}),
            ("assistant/message", {"message": {}, "usage": {}}),
            ("compaction/start", {}),
            ("compaction/summary", {"usage": {"inputTokens": 100}, "provider": "p", "model": "s"}),
            ("compaction/summary", {"llmStreamCall": True}),
            record(1000, turn=1, step=1, attempt=1),
            record(10_000, purpose="compaction"),
            record(100_000, purpose="session-title"),
            (REQUEST_USAGE, {}),
            (REQUEST_USAGE, []),
        ]
    ),
    max_size=14,
)


@settings(max_examples=400)
@given(ANY_EVENTS)
def test_requests_add_up_to_the_figures_in_any_order_of_events(said: list[tuple[str, Any]]) -> None:
    events = events_of(said)
    sums: dict[str, Tokens] = {}
    for each in requests(events):
        sums[each.route] = sums.get(each.route, Tokens()) + each.tokens
    assert sums == fold(STATS, events).tokens


counts = st.integers(0, 10**9)
usages = st.builds(
    lambda i, o, r, w: {"inputTokens": i, "outputTokens": o, "cacheReadTokens": r, "cacheWriteTokens": w},
    counts, counts, counts, counts,
)  # fmt: skip
rates = st.floats(0, 1000, allow_nan=False)


@given(st.lists(usages, min_size=1, max_size=20), rates, rates)
def test_costs_of_requests_add_up_to_the_cost_of_their_tokens(
    used: list[dict[str, int]], input_rate: float, output_rate: float
) -> None:
    price = Price(input=input_rate, output=output_rate)
    timed = one_step()
    for usage in used:
        row(timed, usage, price)

    tokens = sum((Tokens.of_usage(usage) for usage in used), Tokens())
    cost = figures(timed)["costUsd"]
    assert cost == pytest.approx(tokens.cost_usd(price), rel=1e-12, abs=1e-9)


@needs_corpus
def test_requests_of_every_recorded_session_add_up_to_its_figures() -> None:
    seen = 0
    for path in sorted(CORPUS.glob("*/*.jsonl")):
        try:
            log = read(path).view
        except SessionError:
            continue
        sums: dict[str, Tokens] = {}
        for each in requests(log.entries()):
            sums[each.route] = sums.get(each.route, Tokens()) + each.tokens
            seen += 1
        assert sums == fold(STATS, log.entries()).tokens, path.name
    assert seen > 100
