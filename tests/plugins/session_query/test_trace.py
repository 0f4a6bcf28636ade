"""Where sessions and events come from, and what became of them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.session_query_error import SessionQueryError
from dsh.plugins.session_query_sqlite.trace import Surface
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.aio import aio
from tests.plugins.session_query.kit import corpus, refused, said


@aio
async def test_the_line_of_ancestors_ends_with_the_first_that_is_not_known(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("middle", created=1, parent_session="gone")
        await it.stored("child", created=2, parent_session="middle")
        it.live("grandchild", parent_session="child")
        line = await it.query.trace_lineage("grandchild")
        assert [found.header.id for found in line.ancestors] == ["child", "middle"]
        assert line.unresolved_parent == "gone"
        assert line.session.source == "live"
        with refused("SESSION_NOT_FOUND"):
            await it.query.trace_lineage("gone")


@aio
async def test_a_root_has_no_ancestors_and_nothing_unresolved() -> None:
    async with corpus(None) as it:
        it.live("root")
        line = await it.query.trace_lineage("root")
        assert (line.ancestors, line.unresolved_parent) == ((), None)


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
@aio
async def test_a_session_among_its_own_ancestors_is_refused(parents: dict[str, str]) -> None:
    async with corpus(None) as it:
        for session_id, parent in parents.items():
            it.live(session_id, parent_session=parent)
        with refused("INVALID_LINEAGE"):
            await it.query.trace_lineage("a")


def replaced(session: Session, start: int, end: int, *shadowed: int) -> int:
    event = session.append(
        "user/message",
        user_message("summary"),
        surface={"op": "replace", "start": start, "end": end},
        sources=shadowed,
    )
    return event.seq


@aio
async def test_an_event_tells_what_it_replaced_and_what_replaced_it() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        first, second, third = (said(session, word) for word in ("a", "b", "c"))
        once = replaced(session, first, second, first, second)
        twice = replaced(session, once, third, once, third)

        trace = await it.query.trace_event("one", first)
        assert (trace.replaced_by, trace.replacement_chain) == (once, (once, twice))
        assert trace.record.surface == "shadowed"
        assert trace.derived_event_seqs == (once,)
        assert (trace.replaced_event_seqs, trace.source_event_seqs) == ((), ())

        trace = await it.query.trace_event("one", once)
        assert (trace.replaced_by, trace.replacement_chain) == (twice, (twice,))
        assert trace.replaced_event_seqs == trace.source_event_seqs == (first, second)

        trace = await it.query.trace_event("one", twice)
        assert (trace.replaced_by, trace.replacement_chain) == (None, ())
        assert trace.replaced_event_seqs == (once, third)
        assert trace.record.surface == "current"
        assert session.surface_nodes == (twice,)

        assert (await it.query.trace_event("one", 0)).record.surface == "log-only"
        with refused("EVENT_NOT_FOUND"):
            await it.query.trace_event("one", session.length)


def event(seq: int, surface: Any) -> SessionEvent:
    return SessionEvent("user/message", seq, 0, {}, None, surface)


def test_a_replacement_of_what_is_not_there_is_an_invalid_surface() -> None:
    for start, end in ((5, 0), (0, 5), (1, 0)):
        with pytest.raises(SessionQueryError) as told:
            Surface(
                [
                    event(0, "append"),
                    event(1, "append"),
                    event(2, {"op": "replace", "start": start, "end": end}),
                ]
            )
        assert told.value.reason == "INVALID_SURFACE"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 4)), max_size=40))
def test_the_fold_agrees_with_a_plain_list(steps: list[tuple[bool, int, int]]) -> None:
    nodes: list[int] = []
    events = []
    shadowed_by: dict[int, int] = {}
    for seq, (is_append, at, width) in enumerate(steps):
        if is_append or not nodes:
            events.append(event(seq, "append"))
            nodes.append(seq)
            continue
        start = at % len(nodes)
        end = min(start + width, len(nodes) - 1)
        gone = nodes[start : end + 1]
        events.append(event(seq, {"op": "replace", "start": gone[0], "end": gone[-1]}))
        shadowed_by.update(dict.fromkeys(gone, seq))
        nodes[start : end + 1] = [seq]
    surface = Surface(events)
    assert surface.replaced_by == shadowed_by
    assert [seq for seq in range(len(steps)) if surface.state(seq) == "current"] == sorted(nodes)
