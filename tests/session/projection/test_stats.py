"""The figures of a session, derived by hand from logs of a few events."""

from collections.abc import Iterable
from typing import Any

import pytest

from dsh.session.error import SessionError
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Price, Tokens
from dsh.session.projection.stats import STATS, priced_view, view
from dsh.session.projection.unit import fold
from dsh.session.value import MAX_SAFE_INT
from tests.corpus import CORPUS, needs_corpus
from tests.session.projection.build import ROUTE, Timed
from tests.session.test_corpus import read

ORIGINAL = ("turns", "steps", "llmMs", "toolMs", "ttftMs", "ttftSteps", "decodeMs", "decodeTokens")


def figures(timed: Timed, **prices: Price) -> dict[str, Any]:
    return view(fold(STATS, timed.log.entries()), {ROUTE: prices["acme"]}.get if prices else None)


def one_step() -> Timed:
    timed = Timed()
    timed.at(0).turn(1)
    timed.at(10).step(1)
    timed.at(11).route()
    return timed


def test_a_step_is_measured_from_its_start_to_its_first_token_and_to_its_message() -> None:
    timed = one_step()
    timed.at(100).begin_block()
    timed.at(110).text("")  # says nothing yet
    timed.at(150).text("hi")
    timed.at(190).text("!")
    timed.at(200).used(inputTokens=9, outputTokens=20)
    timed.at(201).finish()
    timed.at(250).message(usage={"inputTokens": 9, "outputTokens": 20})
    timed.at(260).end_step()
    timed.at(270).end_turn()

    found = figures(timed)
    # started at 10, first text at 150, message at 250
    assert [found[key] for key in ORIGINAL] == [1, 1, 240, 0, 140, 1, 100, 20]
    assert (found["requests"], found["retries"]) == (1, 0)


@pytest.mark.parametrize("first", ["text", "thought", "arguments", "name"])
def test_text_reasoning_argument_text_and_a_tool_s_name_are_tokens(first: str) -> None:
    timed = one_step()
    timed.at(50)
    match first:
        case "text":
            timed.text("x")
        case "thought":
            timed.thought("x")
        case "arguments":
            timed.arguments("x")
        case "name":
            timed.arguments("", "bash")
    timed.at(80).message()

    assert (figures(timed)["ttftMs"], figures(timed)["ttftSteps"]) == (40, 1)


