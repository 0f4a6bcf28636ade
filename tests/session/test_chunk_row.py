"""Packing runs of deltas into rows and back (`spec/session-log.md` §11)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.session.chunk_row import is_row, pack, row_to_run, run_of_event
from dsh.session.chunk_run import ChunkRun, entry_start, entry_stop, expand
from dsh.session.envelope import event_from_json
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import MAX_SAFE_INT, decode_strict, encode
from tests.ids import readable
from tests.session.build import decode_lines


def delta(seq: int, time: int = 0, text: str = "x", **changes: Any) -> SessionEvent:
    """A text delta of turn 1, step 1, block 0, or what the changes make of it."""
    data: dict[str, Any] = {
        "turn": changes.pop("turn", 1),
        "step": changes.pop("step", 1),
        "chunk": changes.pop("chunk", {"type": "text-delta", "index": changes.pop("index", 0), "text": text}),
    }
    return event_from_json({"type": "assistant/chunk", "seq": seq, "time": time, "data": data, **changes})


def tool(seq: int, text: str = "{", name: str | None = None, call_id: str = "c1") -> SessionEvent:
    chunk: dict[str, Any] = {"type": "tool-call-delta", "index": 0, "id": call_id}
    if name is not None:
        chunk["name"] = name
    return delta(seq, chunk={**chunk, "argumentsDelta": text})


def types(events: list[Any]) -> list[str]:
    return [row["type"] for row in pack(events)]


def unpack(rows: list[dict[str, Any]]) -> list[SessionEvent]:
    entries = decode_lines([encode(row) for row in rows])
    return [
        event
        for entry in entries
        for event in (entry.events() if isinstance(entry, ChunkRun) else [event_from_json(entry)])
    ]


safe = st.integers(-MAX_SAFE_INT, MAX_SAFE_INT)
near = st.integers(0, 2)
kinds = st.sampled_from(["text-delta", "reasoning-delta", "tool-call-delta", "usage", "noise"])


@st.composite
def batches(draw: st.DrawFn) -> list[SessionEvent]:
    """Chunk events that often continue each other, with every way to break a run among them."""
    seq, out = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(0, 12))):
        seq += draw(st.sampled_from([1, 1, 1, 1, 2]))
        kind = draw(kinds)
        chunk: dict[str, Any] = {"type": kind, "index": draw(near)}
        if kind == "tool-call-delta":
            chunk["id"] = draw(st.sampled_from(["a", "a", "b"]))
            if draw(st.booleans()):
                chunk["name"] = draw(st.sampled_from(["x", "x", "y"]))
            chunk["argumentsDelta"] = draw(st.text(st.characters(codec=None), max_size=3))
        elif kind == "usage":
            chunk = {"type": "usage", "usage": {"inputTokens": 1}}
        else:
            chunk["text"] = draw(st.text(st.characters(codec=None), max_size=3))
        if kind == "noise":
            chunk["extra"] = 1
        time = draw(st.one_of(st.integers(0, 9), safe))
        out.append(delta(seq, time, chunk=chunk, turn=draw(st.sampled_from([1, 1, 2]))))
    return out


@settings(max_examples=300)
@given(batches())
def test_what_is_packed_comes_back_event_for_event(batch: list[SessionEvent]) -> None:
    rows = list(pack(batch))

    assert unpack(rows) == batch
    assert [encode(e.to_json()) for e in unpack(rows)] == [encode(e.to_json()) for e in batch]


@given(batches(), st.data())
def test_packing_does_not_depend_on_how_the_batch_is_held(
    batch: list[SessionEvent], data: st.DataObject
) -> None:
    entries = decode_lines([encode(row) for row in pack(batch)])
    held: list[Any] = []
    for entry in entries:
        if isinstance(entry, ChunkRun) and len(entry) > 1:
            cut = data.draw(st.integers(1, len(entry) - 1))
            held += [entry.slice(0, cut), *entry.slice(cut).events()]
        else:
            held.append(entry if isinstance(entry, ChunkRun) else event_from_json(entry))

    assert list(pack(held)) == list(pack(batch))


def test_times_that_step_back_give_negative_gaps() -> None:
    events = [delta(i, time, str(i)) for i, time in enumerate([1000, 1005, 998, 1001])]

    row = next(pack(events))

    assert encode(row) == (
        b'{"type":"text-chunks","seq0":0,"time0":1000,"data":{"turn":1,"step":1,"index":0,'
        b'"dt":[5,-7,3],"texts":["0","1","2","3"]}}'
    )
    assert list(row_to_run(row).events()) == events


def test_a_tool_call_row_has_its_keys_in_written_order() -> None:
    row = next(pack([tool(20, '{"p":', "ls"), tool(21, '"."', "ls"), tool(22, "}", "ls")]))

    assert encode(row) == (
        b'{"type":"tool-call-chunks","seq0":20,"time0":0,"data":{"turn":1,"step":1,"index":0,'
        b'"dt":[0,0],"id":"c1","name":"ls","args":["{\\"p\\":","\\".\\"","}"]}}'
    )


def test_runs_of_two_stay_loose_and_runs_of_three_are_packed() -> None:
    assert types([delta(0), delta(1)]) == ["assistant/chunk"] * 2
    assert types([delta(0), delta(1), delta(2)]) == ["text-chunks"]


@pytest.mark.parametrize("field", ["index", "id", "name", "argumentsDelta", "text"])
def test_a_delta_with_a_field_of_another_type_stays_loose(field: str) -> None:
    chunk = {"type": "tool-call-delta", "index": 0, "id": "c1", "name": "ls", "argumentsDelta": "{"}
    if field == "text":
        chunk = {"type": "text-delta", "index": 0, "text": "x"}

    odd = [delta(seq, chunk={**chunk, field: [5]}) for seq in range(3)]

    assert types([delta(seq, chunk=chunk) for seq in range(3)]) != ["assistant/chunk"] * 3
    assert types(odd) == ["assistant/chunk"] * 3


def test_a_name_on_the_first_delta_only_leaves_it_loose() -> None:
    batch = [tool(0, name="ls"), tool(1), tool(2), tool(3)]

    rows = list(pack(batch))

    assert [row["type"] for row in rows] == ["assistant/chunk", "tool-call-chunks"]
    assert "name" not in rows[1]["data"]


@pytest.mark.parametrize(
    "breaker",
    [
        delta(4),
        delta(3, index=1),
        delta(3, turn=2),
        delta(3, step=2),
        delta(3, chunk={"type": "reasoning-delta", "index": 0, "text": "x"}),
        delta(3, chunk={"type": "text-delta", "index": 0, "text": "x", "extra": 1}),
        delta(3, chunk={"type": "text-delta", "index": 0, "text": 1}),
        delta(3, chunk={"type": "text-delta", "index": "0", "text": "x"}),
        delta(3, chunk={"type": "text-delta", "index": True, "text": "x"}),
        delta(3, chunk={"type": "block-end", "index": 0, "block": {}}),
        delta(3, chunk="text"),
        delta(3, ignorable=True),
        delta(3, turn=True),
        delta(3, time=-MAX_SAFE_INT),
        tool(3),
    ],
    ids=readable,
)
def test_whatever_differs_breaks_the_run(breaker: SessionEvent) -> None:
    batch = [delta(0, MAX_SAFE_INT), delta(1, MAX_SAFE_INT), delta(2, MAX_SAFE_INT), breaker]

    rows = list(pack(batch))

    assert [row["type"] for row in rows] == ["text-chunks", "assistant/chunk"]
    assert unpack(rows) == batch


@pytest.mark.parametrize("other", [tool(3, call_id="c2"), tool(3, name="ls"), delta(3)], ids=readable)
def test_another_call_breaks_a_tool_call_run(other: SessionEvent) -> None:
    assert types([tool(0), tool(1), tool(2), other]) == ["tool-call-chunks", "assistant/chunk"]


TEXT = {"turn": 1, "step": 1, "index": 0, "dt": [4, -1], "texts": ["h", "i", "!"]}
CALL = {"turn": 1, "step": 1, "index": 0, "dt": [0], "id": "c", "name": "n", "args": ["{", "}"]}


def row(data: Any, kind: str = "text-chunks", **changes: Any) -> dict[str, Any]:
    return {"type": kind, "seq0": 8, "time0": 100, "data": data, **changes}


@pytest.mark.parametrize(
    "bad",
    [
        row(TEXT, extra=1),
        {"type": "text-chunks", "seq0": 8, "data": TEXT},
        row(TEXT, seq0=-1),
        row(TEXT, seq0=True),
        row(TEXT, seq0=MAX_SAFE_INT - 1),
        row(TEXT, time0=1.5),
        row(TEXT, time0=True),
        row(TEXT, time0=MAX_SAFE_INT - 3),
        row([]),
        row({**TEXT, "extra": 1}),
        row({**TEXT, "name": "n"}),
        row({key: value for key, value in TEXT.items() if key != "index"}),
        row({**TEXT, "turn": "1"}),
        row({**TEXT, "turn": True}),
        row({**TEXT, "texts": "hi!"}),
        row({**TEXT, "texts": [], "dt": []}),
        row({**TEXT, "texts": ["h", "i", 1]}),
        row({**TEXT, "dt": [4]}),
        row({**TEXT, "dt": [4, -1, 0]}),
        row({**TEXT, "dt": [4, True]}),
        row({**TEXT, "dt": [4, 0.5]}),
        row({**TEXT, "dt": [4, None]}),
        row({**TEXT, "dt": {"0": 4, "1": 5}}),
        row({**TEXT, "dt": [2**53, 0]}),
        row({**TEXT, "dt": [MAX_SAFE_INT, -MAX_SAFE_INT]}),
        row({**CALL, "id": 1}, "tool-call-chunks"),
        row({**CALL, "name": None}, "tool-call-chunks"),
        row({**CALL, "texts": ["a", "b"]}, "tool-call-chunks"),
        row({key: value for key, value in CALL.items() if key != "id"}, "tool-call-chunks"),
        row(TEXT, "tool-call-chunks"),
        row(CALL, "reasoning-chunks"),
        row(TEXT, "other-chunks"),
    ],
    ids=lambda value: str(value)[:90],
)
def test_a_malformed_row_is_refused_whole(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        row_to_run(decode_strict(encode(bad)))


def test_readers_take_a_run_of_one_and_integers_written_as_floats() -> None:
    one = row_to_run(row({**TEXT, "dt": [], "texts": ["h"]}))
    floats = row_to_run(
        decode_strict(
            b'{"type":"text-chunks","seq0":8.0,"time0":1.0,"data":'
            b'{"turn":1.0,"step":1,"index":0.0,"dt":[4.0],"texts":["h","i"]}}'
        )
    )

    assert len(one) == 1
    assert encode(floats.to_row()) == (
        b'{"type":"text-chunks","seq0":8,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[4],"texts":["h","i"]}}'
    )


@pytest.mark.parametrize("index", [2**53, 10**40, -3, 1.5, -0.0])
def test_a_number_of_another_writer_is_kept_in_every_member(index: float) -> None:
    run = row_to_run(row({**TEXT, "index": index}))

    assert [event.data["chunk"]["index"] for event in run.events()] == [index] * len(run)
    assert encode(run.to_row()) == encode(row({**TEXT, "index": index}))


def test_a_call_row_without_a_name_is_read() -> None:
    run = row_to_run(row({key: value for key, value in CALL.items() if key != "name"}, "tool-call-chunks"))

    assert run.event(1).data["chunk"] == {
        "type": "tool-call-delta",
        "index": 0,
        "id": "c",
        "argumentsDelta": "}",
    }


def test_only_the_three_tags_are_rows() -> None:
    assert [is_row({"type": tag}) for tag in ("text-chunks", "turn/start", None, 1, "chunks")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert not is_row([])


@given(st.integers(0, 2), st.integers(1, 3))
def test_a_slice_is_the_same_events(start: int, stop: int) -> None:
    run = row_to_run(row(TEXT))
    part = run.slice(start, max(start + 1, stop))

    assert list(part.events()) == list(run.events(start, max(start + 1, stop)))
    assert [run.event(i) for i in range(3)] == list(run.events())
    assert (entry_start(part), entry_stop(part)) == (8 + start, 8 + max(start + 1, stop))


def test_expanding_leaves_events_alone() -> None:
    events = [delta(0), delta(1)]

    assert list(expand([*events, row_to_run(row(TEXT))])) == [*events, *row_to_run(row(TEXT)).events()]
    assert run_of_event(events[0]) is not None
