"""Seeds, end-seed, and the order of errors of a stored log (`spec/session-log.md` §3, §12)."""

from typing import Any

import pytest

from dsh.session.chunk_row import row_to_run
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import CorruptLog, InvalidEvent, InvalidHeader, JsonError, SessionError, UnsupportedLog
from dsh.session.header import header_from_json
from dsh.session.log import Session
from dsh.session.restore import restore
from tests.ids import readable
from tests.session.build import as_stored, header, in_step, prompt, say, session, stored

NOTE = stored("feedback/record", 0, {"text": "x"})


@pytest.mark.parametrize(
    ("seed", "types", "live"),
    [
        ([], ["session/end-seed"], 0),
        ([NOTE], ["feedback/record", "session/end-seed"], 1),
        ([stored("session/end-seed", 0, {})], ["session/end-seed"], 1),
    ],
    ids=readable,
)
def test_a_seed_is_marked_at_its_end_once(seed: list[dict[str, Any]], types: list[str], live: int) -> None:
    log = Session.seeded(header(), seed)

    assert [event.type for event in log.events()] == types
    assert log.first_live_seq == live


def test_a_fresh_session_has_no_mark() -> None:
    assert (session().length, session().first_live_seq) == (0, 0)


def test_opening_twice_does_not_grow_the_log() -> None:
    first = restore(header(), [NOTE])
    once = first.open()
    twice = restore(header(), as_stored(once)).open()

    assert [event.type for event in once.events()] == ["feedback/record", "session/end-seed"]
    assert once.event(1).data == {}
    assert twice.length == 2
    assert first.view.length == 1
    assert (once.first_live_seq, twice.first_live_seq) == (1, 2)


def test_a_seed_may_be_the_entries_of_another_session() -> None:
    parent = in_step()
    say(parent, "hi", "m-1")

    child = Session.seeded(header(id="child", parent_session="demo.1", seed_length=3), parent.entries())

    assert list(child.events(0, 3)) == list(parent.events())
    assert child.event(2) is parent.event(2)
    assert child.derive_messages() == parent.derive_messages()


def test_an_invalid_seed_event_names_its_index() -> None:
    with pytest.raises(InvalidEvent, match="index 1"):
        Session.seeded(header(), [NOTE, NOTE])
    with pytest.raises(JsonError, match="index 1"):
        Session.seeded(header(), [NOTE, {**NOTE, "seq": 1, "data": {"text": {1, 2}}}])


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {**NOTE, "extra": 1},
        {**NOTE, "ignorable": False},
        {**NOTE, "ignorable": None},
        {**NOTE, "seq": -1},
        {**NOTE, "seq": True},
        {**NOTE, "seq": 1.5},
        {**NOTE, "time": None},
        {**NOTE, "time": 2**53},
        {**NOTE, "type": None},
        {"type": "feedback/record", "seq": 0, "time": 0},
    ],
    ids=readable,
)
def test_a_malformed_envelope_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidEvent):
        session().load(bad)
    if isinstance(bad, dict):
        with pytest.raises(CorruptLog):
            restore(header(), [bad])


def test_data_may_be_null_where_the_type_allows_it() -> None:
    assert restore(header(), [stored("feedback/record", 0, None)]).view.event(0).data is None


def test_an_unknown_type_is_unsupported_and_not_corrupt_even_with_a_bad_envelope() -> None:
    for bad in (
        stored("acme/note", 1, {}),
        {**stored("acme/note", 1, {}), "extra": 1},
        {"type": "acme/note"},
    ):
        with pytest.raises(UnsupportedLog, match="acme/note") as caught:
            restore(header(), [NOTE, bad])
        assert caught.value.index == 1


def test_an_ignorable_unknown_type_stays_in_its_place_and_cannot_join_the_surface() -> None:
    note = stored("acme/note", 1, {}, ignorable=True)
    view = restore(header(), [NOTE, note, stored("feedback/record", 2, {})]).view

    assert [event.type for event in view.events()] == ["feedback/record", "acme/note", "feedback/record"]
    with pytest.raises(CorruptLog, match="not a surface type"):
        restore(header(), [NOTE, {**note, "surfaceOp": "append"}])


def test_which_error_wins() -> None:
    """Retired words, then old shapes and messages event by event, then unknown types, then the rest."""
    bad_envelope = {**NOTE, "extra": 1}
    bad_message = stored("user/message", 1, {"id": ""}, surfaceOp="append")
    unknown = stored("acme/note", 2, {})
    retired = stored("mode/set", 3, {})

    def error(*entries: dict[str, Any], head: Any = None) -> str:
        with pytest.raises(SessionError) as caught:
            restore(head or header(), list(entries))
        return str(caught.value)

    assert "retired" in error(bad_envelope, bad_message, unknown, retired)
    assert "user/message" in error(bad_envelope, unknown, bad_message)
    assert "acme/note" in error(bad_envelope, unknown)
    assert "version" in error(bad_envelope, head={"id": "a"})
    assert "extra" in error(bad_envelope)


def test_a_header_of_plain_json_is_checked() -> None:
    assert restore({"version": 0, "id": "a", "createdAt": 1}, []).view.id == "a"
    with pytest.raises(InvalidHeader):
        restore({"version": 0, "id": "a"}, [])


def test_a_run_that_does_not_continue_the_log_is_refused() -> None:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": ["a"]}
    run = row_to_run({"type": "text-chunks", "seq0": 3, "time0": 0, "data": data})

    with pytest.raises(CorruptLog, match="not contiguous"):
        restore(header(), [run])


def test_runs_stay_packed_when_a_log_is_opened() -> None:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [1] * 9_999, "texts": ["a"] * 10_000}
    run = row_to_run({"type": "text-chunks", "seq0": 2, "time0": 0, "data": data})

    restored = restore(header(), [*as_stored(in_step()), run])

    assert [entry for entry in restored.entries if isinstance(entry, ChunkRun)] == [run]
    assert restored.open().length == 10_000 + 5
    assert [event.seq for event in restored.closers] == [10_002, 10_003]


def test_a_deep_line_is_a_named_error() -> None:
    deep: Any = []
    for _ in range(600):
        deep = [deep]

    with pytest.raises(CorruptLog, match="levels"):
        restore(header(), [stored("feedback/record", 0, deep)])


def test_surrogates_in_an_old_log_load_as_they_are() -> None:
    entry = stored("user/message", 0, prompt("cut \ud83d"), surfaceOp="append")

    [message] = restore(header(), [entry]).view.derive_messages()

    assert message["content"][0]["text"] == "cut \ud83d"  # type: ignore[typeddict-item]


def test_the_header_of_a_stored_log_keeps_what_it_says() -> None:
    assert header_from_json(header(seed_length=2).to_json()).seed_length == 2
