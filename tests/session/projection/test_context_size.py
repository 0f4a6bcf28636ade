"""Projections `contextPressure` and `contextBreakdown`: the next request, from a state of constant size."""

from typing import Any

import pytest
from hypothesis import given

from dsh.session.calibration import START_FACTOR, learned_factor
from dsh.session.estimate import log_price_of_header, log_price_of_system, log_price_of_tools
from dsh.session.projection.context_size import CONTEXT_BREAKDOWN, CONTEXT_PRESSURE, ContextSize
from dsh.session.projection.error import ProjectionError
from dsh.session.projection.unit import fold
from dsh.session.value import encode
from tests.session.moves import played, plays
from tests.session.talk import Talk

TOOLS = [{"name": "bash", "description": "runs a command", "parameters": {"type": "object"}}]
SYSTEM = "You are careful. " * 40
WORDS = "look at the tests of module seven " * 60


def state_of(talk: Talk) -> ContextSize:
    return fold(CONTEXT_PRESSURE, talk.log.entries())


def pressure(talk: Talk) -> dict[str, Any]:
    found: dict[str, Any] = CONTEXT_PRESSURE.show(state_of(talk))
    return dict(found)


def breakdown(talk: Talk) -> dict[str, Any]:
    found: dict[str, Any] = CONTEXT_BREAKDOWN.show(fold(CONTEXT_BREAKDOWN, talk.log.entries()))
    return dict(found)


def used(input_tokens: int, output: int = 10, **more: int) -> dict[str, int]:
    return {"inputTokens": input_tokens, "outputTokens": output, **more}


def begun() -> Talk:
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user(WORDS)
    talk.route(system=SYSTEM, tools=TOOLS)
    talk.put("request/context", {"provider": "acme", "model": "acme-1", "contextWindow": 128_000})
    talk.digest()
    return talk


def test_an_empty_log_says_nothing() -> None:
    assert pressure(Talk()) == {}
    assert breakdown(Talk()) == {"systemTokens": 0, "toolsTokens": 0, "messagesTokens": 0}


def test_before_any_usage_the_next_request_is_estimated() -> None:
    talk = begun()
    price = log_price_of_header(talk.log.request_header) + talk.price(*talk.log.surface_nodes)

    assert pressure(talk) == {"projectedTokens": round(price * START_FACTOR), "contextWindow": 128_000}


def test_a_usage_says_what_was_asked_and_what_comes_next() -> None:
    talk = begun()
    talk.answer("done", usage=used(600, 7, cacheReadTokens=300, cacheWriteTokens=11))

    assert pressure(talk) == {
        "pressureTokens": 911,
        "projectedTokens": 918,
        "contextWindow": 128_000,
    }


def test_what_was_added_since_is_added_at_the_learned_factor() -> None:
    talk = begun()
    sent = log_price_of_header(talk.log.request_header) + talk.price(*talk.log.surface_nodes)
    talk.answer("", ("c1", "{}"), usage=used(900, 20))
    result = talk.result("c1", "line of output\n" * 200)

    grown = learned_factor(sent, 900) * talk.price(result)
    assert pressure(talk)["projectedTokens"] == round(920 + grown)


def test_a_failed_attempt_says_how_large_its_request_was() -> None:
    talk = begun()
    talk.stream("lost", usage=used(900, 5))

    assert (pressure(talk)["pressureTokens"], pressure(talk)["projectedTokens"]) == (900, 900)


def test_what_entered_after_the_request_is_not_in_it() -> None:
    talk = begun()
    talk.user("z" * 3500)
    talk.answer("done", usage=used(900, 5))

    assert pressure(talk)["projectedTokens"] > 905 + 800


@pytest.mark.parametrize("said", [used(0, 0), used(9, 2)])
def test_a_usage_that_cannot_be_true_is_shown_and_not_stood_on(said: dict[str, int]) -> None:
    talk = begun()
    before = pressure(talk)["projectedTokens"]
    talk.answer("done", usage=said)

    assert pressure(talk)["pressureTokens"] == said["inputTokens"]
    assert before < pressure(talk)["projectedTokens"] < before + 20


def test_another_model_counts_anew_and_has_its_own_window() -> None:
    talk = begun()
    talk.answer("done", usage=used(900, 5))
    factor = state_of(talk).factor
    talk.route("acme-2", system=SYSTEM, tools=TOOLS)
    talk.put("request/context", {"provider": "acme", "model": "acme-2"})

    price = log_price_of_header(talk.log.request_header) + talk.price(*talk.log.surface_nodes)
    assert pressure(talk) == {"pressureTokens": 900, "projectedTokens": round(price * factor)}


def test_more_tools_for_the_same_model_are_added() -> None:
    talk = begun()
    talk.answer("done", usage=used(900, 5))
    factor = state_of(talk).factor
    talk.route(system=SYSTEM, tools=TOOLS * 5)

    more = log_price_of_tools(TOOLS * 5) - log_price_of_tools(TOOLS)
    assert pressure(talk)["projectedTokens"] == round(905 + factor * more)


def test_a_compaction_takes_away_the_price_that_its_summary_states() -> None:
    talk = begun()
    talk.answer("word " * 400, usage=used(900, 400))
    before, stated = state_of(talk), talk.price(*talk.log.surface_nodes)
    point = talk.compact(0, 1, "so far")

    after = state_of(talk)

    assert before.surface - after.surface == stated - talk.price(point)
    assert after.projected == round(1300 - before.factor * (stated - talk.price(point)))


