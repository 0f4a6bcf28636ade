"""Row `sandbox-policy`, mounted: the mode and workspace of a call, and what it refuses to promise."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsh.capabilities import scratch
from dsh.capabilities.local_fs.fence import may_change
from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode, SandboxPolicy
from dsh.errors import CompositionError
from dsh.kernel import Context, ScopeTarget, ValidationError
from dsh.plugins import approval, sandbox_policy
from dsh.session.store import SESSION_DISPOSED
from tests.aio import aio
from tests.plugins.prompt import told
from tests.sandboxes import any_sandbox, no_sandbox
from tests.session.build import stored
from tests.tools.kit import StandInAgent

FULL: SandboxMode = "danger-full-access"


async def mounted(**config: Any) -> tuple[Context, sandbox_policy.SandboxPolicies]:
    ctx = Context()
    await ctx.plugin(any_sandbox)
    await ctx.plugin(sandbox_policy, {"mode": FULL, **config})
    service: Any = ctx.get(SANDBOX_POLICY)
    return ctx, service


@pytest.mark.parametrize("config", [{}, {"mode": "read-only"}, {"mode": "workspace-write"}])
@aio
async def test_a_mode_that_cannot_be_kept_stops_the_start_with_the_remedy(config: dict[str, str]) -> None:
    ctx = Context()
    await ctx.plugin(no_sandbox)

    with pytest.raises(CompositionError, match="no sandbox here can keep mode") as failure:
        await ctx.plugin(sandbox_policy, config)

    assert failure.value.exit_code == 3
    assert failure.value.hint == "install one"
    await ctx.dispose()


@pytest.mark.parametrize("mode", SANDBOX_MODES)
@aio
async def test_only_full_access_is_supported_where_no_backend_exists(mode: Any) -> None:
    ctx = Context()
    await ctx.plugin(no_sandbox)
    await ctx.plugin(sandbox_policy, {"mode": FULL})
    service = ctx.get(SANDBOX_POLICY)
    assert service is not None and (mode in service.supported_modes) == (mode == FULL)
    await ctx.dispose()

    ctx, policies = await mounted(mode=mode)
    assert policies.supported_modes == SANDBOX_MODES and policies.default_mode == mode
    await ctx.dispose()


@pytest.mark.parametrize("key", ["extraRoots", "protectedPaths", "hiddenPaths"])
@aio
async def test_paths_that_depend_on_where_one_stands_are_refused(key: str) -> None:
    ctx = Context()
    await ctx.plugin(any_sandbox)

    with pytest.raises(ValidationError, match=f"{key}: 'here/x' is neither absolute nor starts with ~/"):
        await ctx.plugin(sandbox_policy, {key: ["/fine", "~/fine", "here/x"]})
    await ctx.dispose()


@pytest.mark.parametrize("key", ["extraRoots", "protectedPaths", "hiddenPaths", "workspaceRoot"])
@pytest.mark.parametrize("path", ["/a\0b", "/\ud800", " "])
@aio
async def test_what_no_file_can_be_called_is_refused(key: str, path: str) -> None:
    ctx = Context()
    await ctx.plugin(any_sandbox)

    with pytest.raises(ValidationError, match=f"{key}: .*(NUL|no file can have this name|blank)"):
        await ctx.plugin(sandbox_policy, {key: path if key == "workspaceRoot" else [path]})
    await ctx.dispose()


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("kept", ["workspaceRoot", "extraRoots", "temporary folder"])
@aio
async def test_what_a_session_needs_is_not_hidden(mode: str, kept: str, tmp_path: Path) -> None:
    rows: dict[str, dict[str, Any]] = {
        "workspaceRoot": {"workspaceRoot": str(tmp_path)},
        "extraRoots": {"extraRoots": [str(tmp_path)]},
        "temporary folder": {},
    }
    needed = rows[kept]
    hidden = str(scratch.process_folder()) if kept == "temporary folder" else str(tmp_path)
    ctx = Context()
    await ctx.plugin(any_sandbox)

    with pytest.raises(CompositionError, match=f"hiddenPaths: in '{hidden}' lies '.*', where the session"):
        await ctx.plugin(sandbox_policy, {"mode": mode, "hiddenPaths": [hidden], **needed})
    await ctx.plugin(sandbox_policy, {"mode": FULL, "hiddenPaths": [hidden], **needed})
    await ctx.dispose()


@aio
async def test_what_the_row_says_of_paths_and_network_is_in_every_policy(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    ctx, service = await mounted(
        extraRoots=[str(tmp_path / "link")], hiddenPaths=["~/.ssh"], protectedPaths=["/p/../q"], network=False
    )

    policy = service.resolve(StandInAgent(ctx).session)

    assert policy.extra_roots == (os.path.realpath(tmp_path),)
    assert policy.hidden_paths == (os.path.realpath(Path("~/.ssh").expanduser()),)
    assert policy.protected_paths == ("/q",) and not policy.is_network_open
    await ctx.dispose()


@aio
async def test_the_workspace_is_the_sessions_then_the_rows_then_the_process(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    ctx, service = await mounted(workspaceRoot=str(link))
    agent = StandInAgent(ctx, cwd=str(tmp_path))

    assert (service.resolve().mode, service.resolve().workspace_root) == (FULL, str(real))
    assert service.resolve(StandInAgent(ctx).session).workspace_root == str(real)
    assert service.resolve(agent.session).workspace_root == str(tmp_path)
    assert service.resolve(agent.session).session_id == agent.id
    await ctx.dispose()

    ctx, service = await mounted()
    assert service.resolve().workspace_root == os.path.realpath(Path.cwd())
    await ctx.dispose()


@aio
async def test_a_workspace_that_becomes_a_link_later_does_not_move(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    ctx, service = await mounted(extraRoots=[str(tmp_path / "extra")])
    agent = StandInAgent(ctx, cwd=str(workspace))
    before = service.resolve(agent.session)
    workspace.rmdir()
    for name in ("ws", "extra"):
        (tmp_path / name).symlink_to("/etc")

    assert service.resolve(agent.session) == before
    assert not may_change(msgspec.structs.replace(before, mode="workspace-write"), "/etc/x")
    await ctx.dispose()


@aio
async def test_a_session_has_one_temporary_folder_of_its_own_in_every_mode() -> None:
    ctx, service = await mounted()
    one, other = StandInAgent(ctx, "one").session, StandInAgent(ctx, "other").session

    folder = service.resolve(one).temp_folder
    assert folder == str(scratch.session_folder("one")) == service.resolve(one, "read-only").temp_folder
    assert folder != service.resolve(other).temp_folder
    assert Path(str(folder)).stat().st_mode & 0o777 == 0o700
    await ctx.dispose()


@aio
async def test_the_folder_of_a_session_goes_with_it() -> None:
    ctx, service = await mounted()
    one, other = StandInAgent(ctx, "one").session, StandInAgent(ctx, "other").session
    gone, kept = (Path(str(service.resolve(session).temp_folder)) for session in (one, other))

    ctx.emit(SESSION_DISPOSED, one, subject=ScopeTarget(None))

    assert not gone.exists() and kept.is_dir()
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


@pytest.mark.parametrize("mode", SANDBOX_MODES)
def test_a_closed_network_is_told_where_it_is_closed(mode: SandboxMode) -> None:
    told = sandbox_policy.describe(SandboxPolicy(mode, "/w", is_network_open=False))

    assert ("Commands have no network." in told) == (mode != FULL)
    assert "network" not in sandbox_policy.describe(SandboxPolicy(mode, "/w"))
