"""What the file of one session consists of, and what packing and compression saved."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.error import SessionCorruption
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.figures import figures_of, unpacked_size
from dsh.persistence.jsonl.raw import read_text
from dsh.session.chunk_run import ChunkRun
from dsh.session.value import MAX_SAFE_INT, encode
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import BODY, HEADER, TEXT, framed, text_row, turn_end, turn_start


@needs_corpus
def test_the_figures_of_a_log_that_was_streamed() -> None:
    found = figures_of(CORPUS / "fixtures" / "jsonrpc-agent-bash-tool-session.jsonl")
    assert (found.rows, found.packed_rows, found.packed_events, found.events) == (32, 4, 71, 99)
    assert found.encoding == "plain" and found.stored_bytes == found.text_bytes
    assert round(100 * (1 - found.text_bytes / found.unpacked_bytes), 1) == 59.7


def test_both_encodings_have_the_same_text(tmp_path: Path) -> None:
    plain, packed = tmp_path / "session.jsonl", tmp_path / "session.jsonl.zstd"
    plain.write_bytes(TEXT)
    packed.write_bytes(framed(b"".join(BODY)))
    one, other = figures_of(plain), figures_of(packed)
    assert (one.events, one.rows) == (17, 15)
    assert other.encoding == "zstd" and other.stored_bytes == packed.stat().st_size < one.stored_bytes
    assert (one.text_bytes, one.unpacked_bytes, one.events) == (
        other.text_bytes,
        other.unpacked_bytes,
        other.events,
    )


def test_a_torn_tail_is_neither_row_nor_text(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + turn_start(0) + text_row(7, ["a", "b", "c"]) + b'{"type":')
    found = figures_of(path)
    assert (found.rows, found.events, found.packed_rows) == (1, 1, 0)
    assert found.text_bytes == len(HEADER + turn_start(0)) < found.stored_bytes
    assert read_text(path).content == HEADER + turn_start(0)


def test_a_damaged_log_has_no_figures_but_its_text_is_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    data = HEADER + turn_start(0) + b"rubbish\n" + turn_end(1)
    path.write_bytes(data)
    with pytest.raises(SessionCorruption, match="unparsable"):
        figures_of(path)
    assert read_text(path).content == data


def test_a_log_of_another_version_is_handed_out_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    data = HEADER.replace(b'"version":', b'"version":9') + b'{"other":1}\n{"other":2}\n'
    path.write_bytes(data + b'{"oth')
    assert read_text(path).content == data


def test_an_absent_session_has_none(tmp_path: Path) -> None:
    assert JsonlBackend(tmp_path).figures("nobody") is None


@given(
    st.lists(st.tuples(st.text(), st.integers(-5_000, 5_000)), min_size=1),
    st.integers(0, 10**12),
    st.integers(-MAX_SAFE_INT // 2, MAX_SAFE_INT // 2),
    st.sampled_from(["text", "reasoning", "tool-call"]),
)
def test_the_unpacked_size_is_that_of_the_members_as_lines(members, seq0, time0, kind) -> None:  # type: ignore[no-untyped-def]
    dt = [gap for _, gap in members][1:]
    texts = [text.encode("utf-8", "replace").decode() for text, _ in members]
    call = ("call", "bash") if kind == "tool-call" else (None, None)
    run = ChunkRun(kind, seq0, (time0, time0 + sum(dt)), (1, 2, 0), dt, texts, *call)
    assert unpacked_size(run) == sum(len(encode(event.to_json())) + 1 for event in run.events())


def test_the_figures_of_an_id_are_those_of_its_own_log(tmp_path: Path) -> None:
    path = tmp_path / "--srv-app--" / "other" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    with pytest.raises(SessionCorruption, match="not of 'other'"):
        JsonlBackend(tmp_path).figures("other")
