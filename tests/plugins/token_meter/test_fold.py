"""What a session measures: what the total stands on, and what changes it (`spec/tools.md` §8)."""

from typing import Any

import pytest

from dsh.capabilities.token_meter import Measurement
from dsh.plugins.token_meter.fold import MeterFold
from dsh.plugins.token_meter.surface import tokens_of
from dsh.session.calibration import START_RATIO, learned_ratio
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, ReasoningDelta
from dsh.session.derive import project
from dsh.session.estimate import log_price, weight, weight_of_header
from dsh.session.log import Session
from tests.session.talk import Talk

TOOLS = [{"name": "bash", "description": "runs a command", "parameters": {"type": "object"}}]
SYSTEM = "You are careful. " * 40
WORDS = "look at the tests of module seven " * 60


def measured(log: Session) -> Measurement:
    fold = MeterFold()
    fold.catch_up(log)
    return fold.measurement()


def usage(input_tokens: int, output: int = 10, **more: int) -> dict[str, int]:
    return {"inputTokens": input_tokens, "outputTokens": output, **more}


def begun(words: str = WORDS, **head: Any) -> Talk:
    """A log whose first request is complete."""
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user(words)
    talk.route(system=SYSTEM, tools=TOOLS, **head)
    talk.digest()
    return talk


def heavy(log: Session) -> int:
    """What the surface weighs."""
    return sum(weight(message) for message in log.derive_messages())


def test_nothing_yet() -> None:
    talk = Talk()
    assert measured(talk.log) == Measurement(
        log_length=0, baseline="none", total_tokens=0, head_tokens=0, surface_tokens=0,
        nodes=measured(talk.log).nodes,
    )  # fmt: skip
    talk.turn()
    talk.step()
    assert measured(talk.log).baseline == "none"
    assert measured(talk.log).log_length == 2


def test_before_any_usage_head_and_surface_are_estimated_at_the_start_ratio() -> None:
    talk = begun()

    seen = measured(talk.log)

    assert seen.baseline == "estimated"
    assert seen.head_tokens == tokens_of(weight_of_header(talk.log.request_header), START_RATIO)
    assert seen.surface_tokens == tokens_of(heavy(talk.log), START_RATIO)
    assert seen.total_tokens == seen.head_tokens + seen.surface_tokens


def test_after_a_reply_the_total_is_what_the_provider_counted() -> None:
    talk = begun()
    talk.answer("done", usage=usage(600, 5, cacheReadTokens=300, cacheWriteTokens=70, reasoningTokens=4))

    seen = measured(talk.log)

    assert seen.baseline == "usage"
    assert seen.total_tokens == 600 + 300 + 70 + 5  # what was thought is inside the output


@pytest.mark.parametrize("has_digest", [True, False])
def test_the_messages_of_the_step_itself_are_not_counted_twice(has_digest: bool) -> None:
    """A prompt of about a thousand tokens and a reply whose usage says 5010: the total is 5010."""
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user("x" * 4000)
    talk.route()
    if has_digest:
        talk.digest()
    talk.answer("ok", usage=usage(5000, 10))

    assert measured(talk.log).total_tokens == 5010


def test_what_comes_after_the_reply_is_added_at_the_learned_ratio() -> None:
    talk = begun()
    sent = weight_of_header(talk.log.request_header) + heavy(talk.log)
    talk.answer("", ("c1", "{}"), usage=usage(900, 20))
    before = measured(talk.log)
    talk.result("c1", "line of output\n" * 200)

    after = measured(talk.log)

    ratio = learned_ratio(sent, 900)
    grown = tokens_of(heavy(talk.log), ratio) - before.surface_tokens
    assert after.total_tokens == before.total_tokens + grown
    assert grown > 800


def test_a_reply_that_was_cut_counts_only_with_what_is_kept_of_it() -> None:
    """At its token limit a reply loses its calls: they were in the output, the next request is without."""
    kept, cut = begun(), begun()
    kept.answer("I write it", ("c1", "x" * 3500), usage=usage(900, 1000))
    streamed = cut.stream("I write it", ("c1", "x" * 3500))
    cut.message("I write it", usage=usage(900, 1000), sources=streamed)

    assert measured(kept.log).total_tokens == 1900
    assert 850 < 1900 - measured(cut.log).total_tokens < 1100


def test_an_empty_reply_leaves_what_was_sent() -> None:
    talk = begun()
    talk.message("", usage=usage(900, 0), sources=[])

    seen = measured(talk.log)

    assert (seen.baseline, seen.total_tokens) == ("usage", 900)
    assert (seen.nodes[-1].tokens, seen.nodes[-1].log_tokens) == (0, 0)


def test_a_reply_that_cites_nothing_is_taken_as_it_is() -> None:
    talk = begun()
    talk.message("done " * 50, usage=usage(900, 60))

    assert measured(talk.log).total_tokens == 960


