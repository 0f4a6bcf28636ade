"""Laws over random logs: however they are cut into batches, the same events come back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.chunk import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from dsh.session.header import SessionHeader
from dsh.session.log import Session

texts = st.text(st.characters(exclude_categories=()), max_size=5)
chunks: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(TextDelta, index=st.integers(0, 1), text=texts),
    st.builds(ReasoningDelta, index=st.just(0), text=texts),
    st.builds(ToolCallDelta, index=st.just(2), id=st.just("c1"), name=st.just("ls"), arguments_delta=texts),
    st.builds(ToolCallDelta, index=st.just(2), id=st.just("c1"), arguments_delta=texts),
)


def log_of(pieces: list[Chunk], times: list[int]) -> Session:
    clock = iter(times)
    session = Session(SessionHeader(id="s", created_at=0, delegation_depth=0), clock=lambda: next(clock, 0))
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for piece in pieces:
        session.append_chunk(1, 1, piece)
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return session


@given(
    st.lists(chunks, max_size=40),
    st.lists(st.integers(-(2**40), 2**40), max_size=44),
    st.sets(st.integers(1, 43)),
    st.sampled_from(["plain", "zstd"]),
    st.booleans(),
)
@settings(max_examples=150)
def test_any_batches_give_the_same_events_back(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[Chunk],
    times: list[int],
    cuts: set[int],
    encoding: Encoding,
    pack: bool,
) -> None:
    session = log_of(pieces, times)
    backend = JsonlBackend(tmp_path_factory.mktemp("law"), encoding=encoding, pack_chunks=pack)
    whole = Session(session.header)
    stops = sorted(cut for cut in cuts if cut < session.length)
    for start, stop in zip([0, *stops], [*stops, session.length], strict=True):
        for event in session.events(start, stop):
            whole.load(event)
        backend.append(session.header, whole.entries(start))
    backend.close()

    path: Path = backend.locate(session.header)
    stored = read_log(path)

    view = build_view(stored)
    assert stored.torn is None and not view.needs_repair
    assert view.header == session.header
    assert [e.to_json() for e in view.events()] == [e.to_json() for e in session.events()]


@given(st.lists(chunks, max_size=30), st.integers(0, 10_000), st.sampled_from(["plain", "zstd"]))
@settings(max_examples=100)
def test_a_repaired_log_needs_no_second_repair_and_keeps_what_was_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[Chunk], cut: int, encoding: Encoding
) -> None:
    session = log_of(pieces, [])
    root = tmp_path_factory.mktemp("law")
    writer = JsonlBackend(root, encoding=encoding)
    writer.append(session.header, session.entries()[:1])
    header_end = len(writer.locate(session.header).read_bytes())
    writer.append(session.header, session.entries(1))
    writer.close()
    path = writer.locate(session.header)
    data = path.read_bytes()
    path.write_bytes(data[: header_end + cut % (len(data) - header_end)])

    backend = JsonlBackend(root, encoding=encoding)
    stored = backend.open(session.id)
    assert stored is not None
    view = build_view(stored)
    backend.repair(stored, view.closers, view.recovered)
    backend.close()

    again = build_view(read_log(path))
    assert not again.needs_repair
    assert [e.to_json() for e in again.events()] == [e.to_json() for e in view.events()]
    kept = [e.to_json() for e in session.events(0, view.stored_length)]
    assert [e.to_json() for e in again.events(0, view.stored_length)] == kept
