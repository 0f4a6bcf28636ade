"""Appending: everything or nothing, checked, frozen, told in order (`spec/session-log.md` §6)."""

import tracemalloc
from typing import Any

import pytest

from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
    chunk_from_json,
    chunk_to_json,
)
from dsh.session.chunk_row import pack
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import InvalidEvent, JsonError, ReentrantAppend, SessionError
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.restore import restore
from dsh.session.value import encode
from dsh.session.vocabulary import KNOWN, register_types
from tests.ids import readable
from tests.session.build import T0, Ticks, as_stored, header, in_step, prompt, reply, session, stored

NOTE: dict[str, Any] = {"text": "note"}


def test_an_event_gets_the_next_seq_and_the_time_of_the_clock() -> None:
    log = Session(header(), clock=Ticks(5, 3))

    first, second = log.append("feedback/record", NOTE), log.append("feedback/record", NOTE)

    assert (first.seq, first.time, second.seq, second.time) == (0, 5, 1, 3)
    assert list(log.events()) == [first, second]


def test_caller_data_and_returned_data_cannot_change_the_log() -> None:
    log, data = session(), {"text": "a", "more": [1]}
    event = log.append("feedback/record", data)
    data["text"] = "b"

    assert event.data == {"text": "a", "more": (1,)}
    with pytest.raises(TypeError):
        event.data["text"] = "b"
    with pytest.raises(AttributeError):
        event.seq = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "data", "error"),
    [
        ("feedback/record", {"text": float("nan")}, JsonError),
        ("feedback/record", object(), JsonError),
        ("request/header-delta", {}, InvalidEvent),
        ("mode/set", {}, InvalidEvent),
        ("request/header", {"header": {}, "reason": "fallback"}, InvalidEvent),
        ("session/end-seed", {}, InvalidEvent),
        ("acme/note", {}, InvalidEvent),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed", "x": 1}}, InvalidEvent),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}, "x": 1}, InvalidEvent),
        ("user/message", {"text": "x"}, InvalidEvent),
    ],
    ids=readable,
)
def test_what_no_reader_accepts_is_refused_and_changes_nothing(
    kind: str, data: Any, error: type[SessionError]
) -> None:
    log = in_step()

    with pytest.raises(error):
        log.append(kind, data)

    assert log.length == 2
    assert log.append("feedback/record", NOTE).seq == 2


MESSAGE: dict[str, Any] = {
    "id": "m",
    "role": "user",
    "source": {"kind": "user"},
    "content": [{"type": "text", "text": "x"}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": 1},
        {"role": "assistant"},
        {"role": None},
        {"source": {}},
        {"source": {"kind": ""}},
        {"source": "user"},
        {"content": "x"},
        {"content": {}},
    ],
    ids=readable,
)
def test_messages_are_checked_on_append_and_on_load_by_the_same_rules(change: dict[str, Any]) -> None:
    bad = {**MESSAGE, **change}

    with pytest.raises(InvalidEvent, match="user/message"):
        session().append("user/message", bad, surface="append")
    with pytest.raises(InvalidEvent, match="user/message"):
        session().load(stored("user/message", 0, bad, surfaceOp="append"))
    with pytest.raises(SessionError, match="user/message"):
        restore(header(), [stored("user/message", 0, bad, surfaceOp="append")])


TOOL: dict[str, Any] = {"kind": "tool", "callId": "c"}
BLOCK: dict[str, Any] = {"type": "tool-result", "toolCallId": "c", "content": []}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("assistant/message", {**MESSAGE, "role": "assistant"}),
        ("assistant/message", {**MESSAGE, "role": "assistant", "source": {"kind": "model", "provider": "p"}}),
        ("assistant/message", {**MESSAGE, "role": "assistant", "source": {"kind": "model", "model": "m"}}),
        ("assistant/message", None),
        ("tool/result", MESSAGE),
        ("tool/result", {**MESSAGE, "source": {"kind": "tool"}, "content": [BLOCK]}),
        ("tool/result", {**MESSAGE, "source": TOOL}),
        ("tool/result", {**MESSAGE, "source": TOOL, "content": [BLOCK, BLOCK]}),
        ("tool/result", {**MESSAGE, "source": TOOL, "content": []}),
        ("tool/result", {**MESSAGE, "source": TOOL, "content": [{**BLOCK, "content": "x"}]}),
        ("tool/result", {**MESSAGE, "source": TOOL, "content": [{**BLOCK, "toolCallId": "d"}]}),
    ],
    ids=readable,
)
def test_wrapped_messages_are_checked_too(kind: str, message: Any) -> None:
    with pytest.raises(InvalidEvent, match=kind):
        in_step().append(kind, {"turn": 1, "step": 1, "message": message}, surface="append")


