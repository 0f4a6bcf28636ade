"""`projections.json`: a cache beside a log that is whole or not there, and never somebody else's."""

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.projections import (
    FILE,
    MAX_BYTES,
    MAX_ROW_BYTES,
    read_rows,
    sidecar_path,
    title_of,
    write_rows,
)
from dsh.session.header import SessionHeader
from dsh.session.projection.fold import Row
from dsh.session.value import encode, freeze

HEADER = SessionHeader(id="s", created_at=5, cwd="/ws")
ROWS = {"title": Row(1, 3, "hi"), "x": Row(0, -1, freeze({"a": [1, "\ud83d"]}, "x"))}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = sidecar_path(tmp_path / "session.jsonl.zstd")

    assert write_rows(path, HEADER, ROWS)

    assert path == tmp_path / FILE
    assert read_rows(path, HEADER) == ROWS
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [FILE]
    assert title_of(read_rows(path, HEADER)) == "hi"


@pytest.mark.parametrize(
    "header",
    [
        SessionHeader(id="s", created_at=6, cwd="/ws"),
        SessionHeader(id="s", created_at=5, cwd="/other"),
        SessionHeader(id="s", created_at=5),
    ],
)
def test_rows_of_an_earlier_session_in_the_same_place_are_not_this_one_s(
    tmp_path: Path, header: SessionHeader
) -> None:
    write_rows(tmp_path / FILE, HEADER, ROWS)

    assert read_rows(tmp_path / FILE, header) == {}


def test_a_state_that_has_grown_too_large_is_left_out_and_costs_the_others_nothing(tmp_path: Path) -> None:
    path = tmp_path / FILE

    assert write_rows(path, HEADER, {**ROWS, "grows": Row(0, 3, "x" * MAX_ROW_BYTES)})

    assert read_rows(path, HEADER) == ROWS
    assert path.stat().st_size < 1000


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    assert not write_rows(tmp_path / "gone" / FILE, HEADER, ROWS)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / FILE
    write_rows(path, HEADER, ROWS)
    before = path.read_bytes()
    path.unlink()
    path.mkdir()  # nothing can be put in its place

    with pytest.raises(OSError) as refused:
        write_rows(path, HEADER, ROWS)

    assert refused.value.errno == errno.EISDIR
    assert [one.name for one in tmp_path.iterdir()] == [FILE]
    assert read_rows(path, HEADER) == {}
    assert before


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_no_rows(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(data)
        assert read_rows(path, HEADER) == {}


def stored(**changes: Any) -> bytes:
    whole = {
        "version": 1,
        "identity": {"createdAt": 5, "cwd": "/ws"},
        "rows": {"title": {"ver": 1, "seq": 3, "val": "hi"}},
    }
    return encode({**whole, **changes})


@pytest.mark.parametrize(
    "data",
    [
        stored(version=2), stored(version=True), stored(identity=None), stored(rows=7),
        stored(rows={"title": 1}), b"[]", b"{" * 100_000, b'{"version":1}', stored() + b"x",
    ],
)  # fmt: skip
def test_what_does_not_fit_counts_as_no_rows(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)

    assert read_rows(tmp_path / FILE, HEADER) == {}


def test_a_cut_at_every_byte_gives_no_rows(tmp_path: Path) -> None:
    path = tmp_path / FILE
    whole = stored()
    path.write_bytes(whole)
    assert read_rows(path, HEADER) == {"title": Row(1, 3, "hi")}
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert read_rows(path, HEADER) == {}


def test_one_bad_row_hides_no_other(tmp_path: Path) -> None:
    rows = {"bad": {"ver": 1}, "title": {"ver": 1, "seq": 3, "val": "hi"}}
    (tmp_path / FILE).write_bytes(stored(rows=rows))

    assert read_rows(tmp_path / FILE, HEADER) == {"title": Row(1, 3, "hi")}


def test_a_file_that_is_too_large_or_none_is_no_cache(tmp_path: Path) -> None:
    import os

    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")

    for name in ("large", "pipe", "absent", "."):
        assert read_rows(tmp_path / name, HEADER) == {}


@pytest.mark.parametrize("row", [None, Row(2, 3, "hi"), Row(1, 3, 7), Row(1, 3, None)])
def test_a_title_is_a_text_of_the_unit_s_version(row: Row | None) -> None:
    assert title_of({} if row is None else {"title": row}) is None
