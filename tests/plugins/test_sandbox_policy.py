"""Row `sandbox-policy`, mounted: the mode and workspace of a call, and what it refuses to promise."""

import os
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode, SandboxPolicy
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import approval, sandbox_policy
from tests.aio import aio
from tests.plugins.prompt import told
from tests.session.build import stored
from tests.tools.kit import StandInAgent

FULL: SandboxMode = "danger-full-access"


async def mounted(**config: Any) -> tuple[Context, sandbox_policy.SandboxPolicies]:
    ctx = Context()
    await ctx.plugin(sandbox_policy, {"mode": FULL, **config})
    service: Any = ctx.get(SANDBOX_POLICY)
    return ctx, service


@pytest.mark.parametrize("config", [{}, {"mode": "read-only"}, {"mode": "workspace-write"}])
@aio
async def test_a_mode_that_cannot_be_kept_stops_the_start_with_the_remedy(config: dict[str, str]) -> None:
    ctx = Context()

    with pytest.raises(CompositionError, match="not built yet") as failure:
        await ctx.plugin(sandbox_policy, config)

    assert failure.value.exit_code == 3
    assert "DSH_PERMISSION_MODE=danger-full-access" in failure.value.hint
    await ctx.dispose()


@aio
async def test_the_workspace_is_the_sessions_then_the_rows_then_the_process(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    ctx, service = await mounted(workspaceRoot=str(link))
    agent = StandInAgent(ctx, cwd=str(tmp_path))

    assert service.resolve() == SandboxPolicy(FULL, str(real))
    assert service.resolve(StandInAgent(ctx).session).workspace_root == str(real)
    assert service.resolve(agent.session) == SandboxPolicy(FULL, str(tmp_path), agent.id)
    await ctx.dispose()

    ctx, service = await mounted()
    assert service.resolve().workspace_root == os.path.realpath(Path.cwd())
    await ctx.dispose()


@aio
async def test_an_approved_mode_wins_over_the_logs_and_the_logs_over_the_rows() -> None:
    ctx, service = await mounted()
    session = StandInAgent(ctx).session
    assert service.override_of(session) is None
    session.append("sandbox/mode", {"mode": "workspace-write"})
    session.append("sandbox/mode", {"mode": "read-only", "source": "delegation"})

    assert service.default_mode == FULL
    assert service.override_of(session) == service.resolve(session).mode == "read-only"
    assert service.resolve(session, "workspace-write").mode == "workspace-write"
    await ctx.dispose()


@pytest.mark.parametrize("data", [{"mode": "unheard-of"}, {}, {"mode": 3}, "x"])
@aio
async def test_a_mode_we_do_not_know_is_the_narrowest(data: Any) -> None:
    ctx, service = await mounted()
    session = StandInAgent(ctx).session
    session.load(stored("sandbox/mode", session.length, data))

    assert service.resolve(session).mode == "read-only"
    await ctx.dispose()


@aio
async def test_the_model_is_told_mode_and_workspace_before_the_approval_policy(tmp_path: Path) -> None:
    ctx, _ = await mounted()
    await ctx.plugin(approval)
    agent = StandInAgent(ctx, cwd=str(tmp_path))

    sections = await told(ctx, agent)

    assert list(sections) == ["sandbox:policy", "approval:policy"]
    assert FULL in sections["sandbox:policy"] and str(tmp_path) in sections["sandbox:policy"]
    assert await told(ctx, None) == {}
    await ctx.dispose()


@pytest.mark.parametrize("mode", SANDBOX_MODES)
def test_every_mode_has_words(mode: Any) -> None:
    assert mode in sandbox_policy.describe(SandboxPolicy(mode, "/w"))