@pytest.mark.parametrize(
    "head",
    [
        None,
        {},
        {"config": {"provider": "p"}},
        {"config": {"provider": "", "model": "m"}},
        {"config": {"provider": "p", "model": "m", "reasoningEffort": ""}},
        {"config": {"provider": "p", "model": "m"}, "adapterDefaults": None},
        {"config": {"provider": "p", "model": "m"}, "adapterDefaults": {"maxTokens": True}},
        {"config": {"provider": "p", "model": "m", "maxTokens": 1}, "adapterDefaults": {"maxTokens": False}},
        {"config": {"provider": "p", "model": "m"}, "adapterDefaults": {"other": True}},
    ],
    ids=readable,
)
def test_a_request_header_out_of_shape_is_refused(head: Any) -> None:
    with pytest.raises(InvalidEvent, match="request/header"):
        in_step().append("request/header", {"header": head, "reason": "initial"})


def test_an_unknown_type_can_be_written_as_ignorable_and_comes_last_in_the_envelope() -> None:
    log = session()

    event = log.append("acme/note", {"a": 1}, ignorable=True)

    assert encode(event.to_json()) == (
        b'{"type":"acme/note","seq":0,"time":%d,"data":{"a":1},"ignorable":true}' % (T0 + 1)
    )
    assert restore(header(), as_stored(log)).view.event(0).ignorable


def test_a_registered_type_is_known_until_it_is_taken_back() -> None:
    log = session()
    first, second = register_types(["acme/note"]), register_types(["acme/note"])
    log.append("acme/note", {})

    first()
    first()
    restore(header(), as_stored(log))
    second()
    with pytest.raises(SessionError, match="unknown"):
        restore(header(), as_stored(log))


def test_there_are_48_known_types() -> None:
    assert len(KNOWN) == 48


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_every_known_type_is_read_and_written_back_byte_for_byte(kind: str) -> None:
    log = in_step()
    messages: dict[str, Any] = {
        "user/message": prompt(),
        "assistant/message": {"turn": 1, "step": 1, "message": reply()},
        "tool/result": {
            "turn": 1,
            "step": 1,
            "message": {**MESSAGE, "source": TOOL, "content": [BLOCK]},
            "error": {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"},
        },
        "request/header": {"header": {"config": {"provider": "p", "model": "m"}}, "reason": "initial"},
        "turn/end": {"turn": 1, "reason": {"kind": "acme", "more": 1}},
    }
    surface = {"surfaceOp": "append"} if kind in ("user/message", "assistant/message", "tool/result") else {}
    entry = stored(kind, 2, messages.get(kind, {"anything": [1, None, "é"]}), **surface)

    log.load(entry)

    assert encode(log.event(2).to_json()) == encode(entry)


# -- observers -------------------------------------------------------------------------------------


def test_an_observer_sees_each_event_in_the_log_and_in_order() -> None:
    log, seen = in_step(), []
    log.on_append = lambda seq, event: seen.append((seq, event, log.length))

    event = log.append("feedback/record", NOTE)
    log.append_chunk(1, 1, TextDelta(0, "a"))
    block = log.append_chunk(1, 1, BlockStart(0, "text"))

    assert seen == [(2, event, 3), (3, None, 4), (4, log.event(block), 5)]


def test_an_append_from_an_observer_is_refused() -> None:
    log, errors = in_step(), []

    def observe(seq: int, event: SessionEvent | None) -> None:
        for attempt in (
            lambda: log.append("feedback/record", NOTE),
            lambda: log.append_chunk(1, 1, TextDelta(0, "a")),
        ):
            with pytest.raises(ReentrantAppend) as caught:
                attempt()
            errors.append(caught.value.hint)

    log.on_append = observe

    log.append("feedback/record", NOTE)

    assert (log.length, len(errors)) == (3, 2)
    assert "call_soon" in errors[0]


def test_a_raising_observer_does_not_lock_the_log() -> None:
    log = session()

    def observe(seq: int, event: SessionEvent | None) -> None:
        raise RuntimeError("observer")

    log.on_append = observe
    with pytest.raises(RuntimeError):
        log.append("feedback/record", NOTE)
    log.on_append = None

    assert log.append("feedback/record", NOTE).seq == 1


# -- chunks ----------------------------------------------------------------------------------------

CHUNKS: list[Chunk] = [
    BlockStart(0, "reasoning"),
    ReasoningDelta(0, "hm"),
    BlockEnd(0, {"type": "reasoning", "text": "hm"}),
    TextDelta(1, "a"),
    TextDelta(1, "b"),
    TextDelta(2, "c"),
    ToolCallDelta(3, "c1", "ls", "{"),
    ToolCallDelta(3, "c1", arguments_delta="}"),
    ToolCallDelta(3, "c1", arguments_delta=""),
    ToolCallDelta(3, "c2", arguments_delta=""),
    UsageChunk({"inputTokens": 1, "outputTokens": 2}),
    Finish({"kind": "stop"}),
    Finish({"kind": "stop"}, {"response": 1}),
]


def test_chunks_come_back_as_the_events_they_are() -> None:
    log = in_step()

    seqs = [log.append_chunk(1, 1, chunk) for chunk in CHUNKS]

    assert seqs == list(range(2, 2 + len(CHUNKS)))
    for seq, chunk in zip(seqs, CHUNKS, strict=True):
        event = log.event(seq)
        assert event.data == {"turn": 1, "step": 1, "chunk": event.data["chunk"]}
        assert encode(event.data["chunk"]) == encode(chunk)
        assert chunk_from_json(event.data["chunk"]) == chunk


def test_chunk_keys_are_in_written_order() -> None:
    assert [list(chunk_to_json(chunk)) for chunk in CHUNKS[:1] + CHUNKS[6:8] + CHUNKS[-1:]] == [
        ["type", "index", "blockType"],
        ["type", "index", "id", "name", "argumentsDelta"],
        ["type", "index", "id", "argumentsDelta"],
        ["type", "reason", "replayState"],
    ]


@pytest.mark.parametrize("bad", [{"type": "noise"}, {"type": "text-delta", "index": 0}, {}], ids=readable)
def test_what_is_no_chunk_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        chunk_from_json(bad)


def test_a_stream_is_held_in_runs_and_not_event_by_event() -> None:
    log = in_step()
    for number in range(5000):
        log.append_chunk(1, 1, TextDelta(0, str(number)))

    entries = log.entries(2)

    assert [len(entry) for entry in entries if isinstance(entry, ChunkRun)] == [5000]
    assert log.event(4002).data["chunk"]["text"] == "4000"


def test_what_was_handed_out_does_not_grow() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "a"))
    whole, copy, events = log.entries(), log.copy(), log.events()
    log.append_chunk(1, 1, TextDelta(0, "b"))

    assert isinstance(whole[-1], ChunkRun)
    assert len(whole[-1]) == 1
    assert (copy.length, len(list(copy.events())), len(list(events))) == (3, 3, 3)


