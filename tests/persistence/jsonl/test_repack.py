"""Packing a log that nobody has open: less space, the same events, all or nothing."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.error import SessionBusy, SessionCorruption
from dsh.persistence.files import Files
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.jsonl.frames import BATCH_TEXT, decode_frame, encode_frame, scan_frames
from dsh.persistence.jsonl.repack import repack, same_events
from dsh.persistence.view import build_view
from dsh.session.value import encode
from tests.persistence.faults import FaultyFiles, Killed
from tests.persistence.golden import (
    HEADER,
    TEXT,
    framed,
    line,
    step_start,
    text_row,
    turn_end,
    turn_start,
    view_of,
)


def delta(seq: int, text: str, time: int = 0) -> bytes:
    """A delta that stands alone."""
    data = {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": text}}
    return (
        encode({"type": "assistant/chunk", "seq": seq, "time": 1_700_000_000_000 + time, "data": data})
        + b"\n"
    )


def store(root: Path, data: bytes, name: str = "session.jsonl.zstd") -> Path:
    path = root / "--srv-app--" / "demo.1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def streamed(count: int = 100) -> list[bytes]:
    """Batches as a live session writes them: a few deltas each."""
    out = [turn_start(0) + step_start(1)]
    out += [text_row(2 + 4 * at, ["one ", "two ", "three ", "four "]) for at in range(count)]
    return [*out, line("step/end", 2 + 4 * count, {"turn": 1, "step": 1}) + turn_end(3 + 4 * count)]


def events_of(path: Path) -> list[object]:
    return [event.to_json() for event in view_of(path).events()]


@pytest.mark.parametrize("name", ["session.jsonl.zstd", "session.jsonl"])
def test_many_small_batches_become_one(tmp_path: Path, name: str) -> None:
    is_plain = name == "session.jsonl"
    path = store(tmp_path, b"".join((HEADER, *streamed())) if is_plain else framed(*streamed()), name)
    os.utime(path, ns=(5, 1_600_000_000_123_456_789))
    before, events = path.stat(), events_of(path)
    backend = JsonlBackend(tmp_path)
    revision = backend.revision("demo.1")

    packed = backend.pack("demo.1")

    assert packed is not None and (packed.before, packed.after) == (before.st_size, path.stat().st_size)
    assert packed.after < packed.before / 2
    assert events_of(path) == events
    assert path.stat().st_mtime_ns == before.st_mtime_ns and backend.revision("demo.1") != revision
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    if not is_plain:
        assert decode_frame(data, scan_frames(data).frames[0]) == HEADER
        assert len(scan_frames(data).frames) == 2
    again = backend.pack("demo.1")
    assert again is not None and again.before == again.after and path.read_bytes() == data
    assert sorted(file.name for file in path.parent.iterdir()) == ["owner.lock", name]


def test_lines_that_are_no_plain_deltas_stay_as_they_are() -> None:
    odd = b'{"type": "x.y/z", "ignorable":true,"seq":3, "data":{"b":1,"a":1e2}, "time":1}\n'
    spaced = delta(4, "d").replace(b'{"type"', b'{ "type"')
    text = turn_start(0) + delta(1, "a") + delta(2, "b") + odd + spaced + delta(5, "e")
    assert b"".join(repack([text])) == text


def test_loose_deltas_and_runs_join_across_batches_in_order() -> None:
    text = (
        delta(0, "a") + delta(1, "b", 5) + text_row(2, ["c"]) + text_row(3, ["d", "e"], [-3]) + delta(5, "f")
    )
    (out,) = repack([text])
    assert out.count(b"\n") == 1 and same_events([text], [out])
    assert b'"texts":["a","b","c","d","e","f"]' in out


def test_batches_and_rows_stay_near_the_limit() -> None:
    word = "w" * 1000
    text = b"".join(text_row(at * 4, [word] * 4) for at in range(1000))
    out = list(repack([text]))
    assert len(out) == 4 and max(map(len, out)) < BATCH_TEXT + 10_000
    assert same_events([text], out)


def test_a_difference_is_noticed() -> None:
    text = text_row(0, ["a", "b", "c"]) + turn_start(3)
    assert not same_events([text], [text_row(0, ["a", "b", "c"])])
    assert not same_events([text], [text.replace(b'"b"', b'"x"')])
    assert not same_events([text], [text.replace(b'"dt":[1,1]', b'"dt":[1,2]')])


@given(st.lists(st.tuples(st.sampled_from("dr."), st.text(max_size=5), st.integers(-9, 9)), max_size=30))
def test_any_mixture_keeps_its_events(parts: list[tuple[str, str, int]]) -> None:
    text, seq = b"", 0
    for kind, word, time in parts:
        word = word.encode("utf-8", "replace").decode()
        if kind == "d":
            text, seq = text + delta(seq, word, time), seq + 1
        elif kind == "r":
            text, seq = text + text_row(seq, [word, "x"], [time]), seq + 2
        else:
            text, seq = text + line("session/title", seq, {"title": word}), seq + 1
    out = b"".join(repack([text]))
    assert same_events([text], [out]) and b"".join(repack([out])) == out


def test_a_session_that_is_open_or_damaged_is_left_alone(tmp_path: Path) -> None:
    path = store(tmp_path, framed(*streamed()))
    data = path.read_bytes()
    owner = JsonlBackend(tmp_path)
    owner.open("demo.1")
    with pytest.raises(SessionBusy):
        JsonlBackend(tmp_path).pack("demo.1")
    owner.close()
    path.write_bytes(data[:-9] + b"\0" + data[-8:])
    with pytest.raises(SessionCorruption):
        owner.pack("demo.1")
    assert path.read_bytes() == data[:-9] + b"\0" + data[-8:]
    assert owner.pack("nobody") is None


def test_a_torn_log_is_repaired_first(tmp_path: Path) -> None:
    path = store(tmp_path, framed(*streamed()[:-1]) + encode_frame(turn_end(402))[:-5])
    events = events_of(path)
    packed = JsonlBackend(tmp_path).pack("demo.1")
    assert packed is not None and events_of(path) == events
    assert not view_of(path).needs_repair


@pytest.mark.parametrize("kill", [True, False])
def test_what_stops_it_leaves_the_old_log_or_the_new(tmp_path: Path, kill: bool) -> None:
    for number in range(30):
        root = tmp_path / str(number)
        path = store(root, framed(*streamed(5)))
        old, events = path.read_bytes(), events_of(path)
        faulty = FaultyFiles(number, kill=kill)
        try:
            JsonlBackend(root, files=faulty).pack("demo.1")
        except (OSError, Killed):
            assert events_of(path) == events
            assert path.read_bytes() == old or len(path.read_bytes()) < len(old)
            if not kill:
                assert not list(path.parent.glob("*.tmp"))
        else:
            if len(faulty.calls) <= number:
                return
    pytest.fail("never came to an end")


def test_the_golden_log_is_packed_already(tmp_path: Path) -> None:
    path = store(tmp_path, TEXT, "session.jsonl")
    packed = JsonlBackend(tmp_path, files=Files()).pack("demo.1")
    assert packed is not None and packed.after == packed.before
    assert path.read_bytes() == TEXT
    stored = JsonlBackend(tmp_path).load("demo.1")
    assert stored is not None and build_view(stored).length == 17
