"""A log that holds stored lines as they are is the same log as one of events."""

from typing import Any

import pytest

from dsh.session.entry_list import LINE_LIMIT, EntryList
from dsh.session.error import JsonError
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.value import MAX_DEPTH, encode
from tests.session.build import answer, call, header, in_step, prompt, say, stored


def talk() -> Session:
    log = in_step()
    say(log, "hi", "m-1")
    say(log, "x" * LINE_LIMIT, "m-2")
    answer(log, "c1", call(log, "c1"))
    log.append("plan/mode", {"active": True})
    log.append("acme/note", {"n": 1}, ignorable=True)
    log.append(
        "user/message",
        prompt("again", "m-3"),
        surface={"op": "replace", "start": 2, "end": 3},
        sources=(2, 3),
    )
    log.append("session/title", {"title": "\ud83d", "messageSeqs": [], "source": {"kind": "user"}})
    return log


def from_lines(log: Session, head: SessionHeader | None = None) -> Session:
    """The same log, read back line by line."""
    made = Session(head or log.header)
    for event in log.events():
        line = encode(event.to_json())
        made.load(event.to_json(), line=line)
    return made


def test_every_way_of_reading_gives_the_same_events() -> None:
    log = talk()
    read = from_lines(log)

    assert list(read.events()) == list(log.events())
    assert [encode(e.to_json()) for e in read.events()] == [encode(e.to_json()) for e in log.events()]
    for seq in range(log.length):
        assert read.event(seq) == log.event(seq)
        assert read.entries(seq) == log.entries(seq)
        assert list(read.events(seq, seq + 2)) == list(log.events(seq, seq + 2))
        assert list(read.select("plan/mode", "tool/call", start=seq)) == list(
            log.select("plan/mode", "tool/call", start=seq)
        )
    for kind in ("plan/mode", "user/message", "acme/note", "todo/write"):
        assert read.last(kind) == log.last(kind)
    assert read.derive_messages() == log.derive_messages()
    assert read.surface_nodes == log.surface_nodes
    assert (read.open_turn, read.open_step, read.length) == (1, 1, log.length)


def test_a_copy_and_the_original_grow_apart() -> None:
    read = from_lines(talk())
    copy = read.copy()

    copy.append("plan/mode", {"active": False})

    assert copy.length == read.length + 1
    last, before = copy.last("plan/mode"), read.last("plan/mode")
    assert last is not None and before is not None
    assert (last.data["active"], before.data["active"]) == (False, True)


def test_a_line_without_the_shape_of_an_event_is_refused_all_the_same() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    for data in (deep, [deep]):
        entry = stored("feedback/record", 0, data)
        log = Session(header())
        line = encode(entry)
        assert len(line) < LINE_LIMIT
        if data is deep:
            log.load(entry, line=line)
            assert log.event(0).data == log.copy().event(0).data
        else:
            with pytest.raises(JsonError, match="levels"):
                log.load(entry, line=line)
            assert log.length == 0


def test_an_empty_list_has_no_events() -> None:
    entries = EntryList()

    assert (entries.length, entries.last_kind, entries.between(0, 0)) == (0, None, [])
    assert list(entries.events(0, 0)) == list(entries.select(frozenset({"turn/start"}), 0)) == []
    with pytest.raises(IndexError):
        entries.event(0)