def test_a_prune_takes_away_what_it_states_and_adds_what_is_left() -> None:
    talk = begun()
    talk.answer("", ("c1", "{}"), usage=used(900, 20))
    result = talk.result("c1", "y" * 9000)
    before = state_of(talk).surface
    pruned = talk.prune(result, "y" * 90)

    assert before - state_of(talk).surface == talk.price(result) - talk.price(pruned)


def test_a_replacement_that_nobody_prices_changes_nothing() -> None:
    log = played([("user", 1, 30), ("user", 2, 30)])
    before = fold(CONTEXT_PRESSURE, log.entries())
    message = {**log.event(log.surface_nodes[0]).data, "content": [{"type": "text", "text": "new"}]}
    seq = log.surface_nodes[0]
    log.append("user/message", message, surface={"op": "replace", "start": seq, "end": seq}, sources=[seq])

    assert fold(CONTEXT_PRESSURE, log.entries()) == before


def test_a_price_of_another_range_is_an_error() -> None:
    talk = begun()
    talk.answer("word", usage=used(900, 400))
    talk.compact(0, 1, "so far", shadowedRange={"start": 0, "end": 0})

    with pytest.raises(ProjectionError) as refused:
        state_of(talk)
    assert refused.value.code == "PROJECTION_CLAIM"


def test_the_parts_are_together_what_is_projected() -> None:
    talk = begun()
    talk.answer("done", usage=used(1500, 5))
    factor = state_of(talk).factor

    found = breakdown(talk)

    assert sum(found.values()) == pressure(talk)["projectedTokens"]
    assert found["systemTokens"] == round(factor * log_price_of_system(SYSTEM))
    assert found["toolsTokens"] == round(factor * log_price_of_tools(TOOLS))


def test_a_chinese_history_is_projected_right_after_one_reply() -> None:
    """A provider that takes 0.7 tokens a character; the log's price says a quarter."""
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user("请看第七个模块的测试，" * 300)
    talk.route()
    talk.digest()
    talk.answer("好", ("c1", "{}"), usage=used(2310, 5))
    talk.result("c1", "结果如下：" * 2000)

    assert pressure(talk)["projectedTokens"] == pytest.approx(2315 + 7000, rel=0.2)


@given(plays)
def test_the_state_has_the_same_size_however_long_the_log_is(
    moves: list[tuple[str, int, int]],
) -> None:
    log = played(moves)
    state = fold(CONTEXT_PRESSURE, log.entries())

    assert len(encode(CONTEXT_PRESSURE.dump(state))) < 600
    assert CONTEXT_PRESSURE.load(CONTEXT_PRESSURE.dump(state)) == state
    assert state == fold(CONTEXT_BREAKDOWN, log.entries())
    assert state.surface >= 0
    middle = log.length // 2
    part = fold(CONTEXT_PRESSURE, log.entries(0, middle))
    assert fold(CONTEXT_PRESSURE, log.entries(middle), part) == state


def test_a_step_without_digests_is_counted_as_the_surface_stands() -> None:
    talk = begun()
    talk.answer("one", usage=used(900, 5))
    talk.end_step()
    talk.step(2)
    talk.user("z" * 3500)
    talk.answer("two", usage=used(2000, 5))

    assert pressure(talk)["projectedTokens"] == 2005


def test_what_shrinks_by_more_than_there_was_is_nothing_and_not_less() -> None:
    talk = begun()
    result = talk.result("c1", "y" * 9000)
    pruned = talk.prune(result, "y", shadowedTokenCount=10**9)
    assert state_of(talk).surface == talk.price(pruned)

    talk = begun()
    talk.answer("w" * 40_000, usage=used(900, 0))
    talk.compact(0, 1, "so far")
    assert pressure(talk)["projectedTokens"] == 0
    assert breakdown(talk)["messagesTokens"] == 0


def test_a_negative_price_takes_nothing_away() -> None:
    talk = begun()
    result = talk.result("c1", "y" * 9000)
    before = state_of(talk).surface
    span = {"start": result, "end": result}
    data = {"shadowedRange": span, "shadowedSeqs": [result], "shadowedTokenCount": -5000}
    talk.log.load({"type": "compaction/prune", "seq": talk.log.length, "time": 1, "data": data})
    old = talk.log.event(result).data
    again = talk.put("tool/result", old, surface={"op": "replace", **span}, sources=[result])

    assert state_of(talk).surface == before + talk.price(again)


def test_a_price_counts_for_the_very_next_event_alone() -> None:
    talk = begun()
    result = talk.result("c1", "y" * 9000)
    span = {"start": result, "end": result}
    talk.put("compaction/prune", {"shadowedRange": span, "shadowedSeqs": [result], "shadowedTokenCount": 999})
    talk.put("request/context", {"provider": "acme", "model": "acme-1", "contextWindow": 128_000})
    before = state_of(talk).surface
    old = talk.log.event(result).data
    talk.put("tool/result", old, surface={"op": "replace", **span}, sources=[result])

    assert state_of(talk).surface == before


def test_the_same_model_of_another_provider_is_another_model() -> None:
    talk = begun()
    talk.answer("one", usage=used(9000, 5))
    head = {"config": {"provider": "other", "model": "acme-1"}, "system": SYSTEM, "tools": TOOLS}
    talk.put("request/header", {"header": head, "reason": "change"})

    assert state_of(talk).baseline is None
