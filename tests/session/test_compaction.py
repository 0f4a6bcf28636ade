"""What may stand in the bracket of a compaction, on append and on load (`spec/session-log.md` §10)."""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.session.error import InvalidEvent
from dsh.session.log import Session
from dsh.session.message import text_block, user_message
from dsh.session.restore import restore
from tests.ids import readable
from tests.session.build import after_turn, as_stored, header, in_step, prompt, session

DONE: dict[str, Any] = {"turn": 1, "reason": {"kind": "completed"}}
SHADOWED: dict[str, Any] = {
    "shadowedRange": {"start": 0, "end": 0},
    "shadowedSeqs": [0],
    "shadowedTokenCount": 3,
}
Put = tuple[str, dict[str, Any]]


def start(turn: int | None, compaction: str = "k", **more: str) -> Put:
    return "compaction/start", {"compactionId": compaction, "turn": turn, **more}


def summary(compaction: str = "k", **more: str) -> Put:
    route = {"provider": "acme", "model": "acme-1"}
    text = [text_block("short")]
    return "compaction/summary", {"compactionId": compaction, "summary": text, **SHADOWED, **route, **more}


def end(turn: int | None, compaction: str = "k", **more: str) -> Put:
    return "compaction/end", {"compactionId": compaction, "turn": turn, **more}


def checkpoint(compaction: str = "k", **more: str) -> Put:
    source = {"kind": "plugin", "plugin": "compact", "compactionId": compaction, **more}
    return "user/message", dict(user_message("short", source, f"m-{compaction}"))


def put(log: Session, *events: Put) -> None:
    for kind, data in events:
        log.append(kind, data, surface="append" if kind == "user/message" else None)


def between_turns() -> Session:
    log = session()
    log.append("user/message", prompt(), surface="append")
    return log


@pytest.mark.parametrize(("build", "turn"), [(between_turns, None), (after_turn, None), (in_step, 1)])
def test_a_bracket_of_its_place_is_accepted(build: Callable[[], Session], turn: int | None) -> None:
    log = build()

    put(log, start(turn), summary(), checkpoint(), end(turn))
    put(log, start(turn, "j", sourceCommandId="cmd-1"), end(turn, "j", sourceCommandId="cmd-1"))

    assert restore(header(), as_stored(log)).view.irregularities == []


@pytest.mark.parametrize(
    ("build", "before", "bad"),
    [
        (in_step, [], start(None)),
        (in_step, [], start(2)),
        (between_turns, [], start(1)),
        (after_turn, [], start(1)),
        (between_turns, [], summary()),
        (between_turns, [], end(None)),
        (between_turns, [start(None)], start(None, "j")),
        (between_turns, [start(None)], summary("j")),
        (between_turns, [start(None)], summary(sourceCommandId="cmd-1")),
        (between_turns, [start(None)], checkpoint("j")),
        (between_turns, [start(None)], checkpoint(sourceCommandId="cmd-1")),
        (between_turns, [start(None, sourceCommandId="cmd-1")], summary()),
        (between_turns, [start(None)], end(None, "j")),
        (between_turns, [start(None)], end(1)),
        (between_turns, [start(None), end(None)], end(None)),
        (in_step, [start(1)], end(None)),
        (in_step, [start(1), ("step/end", {"turn": 1, "step": 1}), ("turn/end", DONE)], end(1)),
        (between_turns, [start(None), ("turn/start", {"turn": 1})], end(None)),
    ],
    ids=readable,
)
def test_what_does_not_fit_is_refused_on_append_and_noted_on_load(
    build: Callable[[], Session], before: list[Put], bad: Put
) -> None:
    log = build()
    put(log, *before)
    length = log.length

    with pytest.raises(InvalidEvent, match=bad[0]):
        put(log, bad)

    assert log.length == length
    kind, data = bad
    event = {"type": kind, "seq": length, "time": 1, "data": data}
    if kind == "user/message":
        event["surfaceOp"] = "append"
    assert [seq for seq, _ in restore(header(), [*as_stored(log), event]).view.irregularities] == [length]


def test_a_bracket_does_not_keep_its_turn_from_ending() -> None:
    log = in_step()

    put(log, start(1), ("step/end", {"turn": 1, "step": 1}), ("turn/end", DONE), start(None, "j"))

    assert restore(header(), as_stored(log)).view.irregularities == []


def test_a_bracket_that_a_dead_process_left_open_is_over() -> None:
    log = between_turns()
    put(log, start(None), summary())

    resumed = restore(header(), as_stored(log)).open()
    with pytest.raises(InvalidEvent, match="none is open"):
        put(resumed, end(None))
    put(resumed, start(None), end(None))

    assert restore(header(), as_stored(resumed)).view.irregularities == []


def test_a_checkpoint_without_any_bracket_and_other_messages_of_the_plugin_may_stand_anywhere() -> None:
    log = session()

    put(log, checkpoint(), start(None))
    note = user_message("note", {"kind": "plugin", "plugin": "compact"})
    log.append("user/message", note, surface="append")

    assert log.length == 3
