"""How the outcome of a replay is told."""

import json
from typing import Any

from dsh.capabilities.replay import ReplayReport
from dsh.cli.replay_report import as_json, as_text
from dsh.session.replay.cursor import Counts, Divergence

COUNTS = Counts(events=30, chunks=10, turns=1, steps=2, requests=2, tool_results=1)


def report(divergence: Divergence | None = None, *notes: str) -> ReplayReport:
    return ReplayReport(
        session="session-1", tools="recorded", divergence=divergence, compared=COUNTS, notes=notes
    )


def differing(recorded: Any, replayed: Any) -> Divergence:
    return Divergence(
        problem="x differs",
        seq=7,
        turn=1,
        step=2,
        type="x",
        path="data.a",
        recorded=recorded,
        replayed=replayed,
    )


def test_success_is_one_line_that_says_how_much_was_compared() -> None:
    assert as_text(report()) == (
        "session-1 replays as recorded: 30 events, 1 turn, 2 steps, 2 model replies, 1 tool result\n"
    )


def test_a_difference_is_told_with_its_place_and_both_sides() -> None:
    assert as_text(report(differing("one", "two"), "a note")).splitlines() == [
        "session-1 diverges at seq 7, turn 1, step 2: x differs",
        "  in data.a",
        "  recorded: 'one'",
        "  replayed: 'two'",
        "  equal before: 30 events, 1 turn, 2 steps, 2 model replies, 1 tool result",
        "note: a note",
    ]


def test_long_texts_are_shown_from_a_little_before_their_difference() -> None:
    same = "a" * 1000
    lines = as_text(report(differing(same + "b", same + "c" * 1000))).splitlines()

    assert lines[2] == f"  recorded: … '{'a' * 40}b'"
    assert lines[3].endswith(" …")
    assert len(lines[3]) < 400


def test_a_side_without_a_value_and_a_value_that_is_no_text() -> None:
    lines = as_text(report(differing(None, {"a": [1]}))).splitlines()

    assert lines[2:4] == ["  recorded: nothing", '  replayed: {"a":[1]}']


def test_an_event_that_one_side_does_not_have_is_shown_whole() -> None:
    other = Divergence(problem="the recording has a, the replay b", seq=7, replayed={"turn": 1})
    lines = as_text(report(other)).splitlines()

    assert lines[1:3] == ['  replayed: {"turn":1}', f"  equal before: {lines[2].partition(': ')[2]}"]


def test_lines_are_single_and_keys_are_masked() -> None:
    text = as_text(report(differing("a\nb\x1b[31m", "sk-abcdefghijklmnopqrstuvwxyz0123456789")))

    assert len(text.splitlines()) == 5
    assert "\x1b" not in text
    assert "abcdefghijklmnopqrstuvwxyz" not in text


def test_a_run_that_goes_on_has_no_seq() -> None:
    ended = Divergence(problem="the recording has ended, the replay turn/start")

    assert as_text(report(ended)).startswith("session-1 diverges at its end: the recording has ended")


def test_json_is_one_object_on_one_line() -> None:
    text = as_json(report(differing("one", "two")))
    found = json.loads(text)

    assert text.count("\n") == 1
    assert list(found) == ["session", "tools", "divergence", "compared", "notes"]
    assert found["compared"]["toolResults"] == 1
    assert (found["divergence"]["seq"], found["divergence"]["recorded"]) == (7, "one")
    assert json.loads(as_json(report()))["divergence"] is None
