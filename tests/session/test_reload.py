"""What an append accepts is read again as it was, whatever a plugin makes of it; the rest changes nothing."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dsh.session.chunk_row import is_row, pack, row_to_run
from dsh.session.error import InvalidEvent, SessionError
from dsh.session.header import header_from_line
from dsh.session.log import Session
from dsh.session.restore import Restored, restore
from dsh.session.value import decode_strict, encode
from tests.session.build import Ticks, header, in_step, session
from tests.session.sound import body
from tests.session.test_total import junk, paths

ONE_OF_EACH: list[Any] = [
    decode_strict(line)
    for line in Path(__file__).with_name("one_of_each.jsonl").read_bytes().splitlines()[1:]
]
EVENTS = [*body(), *(row for row in ONE_OF_EACH if not is_row(row))]


def reloaded(log: Session) -> Restored:
    lines = [encode(log.header.to_line()), *map(encode, pack(log.entries()))]
    rows = [decode_strict(line) for line in lines[1:]]
    return restore(header_from_line(lines[0]), [row_to_run(row) if is_row(row) else row for row in rows])


def same(log: Session) -> bool:
    view = reloaded(log).view
    return [encode(e.to_json()) for e in view.events(0, log.length)] == [
        encode(e.to_json()) for e in log.events()
    ]


def spoil(draw: st.DrawFn, value: Any) -> Any:
    """A copy with a few places changed, taken out or added."""
    box = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(0, 2))):
        *path, last = draw(st.sampled_from(paths(box)[1:]))
        place: Any = box
        for key in path:
            place = place[key]
        how = draw(st.sampled_from(["set", "drop", "add"]))
        if how == "add" and isinstance(place[last], dict):
            key = draw(
                st.sampled_from(["trigger", "provenance", "message", "callId", "isError", "\ud800", "kind"])
            )
            place[last][key] = draw(junk)
        elif how == "drop" and isinstance(place, dict):
            place.pop(last)
        else:
            place[last] = draw(junk)
    return box[0]


@settings(max_examples=150)
@given(st.data())
def test_what_is_accepted_comes_back_as_it_was(data: st.DataObject) -> None:
    log = Session(header(), clock=Ticks())
    sound = body()
    for row in sound[: data.draw(st.integers(0, len(sound)))]:
        log.append(row["type"], row["data"], surface=row.get("surfaceOp"), sources=row.get("sourceEventSeqs"))
    row = data.draw(st.sampled_from(EVENTS))
    length, nodes = log.length, log.surface_nodes
    kind = data.draw(
        st.sampled_from([row["type"]] * 5 + ["acme/note", "steering/message", "text-chunks", ""])
    )
    payload = data.draw(st.composite(spoil)(row["data"]))
    surface = data.draw(st.sampled_from([row.get("surfaceOp"), None, "append"]))
    sources = data.draw(st.sampled_from([row.get("sourceEventSeqs"), None, [length - 1]]))
    ignorable = data.draw(st.booleans())
    try:
        log.append(kind, payload, surface=surface, sources=sources, ignorable=ignorable)
    except SessionError:
        assert (log.length, log.surface_nodes) == (length, nodes)
        return
    event("accepted")
    assert same(log)
    assert reloaded(log).view.irregularities == []


@pytest.mark.parametrize(
    "kind", ["text-chunks", "reasoning-chunks", "tool-call-chunks", 5, None, type("S", (str,), {})("x")]
)
def test_a_type_that_no_event_can_have_is_refused(kind: Any) -> None:
    log = session()
    with pytest.raises(InvalidEvent, match="type"):
        log.append(kind, {}, ignorable=True)
    assert log.length == 0


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("turn/end", {"turn": 1, "reason": {"kind": "disposed"}}),
        ("turn/start", {"turn": 2, "trigger": {"kind": "user"}}),
        ("turn/start", {"turn": 2, "trigger": 5}),
        ("steering/message", {}),
        ("steering/message", {"turn": 1, "message": {}}),
    ],
)
def test_an_old_shape_is_read_and_never_written(kind: str, data: Any) -> None:
    log = in_step()
    log.append("step/end", {"turn": 1, "step": 1})
    if kind == "turn/start":
        log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    length = log.length
    with pytest.raises(InvalidEvent, match=kind):
        log.append(kind, data, ignorable=True)
    assert (log.length, same(log)) == (length, True)
