"""Row `bash-sandbox` over runners of the test's own: whose failure it is, and what the model may believe."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dsh.capabilities.sandbox import SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.capabilities.subprocess import SpawnError
from dsh.kernel import Context
from dsh.plugins import bash_sandbox, sandbox, sandbox_policy, subprocess
from tests.aio import aio

RUN = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
NOTICE = "echo 'landlock-run: partial enforcement (older Landlock ABI)' >&2"


@asynccontextmanager
async def over(tmp_path: Path, script: str) -> AsyncIterator[tuple[Shell, Path]]:
    """The shell over a runner with this script."""
    runner = tmp_path / "runner"
    runner.write_text(f"#!/bin/bash\n{script}\n")
    runner.chmod(0o755)
    ctx = Context()
    options = {"runnerCommand": [str(runner)], "runnerFailureSignatures": ["runner: ", "landlock-run: "]}
    try:
        await ctx.plugin(subprocess)
        await ctx.plugin(sandbox, options)
        await ctx.plugin(sandbox_policy, {"mode": "workspace-write", "workspaceRoot": str(tmp_path)})
        await ctx.plugin(bash_sandbox, {"graceMs": 300})
        shell = ctx.get(SHELL)
        assert shell is not None
        yield shell, runner
    finally:
        await ctx.dispose()


@pytest.mark.parametrize(
    ("command", "code", "denied"),
    [
        ("true", 0, False),
        ("exit 3", 3, False),
        ("echo 'Permission denied' >&2; exit 1", 1, True),
        ("echo 'Read-Only file system' >&2; exit 1", 1, True),
        ("echo 'Permission denied' >&2", 0, False),
        ("echo 'Permission denied'; exit 1", 1, False),
    ],
)
@aio
async def test_a_runner_that_works_gives_the_commands_own_end(
    command: str, code: int, denied: bool, tmp_path: Path
) -> None:
    async with over(tmp_path, RUN) as (shell, _):
        result = await shell.run(ShellRequest(command=command))

    assert result.exit_code == code
    assert result.sandbox is not None and result.sandbox.denied == denied
    assert result.sandbox.mode == "workspace-write" and result.sandbox.enforcement == "full"


@aio
async def test_a_notice_of_partial_walls_before_a_failing_command_is_an_ordinary_exit_code(
    tmp_path: Path,
) -> None:
    async with over(tmp_path, f"{NOTICE}; {RUN}") as (shell, _):
        result = await shell.run(ShellRequest(command="false"))

    assert result.exit_code == 1


@aio
async def test_a_runner_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    async with over(tmp_path, "echo noise >&2; echo 'Runner: no room' >&2; exit 1") as (shell, runner):
        with pytest.raises(SandboxUnavailable) as failed:
            await shell.run(ShellRequest(command="true"))
        background = await shell.start(ShellRequest(command="true"))
        await background.done

    told = f"the sandbox ({runner}) failed, the command was not run: Runner: no room"
    assert failed.value.message == told and "dsh doctor" in failed.value.hint
    assert (background.status, background.failure) == ("failed", told)


@aio
async def test_a_runner_that_has_gone_is_the_sandboxs_failure(tmp_path: Path) -> None:
    async with over(tmp_path, RUN) as (shell, runner):
        await shell.run(ShellRequest(command="true"))
        runner.unlink()
        with pytest.raises(SandboxUnavailable, match="failed, the command was not run"):
            await shell.run(ShellRequest(command="true"))
        with pytest.raises(SandboxUnavailable, match="there is no such program"):
            await shell.run(ShellRequest(command="true"))


@aio
async def test_a_directory_that_has_gone_is_not(tmp_path: Path) -> None:
    async with over(tmp_path, RUN) as (shell, _):
        with pytest.raises(SpawnError, match="is not a directory"):
            await shell.run(ShellRequest(command="true", workdir=str(tmp_path / "gone")))


@aio
async def test_a_timeout_is_neither_a_denial_nor_a_failure(tmp_path: Path) -> None:
    async with over(tmp_path, RUN) as (shell, _):
        command = "echo 'runner: Permission denied' >&2; exec sleep 30"
        result = await shell.run(ShellRequest(command=command, timeout_ms=300))

    assert result.timed_out and result.sandbox is not None and not result.sandbox.denied


@aio
async def test_full_access_asks_no_runner_and_an_approved_mode_wins(tmp_path: Path) -> None:
    async with over(tmp_path, "exit 1") as (shell, _):
        policy = SandboxPolicy("danger-full-access", str(tmp_path))
        result = await shell.run(ShellRequest(command="echo ran", sandbox_policy=policy))
        assert shell.sandbox_mode == "workspace-write"

    assert result.stdout.text == "ran\n"
    assert result.sandbox is not None and result.sandbox.enforcement is None


@aio
async def test_a_background_command_is_judged_when_it_ends(tmp_path: Path) -> None:
    async with over(tmp_path, RUN) as (shell, _):
        denied = await shell.start(ShellRequest(command="echo 'Permission denied' >&2; exit 1"))
        killed = await shell.start(ShellRequest(command="echo 'Permission denied' >&2; exec sleep 30"))
        await denied.done
        while not killed.read_from(0, 0).text:
            await asyncio.sleep(0.01)
        killed.kill()
        await killed.done

    assert denied.status == "completed" and denied.sandbox is not None and denied.sandbox.denied
    assert killed.status == "killed" and killed.sandbox is not None and not killed.sandbox.denied


@aio
async def test_many_commands_leave_no_descriptor(tmp_path: Path) -> None:
    async with over(tmp_path, RUN) as (shell, _):
        await shell.run(ShellRequest(command="true"))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(10):
            await shell.run(ShellRequest(command=f"exit {number}"))
            with pytest.raises(SpawnError):
                await shell.run(ShellRequest(command="true", workdir="/no/such"))
            await (await shell.start(ShellRequest(command="true"))).done
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
