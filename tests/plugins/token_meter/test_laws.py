"""Laws of the measure: the same however it was come by; a log that breaks a rule changes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.token_meter import TOKEN_METER, Measurement, UnmeasurableLog
from dsh.kernel import Context
from dsh.plugins import token_meter
from dsh.plugins.token_meter.fold import MeterFold
from dsh.plugins.token_meter.surface import PricedSurface, tokens_of
from dsh.session.chunk_run import ChunkRun
from dsh.session.derive import project
from dsh.session.estimate import log_price
from dsh.session.log import Session
from tests.agent.kit import settled
from tests.aio import aio
from tests.corpus import needs_corpus
from tests.session.build import header
from tests.session.moves import Mover, played, plays
from tests.session.talk import Talk
from tests.session.test_corpus import SOUND, read


def measured(log: Session, stop: int | None = None) -> Measurement:
    fold = MeterFold()
    fold.take(log.entries(0, stop))
    return fold.measurement()


@given(plays, st.lists(st.integers(0, 400), max_size=6))
def test_replaying_any_prefix_is_the_state_that_was_come_by_step_by_step(
    moves: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    log = played(moves)
    fold = MeterFold()
    for stop in sorted({min(cut, log.length) for cut in cuts} | {log.length}):
        fold.take(log.entries(fold.length, stop))
        assert fold.measurement() == measured(log, stop)
        assert fold.length == stop


@given(plays)
def test_a_log_is_measured_while_it_grows_as_it_is_afterwards(moves: list[tuple[str, int, int]]) -> None:
    mover, fold, seen = Mover(), MeterFold(), []
    for move in moves:
        mover.play(*move)
        fold.catch_up(mover.talk.log)
        seen.append((fold.measurement(), mover.talk.log.length))

    for measurement, length in seen:
        assert measurement == measured(mover.talk.log, length)


@given(plays)
def test_the_nodes_are_those_of_the_surface_and_add_up(moves: list[tuple[str, int, int]]) -> None:
    log = played(moves)
    seen = measured(log)

    assert [node.seq for node in seen.nodes] == list(log.surface_nodes)
    assert sum(node.tokens for node in seen.nodes) == seen.surface_tokens
    for node in seen.nodes:
        message = project(log.event(node.seq))
        assert node.log_tokens == (0 if message is None else log_price(message))
        assert node.tokens == 0 if message is None else node.tokens > 0
    assert seen.total_tokens >= 0
    assert (seen.baseline == "none") == (not seen.nodes and log.request_header is None)


@needs_corpus
@pytest.mark.parametrize("log", SOUND, ids=lambda log: log.stem)
def test_recorded_logs_are_measured_the_same_in_every_form(log: Any) -> None:
    view = read(log).view
    whole, single = MeterFold(), MeterFold()
    whole.take(view.entries())
    single.take(view.events())

    assert whole.measurement() == single.measurement()


# -- snapshots -------------------------------------------------------------------------------------


def test_what_was_measured_stays_whatever_comes_later() -> None:
    talk = Talk()
    talk.turn()
    talk.step()
    for number in range(4):
        talk.user("x" * number * 10)
    fold = MeterFold()
    fold.catch_up(talk.log)
    first = fold.measurement()
    then = list(first.nodes)

    talk.user("more")
    fold.catch_up(talk.log)
    talk.compact(1, 3, "so far")
    fold.catch_up(talk.log)

    assert list(first.nodes) == then
    assert (first.nodes[-1], first.nodes[1:3]) == (then[-1], tuple(then[1:3]))
    assert [node.seq for node in fold.measurement().nodes] == list(talk.log.surface_nodes)
    with pytest.raises(IndexError):
        first.nodes[4]


def test_as_long_as_nothing_happens_it_is_the_very_same_measurement() -> None:
    talk = Talk()
    talk.turn()
    fold = MeterFold()
    fold.catch_up(talk.log)
    first = fold.measurement()
    fold.catch_up(talk.log)
    assert fold.measurement() is first


class Counted(Session):
    """A session that counts what is read of it."""

    read = 0

    def entries(self, start: int = 0, stop: int | None = None) -> list[Any]:
        found = super().entries(start, stop)
        self.read += len(found)
        return found


def test_a_measure_reads_what_is_new_and_no_more() -> None:
    """A thousand steps: what is read is read once, and handing out the nodes copies nothing."""
    log = Counted(header())
    talk, fold = Talk(log), MeterFold()
    talk.turn()
    fold.catch_up(log)
    lists = None
    for step in range(1, 1001):
        talk.step(step)
        talk.answer("", (f"c{step}", "{}"), usage={"inputTokens": 100 * step, "outputTokens": 9})
        talk.result(f"c{step}", "done")
        talk.end_step()
        fold.catch_up(log)
        fold.measurement()
        lists = lists or (fold.surface.seqs, fold.surface.sums, fold.surface.log)

    assert log.read <= log.length
    assert lists is not None
    assert all(
        a is b for a, b in zip(lists, (fold.surface.seqs, fold.surface.sums, fold.surface.log), strict=True)
    )


# -- logs that break a rule ------------------------------------------------------------------------


def stepping() -> Talk:
    talk = Talk()
    talk.turn()
    talk.step()
    talk.user("hello " * 100)
    talk.route()
    talk.answer("", ("c1", "{}"), usage={"inputTokens": 300, "outputTokens": 9})
    return talk


def odd_cite(talk: Talk) -> None:
    talk.message("x", sources=[talk.log.surface_nodes[0]])


def cite_of_another_step(talk: Talk) -> None:
    sources = talk.stream("x")
    talk.end_step()
    talk.step(2)
    talk.message("x", sources=sources)


def cite_of_a_step_that_is_not_open(talk: Talk) -> None:
    data = {"turn": 1, "step": 7, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}
    at = talk.log.length
    talk.log.load({"type": "assistant/chunk", "seq": at, "time": 1, "data": data})
    talk.message("x", sources=[at])


def cite_of_a_run_of_a_step_that_is_not_open(talk: Talk) -> None:
    at = talk.log.length
    talk.log.load(ChunkRun("text", at, times=(1, 1), where=(1, 7, 0), dt=[0], texts=["x", "y"]))
    talk.message("xy", sources=[at, at + 1])


def odd_prune(talk: Talk) -> None:
    result = talk.result("c1", "y" * 900)
    talk.prune(result, "y", shadowedSeqs=[result, result + 1])


def odd_compaction(talk: Talk) -> None:
    talk.compact(0, 1, "so far", shadowedSeqs=[talk.log.surface_nodes[0]])


def loaded(*events: tuple[str, dict[str, Any]]) -> Any:
    def add(talk: Talk) -> None:
        for kind, data in events:
            talk.log.load({"type": kind, "seq": talk.log.length, "time": 1, "data": data})

    return add


BROKEN = {
    "a cited event is no chunk": odd_cite,
    "a cited chunk is of another step": cite_of_another_step,
    "a cited chunk names a step that is not open": cite_of_a_step_that_is_not_open,
    "a cited run names a step that is not open": cite_of_a_run_of_a_step_that_is_not_open,
    "a prune prices more than it takes away": odd_prune,
    "a summary prices less than it takes away": odd_compaction,
    "a step begins in a step": loaded(("step/start", {"turn": 1, "step": 2})),
    "a step ends that is not open": loaded(("step/end", {"turn": 1, "step": 7})),
    "a turn ends in a step": loaded(("turn/end", {"turn": 1, "reason": {"kind": "completed"}})),
    "a turn begins in a step": loaded(("turn/start", {"turn": 2})),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=list(BROKEN))
def test_a_log_that_breaks_a_rule_cannot_be_measured_and_changes_nothing(damage: Any) -> None:
    talk = stepping()
    fold = MeterFold()
    fold.catch_up(talk.log)
    damage(talk)
    with pytest.raises(UnmeasurableLog) as first:
        fold.catch_up(talk.log)
    state, length = fold.measurement(), fold.length

    with pytest.raises(UnmeasurableLog) as second:
        fold.catch_up(talk.log)

    assert str(first.value) == str(second.value)
    assert first.value.seq == second.value.seq == length == fold.length
    assert first.value.hint
    assert fold.measurement() is state
    assert state == measured(talk.log, length)


def test_a_replacement_of_what_is_not_there_is_such_a_log() -> None:
    """No session holds it; the fold does not rely on that."""
    talk = stepping()
    talk.compact(0, 0, "so far")
    fold, entries = MeterFold(), talk.log.entries()
    fold.take(entry for entry in entries if not (hasattr(entry, "type") and entry.type == "user/message"))
    at = next(entry for entry in entries if getattr(entry, "surface", None) not in (None, "append"))

    for _ in range(2):
        with pytest.raises(UnmeasurableLog) as refused:
            fold.take([at])
        assert "which is not there" in str(refused.value)


def test_a_recording_without_turns_is_priced_and_anchors_nothing() -> None:
    log = Session(header())
    message: dict[str, Any] = {"role": "assistant", "id": "a", "content": [{"type": "text", "text": "hi"}]}
    message["source"] = {"kind": "model", "provider": "acme", "model": "m"}
    data = {"turn": 1, "step": 1, "message": message, "usage": {"inputTokens": 50, "outputTokens": 2}}
    event = {"type": "assistant/message", "seq": 0, "time": 1, "data": data, "sourceEventSeqs": []}
    log.load({**event, "surfaceOp": "append"})

    assert (measured(log).baseline, len(measured(log).nodes)) == ("estimated", 1)


# -- the service -----------------------------------------------------------------------------------


@aio
async def test_the_service_measures_each_session_by_itself() -> None:
    ctx = Context()
    await settled(ctx.plugin(token_meter, {}))
    meter, one, two = ctx.use(TOKEN_METER), stepping(), stepping()
    two.result("c1", "y" * 9000)

    first = meter.measure(one.log)
    assert first is meter.measure(one.log)
    assert first == measured(one.log)
    assert meter.measure(two.log) == measured(two.log)
    odd_cite(two)
    with pytest.raises(UnmeasurableLog):
        meter.measure(two.log)
    assert meter.measure(one.log) is first
    await ctx.dispose()


def test_a_range_that_stands_the_other_way_round_is_not_there() -> None:
    surface = PricedSurface()
    for seq in (4, 9, 6):
        surface.append(seq, 1, 1)
    assert surface.span(9, 6) == (1, 2)
    assert surface.span(6, 9) is None
    assert surface.span(4, 5) is None


def test_a_part_of_a_token_is_one() -> None:
    assert [tokens_of(weight, 3.5) for weight in (0, 1, 7, 8)] == [0, 1, 2, 3]
