"""The registry of projections: who is told what, what a unit that fails costs, and what a delta costs."""

import logging
import sys
from typing import Any

import pytest

from dsh.capabilities.projections import PROJECTIONS, ProjectionChanged, Projections
from dsh.kernel import Context
from dsh.plugins import session as session_row
from dsh.plugins import session_projection as row
from dsh.session.chunk import TextDelta
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.log import Session
from dsh.session.projection.error import ProjectionConflict, UnusableRows
from dsh.session.projection.fold import Row
from dsh.session.projection.stats import STATS
from dsh.session.projection.title import TITLE
from dsh.session.projection.unit import Unit
from dsh.session.store import SESSIONS
from tests.agent.kit import settled
from tests.aio import aio
from tests.session.build import Ticks, header

MODES = frozenset({"plan/mode"})


def counting(key: str = "count", version: int = 0, **changes: Any) -> Unit[int]:
    """Counts `plan/mode` events."""
    fields: dict[str, Any] = {
        "key": key, "version": version, "state_type": int, "init": int, "apply": _one_more, "types": MODES,
        "view": int,
    }  # fmt: skip
    return Unit(**{**fields, **changes})


def nested(depth: int) -> Any:
    """Deeper than a log may be."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _one_more(count: int, _: Entry) -> int:
    return count + 1


def mode(log: Session, active: bool = True) -> None:
    log.append("plan/mode", {"active": active})


async def mounted() -> tuple[Context, Projections, Session]:
    ctx = Context()
    await ctx.plugin(session_row)
    await settled(ctx.plugin(row, {}))
    log, _ = ctx.use(SESSIONS).create("one")
    return ctx, ctx.use(PROJECTIONS), log


@aio
async def test_a_value_is_what_the_log_says_when_it_is_asked_for() -> None:
    ctx, projections, log = await mounted()
    mode(log)
    projections.register(counting())
    assert projections.state_of(log, "count") == 1
    mode(log)

    assert projections.state_of(log, "count") == 2
    assert projections.snapshot(log).values == {"todos": None, "count": 2}
    assert projections.snapshot(log).as_of_seq == 1
    assert projections.checkpoint(log)["count"] == Row(0, 1, 2)
    assert projections.state_of(log, "nobody") is None
    await ctx.dispose()


@aio
async def test_an_empty_session_is_as_of_before_its_first_event() -> None:
    ctx, projections, log = await mounted()

    assert projections.snapshot(log).as_of_seq == -1
    assert projections.checkpoint(log) == {"todos": Row(2, -1, None)}
    await ctx.dispose()


@aio
async def test_watchers_are_told_each_change_once_with_its_event() -> None:
    ctx, projections, log = await mounted()
    mode(log)
    projections.register(counting())
    projections.register(counting("hidden", view=None))
    told: list[tuple[str, Any, int]] = []
    watching = projections.watch(lambda change: told.append((change.key, change.value, change.seq)))

    mode(log)
    log.append("turn/start", {"turn": 1})
    mode(log)
    log.append("todo/write", {"todos": []})
    log.append("todo/write", {"todos": [{"content": "a", "status": "pending"}]})
    watching()
    mode(log)

    assert told == [
        ("count", 2, 1),
        ("count", 3, 3),
        ("todos", (), 4),
        ("todos", ({"content": "a", "status": "pending"},), 5),
    ]
    await ctx.dispose()


@aio
async def test_a_watcher_that_fails_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ctx, projections, log = await mounted()
    projections.register(counting())
    told: list[ProjectionChanged] = []

    def fail(_: ProjectionChanged) -> None:
        raise SystemExit(1)

    projections.watch(fail)
    projections.watch(told.append)
    mode(log)

    assert [change.value for change in told] == [1]
    assert "a watcher of projections failed" in caplog.text
    await ctx.dispose()


@aio
async def test_a_watcher_may_let_units_and_watchers_go(caplog: pytest.LogCaptureFixture) -> None:
    ctx, projections, log = await mounted()
    projections.register(counting("first"))
    second = projections.register(counting("second"))
    projections.register(counting("third"))
    told: list[str] = []

    def leave(change: ProjectionChanged) -> None:
        if change.key == "first":
            second()
            watching()
            projections.snapshot(log)

    watching = projections.watch(leave)
    projections.watch(lambda change: told.append(change.key))
    mode(log)
    mode(log)

    assert told == ["first", "third"] * 2
    assert caplog.records == []
    await ctx.dispose()


def failing(count: int, entry: Entry) -> int:
    raise RuntimeError(f"broken at {count}")


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(
    "broken",
    [
        counting("broken", apply=failing),
        counting("broken", view=lambda _: object()),
        counting("broken", init=lambda: 1 / 0),
        counting("broken", apply=lambda _, __: object(), view=lambda _: 0),
        counting("broken", apply=lambda _, __: nested(600), view=lambda _: 0),
        counting("broken", apply=lambda _, entry: entry.data.update({}) or 1),
        counting("broken", apply=lambda _, __: sys.exit(3)),
    ],
    ids=["apply", "view", "init", "state", "depth", "payload", "exit"],
)
@aio
async def test_a_unit_that_fails_is_stale_with_one_warning_and_the_others_go_on(
    broken: Unit[Any], watched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ctx, projections, log = await mounted()
    registered = projections.register(broken)
    projections.register(counting())
    if watched:
        projections.watch(lambda _: None)

    for _ in range(3):
        mode(log)
        projections.snapshot(log)
        projections.checkpoint(log)

    assert projections.snapshot(log).values["count"] == 3
    assert "broken" not in projections.checkpoint(log)
    assert projections.state_of(log, "broken") is None
    warned = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "projection broken of session one is stale" in warned[0].getMessage()

    registered()
    projections.register(counting("broken"))
    assert projections.state_of(log, "broken") == 3
    assert projections.checkpoint(log)["broken"] == Row(0, 2, 3)
    await ctx.dispose()


@aio
async def test_a_unit_fails_for_the_session_that_broke_it_only() -> None:
    def picky(count: int, entry: Entry) -> int:
        assert not isinstance(entry, ChunkRun)
        if not entry.data["active"]:
            raise ValueError("inactive")
        return count + 1

    ctx, projections, log = await mounted()
    other, _ = ctx.use(SESSIONS).create("two")
    projections.register(counting(apply=picky))
    mode(log, active=False)
    mode(other)

    assert projections.state_of(log, "count") is None
    assert projections.state_of(other, "count") == 1
    await ctx.dispose()


@aio
async def test_one_key_is_shared_by_one_fold_and_goes_with_the_last_who_wants_it() -> None:
    ctx, projections, log = await mounted()
    mode(log)
    first = projections.register(counting())
    second = projections.register(counting(view=lambda n: {"n": n}))
    assert projections.snapshot(log).values["count"] == 1  # the first one's view

    first()
    assert projections.snapshot(log).values["count"] == {"n": 1}
    second()
    assert "count" not in projections.snapshot(log).values
    assert projections.state_of(log, "count") is None
    await ctx.dispose()


@pytest.mark.parametrize(
    ("other", "said"),
    [(counting(version=1), "with version 0"), (counting(apply=failing), "by another unit")],
)
@aio
async def test_two_different_units_cannot_have_one_key(other: Unit[Any], said: str) -> None:
    ctx, projections, log = await mounted()
    projections.register(counting())

    with pytest.raises(ProjectionConflict, match=said):
        projections.register(other)

    mode(log)
    assert projections.state_of(log, "count") == 1
    await ctx.dispose()


@aio
async def test_a_unit_goes_with_the_plugin_that_registered_it() -> None:
    ctx, projections, log = await mounted()
    inject = [PROJECTIONS]

    def plugin(inner: Context) -> None:
        inner.use(PROJECTIONS).register(counting())

    fiber = ctx.plugin(plugin, inject=inject)
    await settled(fiber)
    assert "count" in projections.snapshot(log).values

    await fiber.dispose()
    assert "count" not in projections.snapshot(log).values
    await ctx.dispose()


@aio
async def test_deltas_are_folded_when_something_happens_and_not_one_by_one() -> None:
    calls: list[int] = []

    def spy(count: int, entry: Entry) -> int:
        size = len(entry) if isinstance(entry, ChunkRun) else 1
        calls.append(size)
        return count + size

    ctx, projections, log = await mounted()
    projections.register(counting(apply=spy, types=frozenset({"step/end"}), reads_runs=True))
    told: list[int] = []
    projections.watch(lambda change: told.append(change.value))
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    for number in range(500):
        log.append_chunk(1, 1, TextDelta(0, f"{number}"))
    assert calls == []

    log.append("step/end", {"turn": 1, "step": 1})
    assert (calls, told) == ([500, 1], [501])
    await ctx.dispose()


@aio
async def test_asking_in_the_middle_of_a_run_counts_no_delta_twice() -> None:
    def size(count: int, entry: Entry) -> int:
        return count + (len(entry) if isinstance(entry, ChunkRun) else 0)

    ctx, projections, log = await mounted()
    projections.register(counting(apply=size, reads_runs=True))
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    for number in range(1, 20):
        log.append_chunk(1, 1, TextDelta(0, "x"))
        assert projections.state_of(log, "count") == number
    await ctx.dispose()


@aio
async def test_a_continued_session_begins_with_its_stored_rows() -> None:
    folded: list[int] = []

    def spy(count: int, entry: Entry) -> int:
        assert not isinstance(entry, ChunkRun)
        folded.append(entry.seq)
        return count + 1

    ctx, projections, log = await mounted()
    for _ in range(4):
        mode(log)
    projections.register(counting(apply=spy))
    projections.register(counting("other"))
    projections.adopt(log, {"count": Row(0, 2, 30), "other": Row(9, 2, 30), "todos": Row(2, 2, "bad")})

    assert projections.state_of(log, "count") == 31
    assert folded == [3]
    assert projections.state_of(log, "other") == 4
    projections.adopt(log, {"count": Row(0, 2, 70)})  # it has begun already
    assert projections.state_of(log, "count") == 31
    await ctx.dispose()


@aio
async def test_a_row_that_goes_further_than_the_log_is_not_adopted() -> None:
    ctx, projections, log = await mounted()
    projections.register(counting())
    mode(log)
    projections.adopt(log, {"count": Row(0, 1, 70)})

    assert projections.state_of(log, "count") == 1
    await ctx.dispose()


@aio
async def test_stored_logs_are_folded_with_the_registered_units(caplog: pytest.LogCaptureFixture) -> None:
    ctx, projections, log = await mounted()
    projections.register(counting())
    projections.register(counting("broken", apply=failing))
    for _ in range(3):
        mode(log)
    rows = {"count": Row(0, 1, 2), "todos": Row(2, 1, ()), "broken": Row(0, 1, 2)}

    assert projections.restore_floor(rows) == 1
    restored = projections.restore(rows, log.entries(1), 1)
    assert restored.snapshot.values == {"count": 3, "todos": ()}
    assert "projection broken of a stored session failed" in caplog.text
    assert projections.view_checkpoint(rows).values == {"count": 2, "todos": (), "broken": 2}
    with pytest.raises(UnusableRows):
        projections.restore({}, log.entries(1), 1)
    await ctx.dispose()


@aio
async def test_a_log_that_is_gone_is_not_kept_alive() -> None:
    import gc
    import weakref

    ctx, projections, _ = await mounted()
    loose = Session(header(id="loose"), clock=Ticks())
    projections.snapshot(loose)
    left = weakref.ref(loose)
    del loose
    gc.collect()
    assert left() is None
    await ctx.dispose()


@aio
async def test_units_of_the_log_itself_fold_a_live_session() -> None:
    ctx, projections, log = await mounted()
    projections.register(STATS)
    projections.register(TITLE)
    log.append("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})

    assert projections.state_of(log, "title") == "t"
    assert projections.snapshot(log).values["sessionStats"]["turns"] == 0
    await ctx.dispose()