def test_any_suffix_of_the_log_can_be_had() -> None:
    log = in_step()
    for chunk in CHUNKS:
        log.append_chunk(1, 1, chunk)
    every = list(log.events())

    for start in range(log.length + 2):
        rest = [e for x in log.entries(start) for e in (x.events() if isinstance(x, ChunkRun) else [x])]
        assert rest == every[start:] == list(log.events(start))
        for stop in range(log.length + 2):
            assert list(log.events(start, stop)) == every[start:stop]


def test_a_batch_that_starts_inside_a_run_packs_its_own_part() -> None:
    log = Session(header(), clock=Ticks(1, 2, 10, 20, 15, 16, 17))
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    for text in "abcde":
        log.append_chunk(1, 1, TextDelta(0, text))

    [row] = pack(log.entries(4))

    assert row["seq0"] == 4
    assert row["time0"] == 15
    assert (row["data"]["dt"], row["data"]["texts"]) == ([1, 1], ["c", "d", "e"])


@pytest.mark.parametrize(
    ("turn", "step", "chunk"),
    [
        (2, 1, TextDelta(0, "a")),
        (1, 2, TextDelta(0, "a")),
        (1, 1, TextDelta(0, 1)),  # type: ignore[arg-type]
        (1, 1, TextDelta("0", "a")),  # type: ignore[arg-type]
        (1, 1, TextDelta(2**53, "a")),
        (1, 1, ReasoningDelta(-1, "a")),
        (True, 1, TextDelta(0, "a")),
        (1, 1, ToolCallDelta(0, None)),  # type: ignore[arg-type]
        (2, 1, Finish({"kind": "stop"})),
    ],
    ids=readable,
)
def test_a_chunk_that_does_not_belong_here_is_refused(turn: int, step: int, chunk: Chunk) -> None:
    log = in_step()

    with pytest.raises(InvalidEvent):
        log.append_chunk(turn, step, chunk)

    assert log.length == 2


def test_a_session_without_events_is_a_session_all_the_same() -> None:
    assert bool(session())


def test_an_event_that_is_not_there_is_an_index_error() -> None:
    for seq in (-1, 2):
        with pytest.raises(IndexError):
            in_step().event(seq)


def test_events_of_some_types_are_found_without_unpacking() -> None:
    log = in_step()
    log.append_chunk(1, 1, TextDelta(0, "a"))
    log.append("plan/mode", {"active": True})
    log.append("plan/mode", {"active": False})

    assert [event.seq for event in log.select("plan/mode", "turn/start")] == [0, 3, 4]
    assert [event.seq for event in log.select("plan/mode", start=4)] == [4]
    last = log.last("plan/mode")
    assert last is not None
    assert last.data == {"active": False}
    assert log.last("todo/write") is None


def test_a_streamed_chunk_keeps_less_than_a_fifth_of_a_kibibyte() -> None:
    log, count = in_step(), 20_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            log.append_chunk(1, 1, TextDelta(0, f" tok{number % 997}"))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert kept / count < 0.2 * 1024
