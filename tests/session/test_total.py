"""Reading is total: whatever is offered gives a session or a named error, and is not changed by it."""

import copy
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from dsh.session.chunk_row import is_row, pack, row_to_run
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import SessionError
from dsh.session.event import SessionEvent
from dsh.session.header import header_from_line
from dsh.session.inbox_fold import consumed_work, fold_inbox, unentered
from dsh.session.restore import restore
from dsh.session.value import decode_strict, encode
from tests.session.test_golden import LINES

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.sampled_from(
        [1.0, 1.5, -0.0, 2**60, "append", "", "m-1", "\ud800", "tool-call", "turn/start", "aborted"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "turn", "id", "message", "content", "source"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
BODY: list[Any] = [decode_strict(line) for line in LINES[1:]]


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, item in inner for path in paths(item, (*here, key)))]


@st.composite
def damaged(draw: st.DrawFn) -> list[Any]:
    """The golden log with a few places changed, taken out or added, or without some lines."""
    body = copy.deepcopy(BODY)
    for _ in range(draw(st.integers(1, 3))):
        line = draw(st.sampled_from(body))
        how = draw(st.sampled_from(["set", "drop", "add", "line"]))
        inside = paths(line)[1:]
        if how == "line" or not inside:
            body = [other for other in body if other is not line] or body
            continue
        *path, last = draw(st.sampled_from(inside))
        place = line
        for key in path:
            place = place[key]
        if how == "drop":
            place.pop(last)
        elif how == "add" and isinstance(place, dict):
            place[draw(st.sampled_from(["ignorable", "extra", "surfaceOp", "trigger", "provenance"]))] = draw(
                junk
            )
        else:
            place[last] = draw(junk)
    return body


@settings(max_examples=400)
@given(damaged())
def test_a_damaged_log_opens_or_is_refused_by_name(body: list[Any]) -> None:
    before = copy.deepcopy(body)
    try:
        entries: list[Any] = [
            row_to_run(row) if is_row(row) else row for row in body if isinstance(row, dict)
        ]
        restored = restore(header_from_line(LINES[0]), entries)
    except SessionError:
        assert body == before
        return

    event("opens")
    view = restored.view
    assert body == before
    assert (view.open_turn, len(list(view.events()))) == (None, view.length)
    view.derive_messages()
    consumed_work(view)
    assert view.request_header is None or "config" in view.request_header
    try:
        fold_inbox(view)
        unentered(view)
    except SessionError as error:
        assert "event" in error.message
    rows = [decode_strict(encode(row)) for row in pack(view.entries())]
    again = restore(view.header, [row_to_run(row) if is_row(row) else row for row in rows])
    assert list(again.view.events()) == [_plain(e) for e in view.events()]
    assert again.closers == ()


def _plain(stored: SessionEvent) -> SessionEvent:
    """The event without the mark of repair."""
    fields = (
        stored.type,
        stored.seq,
        stored.time,
        stored.data,
        stored.sources,
        stored.surface,
        stored.ignorable,
    )
    return SessionEvent(*fields)


@given(st.binary(max_size=60) | junk.map(encode))
def test_any_bytes_are_a_header_or_a_named_error(line: bytes) -> None:
    try:
        header_from_line(line)
    except SessionError as error:
        assert error.message


@given(st.dictionaries(st.sampled_from(["type", "seq0", "time0", "data"]), junk))
def test_any_object_is_a_row_or_a_named_error(row: dict[str, Any]) -> None:
    try:
        assert isinstance(row_to_run({**row, "type": "text-chunks"}), ChunkRun)
    except SessionError as error:
        assert error.message
