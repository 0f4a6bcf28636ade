"""The comparison of a run with a recording, event by event."""

from collections.abc import Callable
from typing import Any

from dsh.session.chunk import TextDelta
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.replay.comparable import first_difference
from dsh.session.replay.cursor import Counts, Cursor
from dsh.session.replay.recording import Recording
from tests.session.build import in_step, prompt, reply, session


def as_is(text: str) -> str:
    return text


def cursor_of(log: Session, mask: Callable[[str], str] = as_is) -> Cursor:
    recording = Recording(log.header, log.walk())
    return Cursor(recording, recording.lives[0], Counts(), mask)


def told(cursor: Cursor, log: Session) -> Cursor:
    """Tell the cursor of a log as a run of it would."""
    for event in log.events():
        if event.type == "assistant/chunk" and event.data["chunk"]["type"].endswith("-delta"):
            cursor.see_delta(event.seq)
        else:
            cursor.see(event)
    return cursor


def talk(answer: str = "hi!", *, note: bool = False, message_id: str = "a-1") -> Session:
    log = in_step()
    if note:
        log.append("acme/note", {"n": 1}, ignorable=True)
    log.append("user/message", prompt(), surface="append")
    first = log.append_chunk(1, 1, TextDelta(0, "hi"))
    last = log.append_chunk(1, 1, TextDelta(0, "!"))
    block = {"type": "text", "text": answer}
    data: dict[str, Any] = {"turn": 1, "step": 1, "message": reply(block, id=message_id)}
    log.append("assistant/message", data, surface="append", sources=[first, last])
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return log


def test_a_log_is_the_same_as_itself() -> None:
    cursor = told(cursor_of(talk()), talk())

    assert cursor.divergence is None
    assert cursor.is_at_end


def test_ids_and_events_that_may_be_ignored_and_the_seqs_that_they_shift_do_not_count() -> None:
    assert told(cursor_of(talk()), talk(note=True, message_id="other")).divergence is None
    assert told(cursor_of(talk(note=True)), talk(message_id="other")).divergence is None


def test_the_first_difference_has_its_place_and_both_sides() -> None:
    found = told(cursor_of(talk()), talk("ho!")).divergence

    assert found is not None
    assert (found.seq, found.turn, found.step, found.type) == (5, 1, 1, "assistant/message")
    assert found.path == "data.message.content[0].text"
    assert (found.recorded, found.replayed) == ("hi!", "ho!")


def test_another_type_is_a_difference_and_nothing_after_it_counts() -> None:
    other = session()
    other.append("turn/start", {"turn": 1})
    other.append("turn/end", {"turn": 1, "reason": {"kind": "blocked"}})

    cursor = told(cursor_of(talk()), other)

    found = cursor.divergence
    assert found is not None
    assert found.problem == "the recording has step/start, the replay turn/end"
    assert (found.seq, found.turn) == (1, 1)


def test_a_run_that_goes_on_after_the_end_of_the_recording_differs_there() -> None:
    longer = talk()
    longer.append("turn/start", {"turn": 2})

    found = told(cursor_of(talk()), longer).divergence

    assert found is not None
    assert found.problem == "the recording has ended, the replay turn/start"
    assert found.seq is None


def test_a_piece_of_a_reply_where_none_is_expected_is_a_difference() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "hi"))

    found = told(cursor_of(in_step()), log).divergence

    assert found is not None
    assert "streams on where the recording has ended" in found.problem


def test_what_is_compared_is_counted() -> None:
    recording = Recording(talk().header, talk().walk())
    counts = Counts()
    told(Cursor(recording, recording.lives[0], counts, as_is), talk())

    assert (counts.events, counts.chunks, counts.turns, counts.steps) == (8, 2, 1, 1)


def test_masked_texts_are_the_same() -> None:
    def mask(text: str) -> str:
        return text.replace("ho", "hi")

    assert told(cursor_of(talk(), mask), talk("ho!")).divergence is None


def test_settings_of_the_place_are_passed_over_where_the_recording_has_none() -> None:
    cursor = cursor_of(talk())
    cursor.see(SessionEvent("sandbox/mode", 0, 0, {"mode": "read-only"}))

    assert cursor.divergence is None
    assert cursor.position == 0


def test_a_place_of_the_run_is_that_of_the_recording() -> None:
    cursor = told(cursor_of(talk()), talk(note=True))

    assert [cursor.place(seq) for seq in (0, 1, 3, 4)] == [0, 1, 2, 3]
    assert cursor.place(2) == -1


def test_only_the_first_reason_to_stop_is_kept() -> None:
    cursor = cursor_of(talk())
    cursor.stopped("first")
    cursor.stopped("second")

    assert cursor.divergence is not None
    assert cursor.divergence.problem == "first"


def test_differences_are_found_in_every_shape() -> None:
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2.0}]}) is None
    cases: list[tuple[Any, Any, str]] = [
        ({"a": 1}, {}, "a"),
        ({}, {"a": 1}, "a"),
        ({"a": [1]}, {"a": [1, 2]}, "a[1]"),
        ({"a": True}, {"a": 1}, "a"),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, "a[0].b"),
        ({"a": {}}, {"a": []}, "a"),
    ]
    for recorded, replayed, path in cases:
        found = first_difference(recorded, replayed)
        assert found is not None
        assert found.path == path