def test_blocks_are_put_together_as_the_assembler_does() -> None:
    talk = begun()
    log, (turn, step) = talk.log, talk.where.values()
    block = {"type": "text", "text": "what the end says counts" * 20}
    chunks: list[Chunk] = [
        BlockStart(0, "reasoning"), ReasoningDelta(0, "hm "), ReasoningDelta(0, "hm"),
        BlockStart(1, "text"), BlockEnd(1, block), Finish({"kind": "stop"}),
    ]  # fmt: skip
    sources = [log.append_chunk(turn, step, chunk) for chunk in chunks]
    message = {"role": "assistant", "id": "a", "source": {"kind": "model", "provider": "acme", "model": "m"}}
    content = [{"type": "reasoning", "text": "hm hm"}, block]
    data = {**talk.where, "message": {**message, "content": content}, "usage": usage(900, 100)}
    log.append("assistant/message", data, surface="append", sources=sources)

    assert measured(log).total_tokens == 1000


def test_only_the_attempt_that_succeeded_makes_the_reply() -> None:
    talk = begun()
    talk.stream("lost " * 500)
    talk.answer("ok", usage=usage(900, 5))

    assert measured(talk.log).total_tokens == 905


def test_what_was_pruned_between_two_attempts_is_not_in_the_request_that_was_counted() -> None:
    talk = begun()
    talk.answer("", ("c1", "{}"), usage=usage(900, 20))
    result = talk.result("c1", "y" * 40_000)
    talk.end_step()
    talk.step(2)
    talk.digest()
    talk.stream()
    talk.prune(result, "y")
    talk.digest()
    talk.answer("ok", usage=usage(950, 5))

    assert measured(talk.log).total_tokens == 955


def test_without_digests_the_first_piece_tells_when_the_request_was_made() -> None:
    """A message that another plugin puts on the surface while a reply streams was in no request yet."""
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user(WORDS)
    talk.route()
    cited = talk.stream("done")
    talk.user("z" * 3500)
    talk.message("done", usage=usage(600, 5), sources=cited)

    assert 605 + 900 < measured(talk.log).total_tokens < 605 + 1100


def test_a_reply_without_usage_stands_on_the_last_one_that_had_it() -> None:
    talk = begun()
    talk.answer("one", usage=usage(900, 5))
    talk.end_step()
    talk.step(2)
    talk.user("go on")
    talk.message("half an answer", sources=talk.stream("half an answer"), interrupted=True)

    seen = measured(talk.log)

    assert seen.baseline == "usage"
    assert 905 < seen.total_tokens < 940


def test_an_interrupted_reply_with_usage_moves_the_anchor() -> None:
    talk = begun()
    talk.message("half", sources=talk.stream("half"), usage=usage(700, 3), interrupted=True)

    assert (measured(talk.log).baseline, measured(talk.log).total_tokens) == ("usage", 703)


@pytest.mark.parametrize("said", [usage(0, 0), usage(9, 2), usage(100, 2)])
def test_a_usage_that_cannot_be_true_is_not_stood_on(said: dict[str, int]) -> None:
    talk = begun()
    before = measured(talk.log)
    talk.answer("done", usage=said)

    seen = measured(talk.log)

    assert seen.baseline == "estimated"
    assert before.total_tokens < seen.total_tokens < before.total_tokens + 20


def test_a_later_usage_takes_the_place_of_an_earlier_one() -> None:
    talk = begun()
    talk.answer("one", usage=usage(900, 5))
    talk.end_step()
    talk.step(2)
    talk.user("go on")
    talk.answer("two", usage=usage(1111, 7))

    assert measured(talk.log).total_tokens == 1118


# -- the head --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"model": "acme-2"}, {"system": "short"}, {"tools": TOOLS * 2}])
def test_another_header_than_the_anchor_s_means_an_estimate_of_everything(changed: dict[str, Any]) -> None:
    talk = begun()
    talk.answer("done", usage=usage(900, 5))
    talk.route(**{"system": SYSTEM, "tools": TOOLS, **changed})

    seen = measured(talk.log)

    assert seen.baseline == "estimated"
    assert seen.total_tokens == seen.head_tokens + seen.surface_tokens


def test_the_anchor_s_own_header_brings_it_back() -> None:
    talk = begun()
    talk.answer("done", usage=usage(900, 5))
    talk.route("acme-2")
    talk.route(system=SYSTEM, tools=TOOLS)

    assert (measured(talk.log).baseline, measured(talk.log).total_tokens) == ("usage", 905)


def test_a_resumed_loop_that_logs_the_same_header_keeps_the_anchor() -> None:
    talk = begun()
    talk.answer("done", usage=usage(900, 5))
    talk.end_step()
    talk.end_turn()
    talk.turn()
    talk.step()
    talk.route(system=SYSTEM, tools=TOOLS, reason="resume")

    assert measured(talk.log).total_tokens == 905


