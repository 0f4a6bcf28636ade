"""Laws of projections: a fold is the fold of its parts, wherever they are cut; a state survives storage."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.chunk_run import Entry, expand
from dsh.session.event import SessionEvent
from dsh.session.projection.context_size import CONTEXT_BREAKDOWN, CONTEXT_PRESSURE
from dsh.session.projection.error import InvalidState
from dsh.session.projection.stats import STATS
from dsh.session.projection.title import TITLE
from dsh.session.projection.todos import TODOS
from dsh.session.projection.token_usage import TOKEN_USAGE
from dsh.session.projection.unit import Unit, fold, span
from dsh.session.value import freeze
from dsh.session.vocabulary import KNOWN
from tests.corpus import needs_corpus
from tests.session.projection.build import Timed, pieces
from tests.session.test_corpus import SOUND, read
from tests.session.test_laws import played, plays

UNITS: list[Unit[Any]] = [STATS, TITLE, TODOS, TOKEN_USAGE, CONTEXT_PRESSURE, CONTEXT_BREAKDOWN]
json_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["turn", "message", "source", "usage", "chunk", "callId", "title", "todos", "content"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(plays, st.integers(0, 200), st.lists(st.integers(0, 5), max_size=10))
def test_a_fold_is_the_fold_of_its_parts(moves: Any, cut: int, cuts: list[int]) -> None:
    log = played(moves)
    cut = min(cut, log.length)
    for unit in UNITS:
        whole = fold(unit, log.entries())

        head = [e for e in log.entries() if span([e])[1] <= cut]  # type: ignore[index]
        done = span(head)[1] if head else 0  # type: ignore[index]
        parts = fold(unit, log.entries(done), fold(unit, head))
        resumed = fold(unit, log.entries(), fold(unit, list(log.events(0, cut))), start=cut)

        assert whole == parts == resumed
        assert whole == fold(unit, pieces(log.entries(), cuts)) == fold(unit, expand(log.entries()))


@given(st.lists(st.tuples(st.sampled_from(sorted(KNOWN)), json_data), max_size=12))
def test_any_payload_is_folded_without_a_failure_into_a_state_that_can_be_stored(
    events: list[tuple[str, Any]],
) -> None:
    entries = [
        SessionEvent(kind, seq, seq, freeze(data, "data", stored=True))
        for seq, (kind, data) in enumerate(events)
    ]

    for unit in UNITS:
        state = fold(unit, entries)
        assert unit.load(unit.dump(state)) == state
        unit.show(state)


@needs_corpus
@pytest.mark.parametrize("log", SOUND, ids=lambda log: log.stem)
def test_recorded_logs_fold_the_same_in_every_form(log: Any) -> None:
    view = read(log).view
    for unit in UNITS:
        whole = fold(unit, view.entries())
        assert whole == fold(unit, view.events())
        middle = view.length // 2
        assert whole == fold(unit, view.entries(middle), fold(unit, view.events(0, middle)))
        assert unit.load(unit.dump(whole)) == whole


def test_what_is_not_a_unit_s_business_leaves_the_very_same_object() -> None:
    timed = Timed()
    timed.turn(1)
    timed.step(1)
    timed.put("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})
    state = fold(TITLE, timed.log.entries())
    stats = fold(STATS, timed.log.entries())
    before = timed.log.length
    timed.put("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})
    timed.put("plan/mode", {"active": True})

    new = timed.log.entries(before)
    assert fold(TITLE, new, state) is state
    assert fold(STATS, new, stats) is stats
    assert fold(TODOS, new, ()) == ()


def test_a_run_that_a_state_holds_in_part_is_continued_behind_that_part() -> None:
    seen: list[tuple[int, int]] = []

    def note(count: int, entry: Entry) -> int:
        first, stop = span([entry])  # type: ignore[misc]
        seen.append((first, stop))
        return count + stop - first

    unit: Unit[int] = Unit(
        key="count", version=0, state_type=int, init=lambda: 0, apply=note, types=frozenset(), reads_runs=True
    )
    timed = Timed()
    timed.turn(1)
    timed.step(1)
    for word in "abcde":
        timed.text(word)

    assert fold(unit, timed.log.entries(), 2, start=4) == 5
    assert seen == [(4, 7)]


def count_unit(version: int = 0, **changes: Any) -> Unit[int]:
    fields: dict[str, Any] = {
        "key": "count", "version": version, "state_type": int, "init": int, "apply": max,
        "types": frozenset({"turn/start"}),
    }  # fmt: skip
    return Unit(**{**fields, **changes})


def test_the_same_fold_is_the_same_functions_over_the_same_events_whatever_the_view() -> None:
    unit = count_unit()

    assert unit.same_fold(count_unit(view=str))
    assert unit.same_fold(msgspec.structs.replace(unit, view=repr))
    for other in (count_unit(1), count_unit(apply=min), count_unit(init=float), count_unit(key="x")):
        assert not unit.same_fold(other)
    assert not unit.same_fold(count_unit(types=frozenset({"turn/end"})))


@pytest.mark.parametrize("state", [object(), float("nan"), {1: 2}, -0.0, 2**60])
def test_a_state_or_view_that_is_no_json_is_refused_by_name(state: Any) -> None:
    with pytest.raises(InvalidState, match="projection count"):
        count_unit().dump(state)
    with pytest.raises(InvalidState, match="projection count"):
        count_unit(view=lambda _: state).show(1)


def test_json_of_another_shape_is_no_state() -> None:
    for unit, value in ((STATS, {"turns": "x"}), (STATS, []), (TITLE, 7), (TODOS, [{"content": "x"}])):
        with pytest.raises(InvalidState, match=unit.key):
            unit.load(value)


@pytest.mark.parametrize(("key", "version"), [("", 0), ("x", -1)])
def test_a_unit_has_a_name_and_a_version(key: str, version: int) -> None:
    with pytest.raises(ValueError, match="key and a version"):
        count_unit(version, key=key)
