"""A log takes no more memory than a few times its file (case SL-07)."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.persistence.coordinator import Coordinator
from dsh.persistence.fork import fork_stored
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.view import LogView
from dsh.session.message import user_message
from tests.aio import aio
from tests.persistence.golden import HEADER, framed, line, turn_end, turn_start, view_of

TURNS = 3_000


def turn(number: int) -> list[bytes]:
    """The rows of a turn that says little, every one of them small."""
    at = {"turn": number, "step": 1}
    seq = (number - 1) * 6
    delta = {"type": "text-delta", "index": 0, "text": "ok"}
    return [
        turn_start(seq, number),
        line("step/start", seq + 1, at),
        line("user/message", seq + 2, user_message("go on", message_id=f"m-{number}"), surfaceOp="append"),
        line("assistant/chunk", seq + 3, {**at, "chunk": delta}),
        line("step/end", seq + 4, at),
        turn_end(seq + 5, number),
    ]


def small_rows() -> bytes:
    return b"".join(row for number in range(1, TURNS + 1) for row in turn(number))


def one_long_line() -> bytes:
    long = user_message("x" * 4_000_000, message_id="m-1")
    return turn_start(0) + line("user/message", 1, long, surfaceOp="append") + turn_end(2)


@pytest.mark.parametrize("is_zstd", [False, True])
@pytest.mark.parametrize("body", [small_rows, one_long_line])
def test_opening_a_log_takes_less_than_five_times_its_text(
    tmp_path: Path, body: Callable[[], bytes], is_zstd: bool
) -> None:
    text = body()
    path = tmp_path / "log"
    path.write_bytes(framed(text) if is_zstd else HEADER + text)
    tracemalloc.start()
    try:
        session = view_of(path).to_session()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert session.length in (TURNS * 6 + 1, 4)
    assert kept < 3 * len(text)
    assert peak < 5 * len(text)


def test_what_is_held_as_text_reads_as_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(HEADER + small_rows())

    view: LogView = view_of(path)

    assert [event.seq for event in view.events()] == list(range(TURNS * 6))
    assert view.event(8).data == user_message("go on", message_id="m-2")
    assert [message["id"] for message in view.derive_messages()][-1] == f"m-{TURNS}"


@pytest.mark.parametrize("body", [small_rows, one_long_line])
@aio
async def test_resuming_a_torn_log_takes_less_than_six_times_its_file(
    tmp_path: Path, body: Callable[[], bytes]
) -> None:
    text = HEADER + body()
    path = tmp_path / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(text + b'{"type":"tu')
    store = Coordinator(JsonlBackend(tmp_path))
    tracemalloc.start()
    try:
        await store.prepare("demo.1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(text)
    assert path.read_bytes() == text
    await store.close()


@pytest.mark.parametrize("turn", [None, TURNS // 2])
def test_forking_a_log_of_small_rows_takes_less_than_six_times_its_file(
    tmp_path: Path, turn: int | None
) -> None:
    backend = JsonlBackend(tmp_path, encoding="plain")
    path = tmp_path / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True)
    text = HEADER + small_rows()
    path.write_bytes(text)
    tracemalloc.start()
    try:
        child = fork_stored(backend, "demo.1", turn=turn)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 6 * len(text)
    inherited = backend.locate(child).read_bytes().splitlines()[1:-1]
    assert inherited == text.splitlines()[1:][: 6 * (turn or TURNS)]


def test_packing_a_log_of_small_rows_takes_less_than_five_times_its_file(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path)
    path = tmp_path / "--srv-app--" / "demo.1" / "session.jsonl"
    path.parent.mkdir(parents=True)
    text = HEADER + small_rows()
    path.write_bytes(text)
    tracemalloc.start()
    try:
        backend.pack("demo.1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 5 * len(text)