# -- replacements ----------------------------------------------------------------------------------


def test_a_compaction_lowers_the_total_by_what_it_takes_away() -> None:
    talk = begun()
    talk.answer("word " * 400, usage=usage(900, 400))
    before = measured(talk.log)
    gone, claimed = sum(node.tokens for node in before.nodes), talk.price(*talk.log.surface_nodes)
    talk.compact(0, 1, "so far")

    after = measured(talk.log)

    (point,) = after.nodes
    assert after.baseline == "usage"
    assert after.total_tokens == before.total_tokens - gone + point.tokens
    assert sum(node.log_tokens for node in before.nodes) == claimed
    assert point.log_tokens == talk.price(point.seq)


def test_a_prune_changes_one_node_and_leaves_its_neighbours() -> None:
    talk = begun()
    talk.answer("", ("c1", "{}"), usage=usage(900, 20))
    result = talk.result("c1", "y" * 9000)
    talk.user("and then")
    before = measured(talk.log)
    pruned = talk.prune(result, "y" * 90)

    after = measured(talk.log)

    assert [node.seq for node in after.nodes] == [
        node.seq if node.seq != result else pruned for node in before.nodes
    ]
    assert [node.log_tokens for node in after.nodes if node.seq != pruned] == [
        node.log_tokens for node in before.nodes if node.seq != result
    ]
    assert before.total_tokens - after.total_tokens == before.surface_tokens - after.surface_tokens > 2000


def test_nothing_is_left_of_a_history_that_was_larger_than_its_usage() -> None:
    talk = begun("中文" * 3000)
    talk.answer("好", usage=usage(3000, 2))
    talk.compact(0, 1, "x")

    assert measured(talk.log).total_tokens >= 0


def test_each_node_has_its_part_of_the_whole() -> None:
    talk = begun()
    for number in range(20):
        talk.user("x" * number)
    seen = measured(talk.log)

    assert sum(node.tokens for node in seen.nodes) == seen.surface_tokens
    assert [node.seq for node in seen.nodes] == list(talk.log.surface_nodes)
    for node in seen.nodes:
        message = project(talk.log.event(node.seq))
        assert message is not None
        assert node.log_tokens == log_price(message)
        assert abs(node.tokens - weight(message) / START_RATIO) <= 1


# -- Chinese ---------------------------------------------------------------------------------------


class Truth:
    """A provider that counts like today's tokenizers: Chinese by the character, the rest by the word."""

    def __init__(self, per_character: float) -> None:
        self.per_character = per_character

    def tokens(self, text: str) -> int:
        wide = sum(char > "\u2e7f" for char in text)
        return round(wide * self.per_character + (len(text) - wide) * 0.24)


@pytest.mark.parametrize("per_character", [0.55, 0.7, 1.0])
def test_after_one_reply_chinese_is_measured_within_a_fifth(per_character: float) -> None:
    truth = Truth(per_character)
    prompt, said, output = (
        "请看第七个模块的测试，" * 200,
        "我先运行它们。" * 20,
        "模块已经加载，结果如下：" * 900,
    )
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user(prompt)
    talk.route(system=SYSTEM)
    sent = truth.tokens(SYSTEM) + truth.tokens(prompt)
    talk.answer(said, ("c1", "{}"), usage=usage(sent, truth.tokens(said)))
    talk.result("c1", output)

    real = sent + truth.tokens(said) + truth.tokens(output)
    assert measured(talk.log).total_tokens == pytest.approx(real, rel=0.2)
    by_log_price = sum(node.log_tokens for node in measured(talk.log).nodes)
    assert by_log_price < real * 0.8  # what the same history came to at four characters a token


def test_a_block_that_ends_twice_weighs_what_it_was_at_its_first_end() -> None:
    talk = begun()
    first, second = ({"type": "text", "text": "w" * size} for size in (7_000, 70_000))
    ends: list[Chunk] = [BlockEnd(0, first), BlockEnd(0, second), Finish({"kind": "stop"})]
    cited = [talk.log.append_chunk(1, 1, chunk) for chunk in ends]
    talk.message("w" * 7_000, sources=cited, usage=usage(900, 2_000))

    assert measured(talk.log).total_tokens == 2_900


def test_a_usage_that_is_too_small_for_the_head_alone_is_not_stood_on() -> None:
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user("hi")
    talk.route(system="You are careful. " * 4_000)
    talk.answer("done", usage=usage(100, 2))

    assert measured(talk.log).baseline == "estimated"


def test_what_joins_right_behind_a_digest_was_in_no_request() -> None:
    talk = begun()
    talk.user("z" * 3_500)
    talk.answer("done", usage=usage(900, 5))

    assert 905 + 900 < measured(talk.log).total_tokens < 905 + 1_100