def test_an_empty_stream_has_no_first_token_and_no_writing_time() -> None:
    timed = one_step()
    timed.at(30).arguments("")
    timed.at(40).text("")
    timed.at(50).finish()
    timed.at(60).message(usage={"inputTokens": 1, "outputTokens": 5})

    found = figures(timed)
    assert [found[key] for key in ORIGINAL[2:]] == [50, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("usage", [None, {"inputTokens": 4, "outputTokens": 0}])
def test_writing_time_counts_only_where_the_tokens_are_known(usage: Any) -> None:
    timed = one_step()
    timed.at(30).text("x")
    timed.at(90).message(usage=usage)

    found = figures(timed)
    assert (found["ttftMs"], found["decodeMs"], found["decodeTokens"]) == (20, 0, 0)


def test_turns_are_those_in_which_a_step_ended() -> None:
    timed = Timed()
    for turn, steps in ((1, 2), (2, 0), (3, 1)):
        timed.turn(turn)
        for step in range(1, steps + 1):
            timed.step(step)
            timed.message()
            timed.end_step()
        timed.end_turn()
    timed.turn(4)
    timed.step(1)

    found = figures(timed)
    assert (found["turns"], found["steps"], found["requests"]) == (2, 3, 3)


def test_a_clock_that_goes_backwards_gives_zero_and_not_less() -> None:
    timed = one_step()
    timed.at(5).text("x")
    timed.at(3).message("c1", usage={"inputTokens": 1, "outputTokens": 5})
    seq = timed.at(50).log.length
    timed.call("c1")
    timed.at(20).result("c1", seq)

    found = figures(timed)
    assert [found[key] for key in ORIGINAL[2:]] == [0, 0, 0, 1, 0, 5]
    assert found["tools"] == {"bash": {"calls": 1, "errors": 0, "ms": 0}}


def test_times_of_a_foreign_clock_stay_numbers_that_json_can_say() -> None:
    timed = Timed()
    timed.at(-MAX_SAFE_INT).turn(1)
    for step in (1, 2):
        timed.at(-MAX_SAFE_INT).step(step)
        timed.at(0).text("x")
        timed.at(MAX_SAFE_INT).message("c1", usage={"inputTokens": 1, "outputTokens": MAX_SAFE_INT})
        call = timed.at(-MAX_SAFE_INT).call("c1")
        timed.at(MAX_SAFE_INT).result("c1", call)
        timed.end_step()

    state = fold(STATS, timed.log.entries())

    assert [view(state)[key] for key in ORIGINAL] == [1, 2, *[MAX_SAFE_INT] * 3, 2, *[MAX_SAFE_INT] * 2]
    assert STATS.load(STATS.dump(state)) == state


def test_tools_are_paired_by_call_id_and_parallel_ones_count_each() -> None:
    timed = one_step()
    timed.at(20).message("__proto__", "b", "c")
    first = timed.at(30).call("__proto__")
    second = timed.at(40).call("b", "read")
    third = timed.at(45).call("c", "read")
    timed.at(130).result("__proto__", first)
    timed.at(140).result("b", second, error="TIMEOUT")
    timed.at(145).result("c", third)

    found = figures(timed)
    assert found["toolMs"] == 300
    assert found["tools"] == {
        "bash": {"calls": 1, "errors": 0, "ms": 100},
        "read": {"calls": 2, "errors": 1, "ms": 200},
    }


def test_a_result_that_is_written_again_counts_once() -> None:
    timed = one_step()
    timed.at(20).message("c1")
    seq = timed.at(30).call("c1")
    timed.at(40).result("c1", seq)
    at = timed.log.length - 1
    data = timed.log.event(at).data
    shadow = {"shadowedRange": {"start": at, "end": at}, "shadowedSeqs": [at], "shadowedTokenCount": 1}
    timed.at(500).put("compaction/prune", shadow)
    timed.put("tool/result", data, surface={"op": "replace", "start": at, "end": at}, sources=[at])

    assert (figures(timed)["toolMs"], figures(timed)["tools"]["bash"]["calls"]) == (10, 1)


def test_the_end_of_a_turn_drops_calls_without_a_result() -> None:
    timed = one_step()
    timed.at(20).message("c1")
    timed.call("c1")
    timed.end_step()
    timed.end_turn()

    stats = fold(STATS, timed.log.entries())
    assert (stats.calls, stats.tools, stats.step) == ({}, {}, None)


def test_a_failed_attempt_counts_with_what_it_used_and_the_measure_begins_anew() -> None:
    timed = one_step()
    timed.at(20).text("half")
    timed.at(30).used(inputTokens=7, outputTokens=3)
    timed.at(40).retry()
    timed.at(100).retry()  # nothing of the second attempt came
    timed.at(200).text("x")
    timed.at(230).message(usage={"inputTokens": 8, "outputTokens": 4, "cacheReadTokens": 2})
    timed.end_step()

    found = figures(timed)
    assert (found["requests"], found["retries"]) == (3, 2)
    assert (found["llmMs"], found["ttftMs"], found["decodeMs"], found["decodeTokens"]) == (220, 190, 30, 4)
    assert found["tokens"][ROUTE] == {
        "input": 15, "output": 7, "cacheRead": 2, "cacheWrite": 0, "reasoning": 0, "costUsd": None,
    }  # fmt: skip


def test_an_attempt_that_ends_its_step_without_a_message_is_a_request_too() -> None:
    timed = one_step()
    timed.at(20).used(inputTokens=7, outputTokens=0)
    timed.finish()
    timed.end_step()
    timed.end_turn("blocked")

    found = figures(timed)
    assert (found["requests"], found["steps"], found["tokens"][ROUTE]["input"]) == (1, 1, 7)


def test_usage_of_the_stream_counts_where_the_message_says_none_and_never_twice() -> None:
    timed = one_step()
    timed.at(20).used(inputTokens=7, outputTokens=2)
    timed.message()
    timed.end_step()
    timed.step(2)
    timed.used(inputTokens=1, outputTokens=1)
    timed.message(usage={"inputTokens": 10, "outputTokens": 10})
    timed.end_step()

    assert figures(timed)["tokens"][ROUTE]["input"] == 17


def test_summaries_are_requests_of_their_own_route() -> None:
    timed = one_step()
    data = {
        "compactionId": "k", "summary": [{"type": "text", "text": "s"}], "rawOutput": [],
        "llmStreamCall": True,
        "shadowedRange": {"start": 0, "end": 0}, "shadowedSeqs": [0], "shadowedTokenCount": 1,
        "provider": "acme", "model": "small", "usage": {"inputTokens": 100, "outputTokens": 5},
    }  # fmt: skip
    timed.put("compaction/start", {"compactionId": "k", "turn": 1})
    timed.put("compaction/summary", data)
    timed.put("compaction/summary", {k: v for k, v in data.items() if k not in ("usage", "llmStreamCall")})

    found = figures(timed)
    assert found["requests"] == 1
    assert found["tokens"]["acme/small"]["input"] == 100


def test_numbers_that_are_none_count_as_zero() -> None:
    assert Tokens.of_usage(
        {"inputTokens": -3, "outputTokens": True, "cacheReadTokens": "9", "cacheWriteTokens": 2.0}
    ) == Tokens(cache_write=2)


# -- money -----------------------------------------------------------------------------------------

USED = {"inputTokens": 1_000_000, "outputTokens": 500_000, "cacheReadTokens": 2_000_000, "reasoningTokens": 9}


def spent() -> Timed:
    timed = one_step()
    timed.message(usage=USED)
    timed.end_step()
    return timed


def test_without_a_price_there_is_no_cost_and_not_a_cost_of_nothing() -> None:
    assert figures(spent())["costUsd"] is None
    assert figures(Timed())["costUsd"] is None


def test_reasoning_is_a_part_of_the_output_and_cached_input_has_its_own_price() -> None:
    price = Price(input=2.0, output=8.0, cache_read=0.5)
    # 1 x $2 + 2 x $0.50 + 0.5 x $8
    assert figures(spent(), acme=price)["costUsd"] == pytest.approx(7.0)
    assert figures(spent(), acme=Price(input=2.0, output=8.0))["costUsd"] == pytest.approx(10.0)


def test_the_sum_is_known_only_where_every_route_has_a_price() -> None:
    timed = spent()
    timed.route(model="other", reason="change")
    timed.step(2)
    timed.put(
        "assistant/message",
        {
            **timed.where,
            "message": {
                "role": "assistant", "content": [], "id": "a-9",
                "source": {"kind": "model", "provider": "acme", "model": "other"},
            },
            "usage": {"inputTokens": 1, "outputTokens": 1},
        },
        surface="append",
        sources=[],
    )  # fmt: skip

    found = figures(timed, acme=Price(input=1.0, output=1.0))
    assert found["costUsd"] is None
    assert found["tokens"][ROUTE]["costUsd"] == pytest.approx(3.5)
    assert found["tokens"]["acme/other"]["costUsd"] is None


def test_prices_are_asked_for_when_the_view_is_made() -> None:
    prices: dict[str, Price] = {}
    shown = priced_view(prices.get)
    stats = fold(STATS, spent().log.entries())
    assert shown(stats)["costUsd"] is None

    prices[ROUTE] = Price(input=0, output=0)
    assert shown(stats)["costUsd"] == 0.0


# -- recorded --------------------------------------------------------------------------------------


RECORDED = {
    # steps start at 3 and 66, first tokens at 9 and 68, messages at 62 and 96; the call from 63 to 64
    "fixtures/jsonrpc-agent-bash-tool-session.jsonl": (
        [1, 2, 59 + 30, 1, 6 + 2, 2, 53 + 28, 89 + 24], 2, 0,
        {"input": 123 + 233, "output": 89 + 24, "cacheRead": 1664 * 2, "cacheWrite": 0, "reasoning": 17 + 15},
        {"bash": {"calls": 1, "errors": 0, "ms": 1}},
    ),
    # steps start at 83 and 176, first tokens at 129 and 188, messages at 138 and 189;
    # three calls at once: 139 to 159, 140 to 159, 141 to 160
    "runs/parallel-reads.jsonl": (
        [1, 2, 55 + 13, 20 + 19 + 19, 46 + 12, 2, 9 + 1, 20 + 20], 2, 0,
        {"input": 36 * 2, "output": 40, "cacheRead": 64 * 2, "cacheWrite": 0, "reasoning": 0},
        {"read": {"calls": 3, "errors": 0, "ms": 58}},
    ),
    # the step starts at 76, fails at 119, starts again at 584; first token at 596, message at 599
    "runs/http-500-then-ok.jsonl": (
        [1, 1, 523, 0, 520, 1, 3, 20], 2, 1,
        {"input": 36, "output": 20, "cacheRead": 64, "cacheWrite": 0, "reasoning": 0},
        {},
    ),
}  # fmt: skip
"""Times in milliseconds since the first event, reckoned by hand from the log."""


@needs_corpus
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_sessions(name: str) -> None:
    original, requests, retries, used, tools = RECORDED[name]

    found = view(fold(STATS, read(CORPUS / name).view.entries()))

    assert [found[key] for key in ORIGINAL] == original
    assert (found["requests"], found["retries"]) == (requests, retries)
    assert found["tokens"] == {"deepseek-official/deepseek-v4-flash": {**used, "costUsd": None}}
    assert found["tools"] == tools


@needs_corpus
def test_every_recorded_session_event_by_event() -> None:
    """The figures of the original, by the sentences of its description, without packed runs and states."""
    seen = 0
    for path in sorted(CORPUS.glob("*/*.jsonl")):
        try:
            log = read(path).view
        except SessionError:
            continue
        seen += 1
        found = view(fold(STATS, log.entries()))
        assert {key: found[key] for key in ORIGINAL} == reckoned(log.events()), path.name
    assert seen > 100


def reckoned(events: Iterable[SessionEvent]) -> dict[str, int]:
    sums = dict.fromkeys(ORIGINAL, 0)
    turns: set[int] = set()
    started: int | None = None
    first: int | None = None
    calls: dict[str, int] = {}
    for event in events:
        data, now = event.data, event.time
        match event.type:
            case "step/start":
                started, first = now, None
            case "llm/retry":
                first = None
            case "assistant/chunk" if first is None:
                chunk = data["chunk"]
                if any(chunk.get(key) for key in ("text", "argumentsDelta", "name")):
                    first = now
            case "assistant/message" if started is not None:
                sums["llmMs"] += max(now - started, 0)
                if first is not None:
                    sums["ttftSteps"] += 1
                    sums["ttftMs"] += max(first - started, 0)
                    if tokens := int(data.get("usage", {}).get("outputTokens", 0)):
                        sums["decodeTokens"] += tokens
                        sums["decodeMs"] += max(now - first, 0)
            case "step/end":
                turns.add(data["turn"])
                sums["steps"] += 1
                started = None
            case "tool/call":
                calls[data["callId"]] = now
            case "tool/result":
                begun = calls.pop(data["message"]["source"]["callId"], None)
                sums["toolMs"] += 0 if begun is None else max(now - begun, 0)
            case "turn/end":
                calls.clear()
    sums["turns"] = len(turns)
    return sums
