"""Reading stored logs: torn tails, damage, headers; the file is never touched."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.persistence.error import SessionCorruption, SessionFormatUnsupported
from dsh.persistence.jsonl.frames import encode_frame, scan_frames
from dsh.persistence.jsonl.raw import read_header, read_raw
from dsh.persistence.jsonl.reader import read_log
from dsh.session.chunk_run import entry_stop
from tests.persistence.golden import (
    BODY,
    HEADER,
    TEXT,
    framed,
    line,
    step_start,
    text_row,
    turn_end,
    turn_start,
    types_of,
    view_of,
)

SEQS = [*range(9), 11, *range(12, 18)]
"""How many events the header and so many lines of the golden log hold: its ninth line is a run of three."""


def plain(tmp_path: Path, *lines: bytes) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + b"".join(lines))
    return path


def compressed(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "session.jsonl.zstd"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("body", "types", "closers"),
    [
        (turn_start(0) + text_row(1, ["a", "b", "c"]) + turn_end(4), 5, 0),
        (turn_start(0) + text_row(2, ["a", "b", "c"]), 2, 1),
        (turn_start(0) + step_start(1) + b'{"type":"assis', 4, 2),
        (turn_start(0) + turn_end(1) + b"no JSON\n", 2, 0),
        (turn_start(0) + turn_end(1) + b"[]\n", 2, 0),
        (turn_start(0) + turn_end(1) + b"null\n", 2, 0),
        (turn_start(0) + turn_end(1) + b"\n", 2, 0),
        (turn_start(0) + turn_end(1) + b"\0" * 700, 2, 0),
        (b"", 0, 0),
    ],
)
def test_a_tail_without_a_finished_turn_is_left_out(
    tmp_path: Path, body: bytes, types: int, closers: int
) -> None:
    path = plain(tmp_path, body)

    view = view_of(path)

    assert view.length == types
    assert len(view.closers) == closers
    assert path.read_bytes() == HEADER + body


@pytest.mark.parametrize(
    ("body", "bad_line"),
    [
        (text_row(0, ["a", "b"], dt=[]) + turn_end(2), 2),
        (turn_start(0) + b"\n" + turn_end(1), 3),
        (turn_start(0) + turn_end(7), 3),
        (turn_start(0) + b"null\n" + turn_end(1), 3),
        (turn_start(0) + b"\xff\n" + turn_end(1), 3),
        (turn_start(0) + b'{"a":NaN}\n' + turn_end(1), 3),
        (turn_start(0) + b'{"a":1e400}\n' + turn_end(1), 3),
        (turn_start(0) + b"\0" * 60 + b"\n" + turn_end(1), 3),
        (turn_start(0) + line("session/title", 5, {}) + turn_end(1)[:-1], 3),
    ],
)
def test_a_defect_in_front_of_a_finished_turn_is_damage(tmp_path: Path, body: bytes, bad_line: int) -> None:
    path = plain(tmp_path, body)

    with pytest.raises(SessionCorruption) as caught:
        read_log(path)

    defect = caught.value
    assert defect.line == bad_line
    assert defect.offset is not None
    lines = (HEADER + body).split(b"\n")
    assert defect.offset == sum(len(text) + 1 for text in lines[: bad_line - 1])
    assert f":{bad_line} (byte {defect.offset})" in str(defect)


def test_a_complete_record_that_is_nested_too_deeply_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    for levels in (600, 3_000, 100_000):
        deep = line("feedback/record", 1, {"text": 0}).replace(b"0}", b"[" * levels + b"]" * levels + b"}")
        for body in (turn_start(0) + deep, turn_start(0) + deep + turn_end(2)):
            for path in (plain(tmp_path, body), compressed(tmp_path, framed(body))):
                with pytest.raises(SessionCorruption, match="levels") as caught:
                    view_of(path)
                assert caught.value.line == 3

    torn = plain(tmp_path, turn_start(0) + b"[" * 100_000)
    assert view_of(torn).stored_length == 1


def test_lines_end_at_line_feed_only(tmp_path: Path) -> None:
    separators = "a\u2028b\x85c\x0b"
    path = plain(tmp_path, turn_start(0).replace(b"\n", b"\r\n"), text_row(1, [separators] * 3), turn_end(4))

    view = view_of(path)

    assert view.length == 5
    assert view.event(1).data["chunk"]["text"] == separators


def test_a_cut_at_every_byte_of_a_plain_log_keeps_every_complete_record(tmp_path: Path) -> None:
    ends = [len(HEADER)]
    for text in BODY:
        ends.append(ends[-1] + len(text))
    path = tmp_path / "session.jsonl"
    for cut in range(len(TEXT) + 1):
        path.write_bytes(TEXT[:cut])
        if cut < len(HEADER):
            with pytest.raises(SessionCorruption):
                read_log(path)
            continue
        stored = read_log(path)
        whole = sum(1 for end in ends[1:] if end <= cut + 1)  # a record may lack its newline
        assert stored.next_seq == SEQS[whole]
        assert stored.lacks_newline == (cut + 1 in ends[1:])
        assert (stored.torn is None) == (cut in ends or cut + 1 in ends)
        view_of(path)


def test_a_cut_at_every_byte_of_a_compressed_log_keeps_every_complete_frame(tmp_path: Path) -> None:
    data = framed(b"".join(BODY[:6]), b"".join(BODY[6:]))
    frames = scan_frames(data).frames
    held = [0, 6, 17]
    for cut in range(len(data)):
        path = compressed(tmp_path, data[:cut])
        complete = sum(1 for frame in frames if frame.end <= cut)
        if not complete:
            with pytest.raises(SessionCorruption):
                read_log(path)
            continue
        stored = read_log(path)
        assert stored.next_seq >= held[complete - 1]
        if stored.torn is not None:
            assert stored.torn.keep == frames[complete].start
            assert stored.torn.keep + stored.torn.dropped == cut
        view_of(path)
        assert path.read_bytes() == data[:cut]


def test_every_flipped_byte_is_damage_except_where_it_looks_like_a_tear_at_the_end(tmp_path: Path) -> None:
    data = framed(b"".join(BODY[:6]), b"".join(BODY[6:]))
    last = scan_frames(data).frames[-1]
    for at in range(len(data)):
        for flip in (0xFF, 0x01, 0x08, 0x80):
            broken = bytearray(data)
            broken[at] ^= flip
            path = compressed(tmp_path, bytes(broken))
            try:
                stored = read_log(path)
            except (SessionCorruption, SessionFormatUnsupported):
                continue
            if stored.torn is None:  # a bit that the decoder does not use: the very same text
                assert stored.next_seq == 17
                assert read_raw(path, "demo.1") == TEXT
            else:
                assert at >= last.start
                assert stored.torn.keep == last.start


def test_damage_in_a_complete_frame_is_never_a_tear(tmp_path: Path) -> None:
    path = compressed(tmp_path, framed(turn_start(0), turn_end(1) + b"garbage\n"))
    with pytest.raises(SessionCorruption, match="complete zstd frame") as caught:
        read_log(path)
    assert caught.value.line == 4
    assert caught.value.offset == scan_frames(path.read_bytes()).frames[2].start

    with pytest.raises(SessionCorruption, match="exactly one line"):
        read_log(compressed(tmp_path, encode_frame(TEXT)))


def test_records_may_straddle_complete_frames_and_frames_may_be_empty(tmp_path: Path) -> None:
    body = b"".join(BODY)
    path = compressed(tmp_path, framed(body[:700], b"", body[700:1500], body[1500:]))

    assert view_of(path).length == 17


def test_a_torn_last_frame_gives_what_is_whole_in_it(tmp_path: Path) -> None:
    texts = [f"tok{n} " for n in range(60_000)]
    body = (
        turn_start(0)
        + step_start(1)
        + b"".join(text_row(2 + at, texts[at : at + 100]) for at in range(0, len(texts), 100))
    )
    data = framed(body)
    path = compressed(tmp_path, data[:-2000])

    stored = read_log(path)

    assert stored.torn is not None
    assert 2 < stored.torn.recovered < 60_002
    assert stored.next_seq == stored.torn.recovered
    view = view_of(path)
    assert entry_stop(view.recovered[-1]) == stored.torn.recovered
    assert types_of(view)[-2:] == ["step/end", "turn/end"]


def test_a_rest_of_nul_bytes_behind_the_last_frame_is_a_tear(tmp_path: Path) -> None:
    path = compressed(tmp_path, framed(b"".join(BODY)) + b"\0" * 700)

    view = view_of(path)

    assert view.length == 17 and view.torn is not None


@pytest.mark.parametrize(
    ("header", "error", "match"),
    [
        (b'{"version":7}', SessionFormatUnsupported, "format 7.*reads format 0.*upgrade"),
        (b'{"version":-1,"type":"session"}', SessionFormatUnsupported, "format -1"),
        (b"[]", SessionCorruption, "header"),
        (b"\0" * 50, SessionCorruption, "header"),
        (HEADER[:-1].replace(b"demo.1", b"demo.1\\"), SessionCorruption, "header"),
        (HEADER[:-1].replace(b',"delegationDepth":0', b""), SessionCorruption, "delegationDepth"),
        (HEADER[:-1].replace(b'"cwd"', b'"sandboxMode":1,"cwd"'), SessionCorruption, "sandboxMode"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(
    tmp_path: Path, header: bytes, error: type[Exception], match: str
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(header + b"\n" + turn_start(0))

    with pytest.raises(error, match=match) as caught:
        read_log(path)

    assert getattr(caught.value, "exit_code", 0) == 1
    if error is SessionFormatUnsupported:
        assert "corrupt" not in str(caught.value)


def test_an_unknown_header_key_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER.replace(b'"cwd"', b'"mood":"fine","cwd"') + turn_start(0) + turn_end(1))

    assert view_of(path).length == 2


def test_a_long_header_is_read_in_steps(tmp_path: Path) -> None:
    cwd = "/" + "x" * 20_000
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER.replace(b"/srv/app", cwd.encode()))

    header, found = read_header(path)

    assert header.cwd == cwd
    assert found.st_size == path.stat().st_size
    assert read_log(path).header == header


def test_a_folder_and_a_pipe_are_no_logs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SessionCorruption, match="not a session log"):
            read_log(path)


@pytest.mark.parametrize("is_zstd", [False, True])
def test_a_log_that_grows_all_the_time_is_read_as_it_was(tmp_path: Path, is_zstd: bool) -> None:
    rows = [line("feedback/record", seq, {"text": "x" * 50}) for seq in range(12_000)]
    first = b"".join(rows[:10_000])
    path = compressed(tmp_path, framed(first)) if is_zstd else plain(tmp_path, first)
    is_over = threading.Event()

    def write() -> None:
        for row in rows[10_000:]:
            with path.open("ab", buffering=0) as file:
                file.write(encode_frame(row) if is_zstd else row)
            if is_over.wait(0.001):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        views = [view_of(path) for _ in range(3)]
    finally:
        is_over.set()
        writer.join()

    lengths = [view.length for view in views]
    assert lengths == sorted(lengths) and lengths[0] >= 10_000
    assert lengths[-1] > 10_000


def test_unknown_types_are_refused_as_unsupported_with_seq_and_path(tmp_path: Path) -> None:
    path = plain(tmp_path, line("acme/note", 0, {}))
    with pytest.raises(SessionFormatUnsupported, match=r"acme/note.*seq 0.*raw log: ") as caught:
        view_of(path)
    assert caught.value.line == 2

    assert view_of(plain(tmp_path, line("acme/note", 0, {}, ignorable=True))).length == 1


def test_raw_text_is_the_committed_text_in_both_forms(tmp_path: Path) -> None:
    body = b"".join(BODY)
    path = plain(tmp_path, body, b'{"type":"assis')
    assert read_raw(path, "demo.1") == TEXT

    data = framed(body, turn_start(17, 2))
    assert read_raw(compressed(tmp_path, data[:-5]), "demo.1") == TEXT

    other = tmp_path / "other.jsonl"
    other.write_bytes(TEXT.replace(b'"version":0', b'"version":9'))
    assert read_raw(other, "demo.1") == other.read_bytes()
    with pytest.raises(SessionCorruption):
        read_raw(other, "another")


@given(st.binary(max_size=300), st.booleans(), st.booleans())
@settings(max_examples=300)
def test_any_bytes_give_a_view_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, with_header: bool, is_zstd: bool
) -> None:
    path = tmp_path_factory.mktemp("noise") / ("log.zstd" if is_zstd else "log")
    path.write_bytes((framed() if is_zstd else HEADER) * with_header + noise)
    with contextlib.suppress(SessionCorruption, SessionFormatUnsupported):
        view_of(path)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (HEADER.replace(b',"delegationDepth":0', b""), "delegationDepth is missing"),
        (HEADER.replace(b'"delegationDepth":0', b'"delegationDepth":null'), "found null"),
        (HEADER.replace(b'"createdAt":', b'"createdAt":-'), "createdAt is a safe integer"),
    ],
)
def test_a_header_that_lacks_something_is_told_once_and_plainly(
    tmp_path: Path, header: bytes, told: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(header)
    with pytest.raises(SessionCorruption) as caught:
        read_log(path)
    assert told in caught.value.message and "None" not in caught.value.message
    assert caught.value.reason.count("header") == 1
