"""Rows agent, agent-loop and agent-default-model: what they provide and which configs they refuse."""

from typing import Any

import pytest

from dsh.agent.contract import AGENT_CONFIG_START_FAILED, ConfigStartFailed
from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.agent.registry import AGENTS
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins import agent_default_model
from tests.agent.kit import loop, settled, until
from tests.aio import aio


@aio
async def test_the_default_model_is_the_configured_one() -> None:
    ctx = Context()
    row = {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
    await settled(ctx.plugin(agent_default_model, row))
    assert ctx.use(DEFAULT_MODEL).current_selection() == ModelSelection(
        "deepseek-official", "deepseek-v4-flash"
    )
    await ctx.dispose()


@pytest.mark.parametrize(
    "row", [{}, {"provider": "p"}, {"provider": "", "model": "m"}, {"provider": "p", "model": "m", "x": 1}]
)
@aio
async def test_provider_and_model_are_both_required(row: dict[str, Any]) -> None:
    ctx = Context()
    with pytest.raises(ValidationError):
        await settled(ctx.plugin(agent_default_model, row))
    await ctx.dispose()


@pytest.mark.parametrize("cap", [0, -1, 1.5, "10"])
@aio
async def test_the_number_of_parallel_calls_is_a_positive_integer(cap: Any) -> None:
    with pytest.raises(ValidationError, match="maxParallelToolCalls"):
        async with loop(config={"maxParallelToolCalls": cap}):
            raise AssertionError("never")


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "a", "sessionId": "s", "resumeSessionId": "t"}],
        [{"id": "a", "sessionId": "s"}, {"id": "b", "sessionId": "s"}],
        [{"id": "a", "sessionId": "s"}, {"id": "b", "resumeSessionId": "s"}],
    ],
)
@aio
async def test_exact_ids_are_unique_and_of_one_kind(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(CompositionError, match=r"exclude|already"):
        async with loop(config={"agents": rows}):
            raise AssertionError("never")


@aio
async def test_an_exact_id_is_created_where_nothing_is_stored() -> None:
    async with loop(
        config={"agents": [{"id": "a", "sessionId": "exact", "provider": "p", "model": "m"}]}
    ) as it:
        await until(lambda: it.ctx.use(AGENTS).list())
        assert [agent.session.id for agent in it.ctx.use(AGENTS).list()] == ["exact"]


@aio
async def test_a_start_that_fails_is_told_and_harms_nobody() -> None:
    told: list[ConfigStartFailed] = []

    def listen(ctx: Context) -> None:
        ctx.on(AGENT_CONFIG_START_FAILED, told.append)

    rows = [
        {"id": "bad", "sessionId": "same", "cwd": "relative"},
        {"id": "good", "provider": "p", "model": "m"},
    ]
    async with loop(config={"agents": rows}, first=listen) as it:
        await until(lambda: told and it.ctx.use(AGENTS).list())
        assert [failed.session_id for failed in told] == ["same"]
        assert [a.options.model for a in it.ctx.use(AGENTS).list()] == ["m"]
