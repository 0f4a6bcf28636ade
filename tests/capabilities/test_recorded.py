"""What rows leave to the record of a replay, and what is asked of them outside of one."""

import pytest

from dsh.capabilities.recorded import RECORDED, is_given
from dsh.capabilities.replay import GivenSources
from dsh.kernel import Context
from dsh.session.message import user_message
from tests.aio import aio


@aio
async def test_outside_of_a_replay_every_row_does_its_own() -> None:
    ctx = Context()

    assert not is_given(ctx, kind="plugin", plugin="x")
    await ctx.dispose()


@pytest.mark.parametrize(
    ("source", "is_covered"),
    [
        ({"kind": "plugin", "plugin": "x"}, True),
        ({"kind": "plugin", "plugin": "x", "form": "notice", "summary": "s"}, True),
        ({"kind": "plugin", "plugin": "y"}, False),
        ({"kind": "x"}, False),
    ],
)
@aio
async def test_a_row_leaves_the_messages_of_its_source_to_the_record(
    source: dict[str, str], is_covered: bool
) -> None:
    ctx, given = Context(), GivenSources()
    ctx.provide(RECORDED, given)

    assert is_given(ctx, kind="plugin", plugin="x")
    assert given.covers(user_message("m", source)) is is_covered
    assert not given.has_tools
    await ctx.dispose()


@aio
async def test_a_row_of_tools_covers_no_message() -> None:
    ctx, given = Context(), GivenSources()
    ctx.provide(RECORDED, given)

    assert is_given(ctx)
    assert given.has_tools
    assert not given.covers(user_message("m", {"kind": "plugin", "plugin": "x"}))
    await ctx.dispose()
