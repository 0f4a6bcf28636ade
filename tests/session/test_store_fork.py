"""Forking a live session through the store: which refusal comes first, and who hears of the child (§12)."""

from typing import Any

import pytest

from dsh.session.error import InvalidHeader, SessionForkError
from dsh.session.log import Session
from tests.aio import aio
from tests.session.build import header
from tests.session.test_fork import turn
from tests.session.test_store import journal, mounted


def code_of(store: Any, source: Any, boundary: Any = None, child_id: str | None = None) -> str:
    with pytest.raises(SessionForkError) as caught:
        store.fork(source, boundary, child_id)
    assert caught.value.hint
    return caught.value.code


@aio
async def test_the_refusals_come_in_the_order_of_the_specification() -> None:
    ctx, store = await mounted()
    live, _ = store.create("live")
    stranger = Session(header(id="gone"))
    double = Session(header(id="live"))
    live.append("turn/start", {"turn": 1})

    assert code_of(store, stranger, "x", "live") == "SESSION_ALREADY_EXISTS"
    assert code_of(store, stranger, "x", "child") == "SESSION_NOT_FOUND"
    assert code_of(store, "gone", "x") == "SESSION_NOT_FOUND"
    assert code_of(store, double, "x") == "SESSION_NOT_LIVE"
    assert code_of(store, live, "x") == "INVALID_BOUNDARY"
    assert code_of(store, "live", 0) == "OPEN_TURN"
    with pytest.raises(InvalidHeader, match="id"):
        live.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        store.fork(live, None, "")
    assert [one.id for one in store.list()] == ["live"]
    await ctx.dispose()


@aio
async def test_a_child_is_created_like_any_other_and_its_seed_is_told_to_nobody() -> None:
    ctx, store = await mounted()
    parent, _ = store.create("parent", cwd="/srv/app")
    turn(parent)
    told = journal(ctx)

    child, effect = store.fork("parent")
    child.append("feedback/record", {"text": "a"})
    parent.append("feedback/record", {"text": "b"})
    await effect()

    length = child.header.seed_length
    assert length is not None
    assert child.header.cwd == "/srv/app"
    assert told == [
        f"created {child.id}",
        f"event {length + 1}",
        f"event {length}",
        f"disposed {child.id}",
    ]
    await ctx.dispose()
