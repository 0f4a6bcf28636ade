"""What every shell row does alike: `bash-local` and `bash-sandbox` are one line of a patch apart."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.capabilities.subprocess import SpawnError
from dsh.kernel import CancelToken, Context
from tests.aio import aio
from tests.contract.providers import SHELLS, provider

pytestmark = pytest.mark.parametrize("row", SHELLS)


def shell_of(ctx: Context) -> Shell:
    shell = ctx.get(SHELL)
    assert shell is not None
    return shell


@aio
async def test_a_command_has_an_exit_code_and_two_streams(row: ModuleType, tmp_path: Path) -> None:
    async with provider(row) as ctx:
        result = await shell_of(ctx).run(
            ShellRequest(command="pwd; echo err >&2; exit 3", workdir=str(tmp_path))
        )

        assert (result.exit_code, result.signal, result.timed_out, result.aborted) == (3, None, False, False)
        assert result.stdout.text == f"{tmp_path}\n"
        assert result.stderr.text == "err\n"


@aio
async def test_variables_of_the_request_win_and_managed_ones_win_over_them(row: ModuleType) -> None:
    async with provider(row) as ctx:
        request = ShellRequest(
            command="echo $TERM $DSH_SHELL",
            env={"TERM": "vt100", "DSH_SHELL": "mine"},
            dsh_env={"DSH_SHELL": "1"},
        )

        assert (await shell_of(ctx).run(request)).stdout.text == "vt100 1\n"


@aio
async def test_what_came_first_says_how_a_command_was_stopped(row: ModuleType) -> None:
    async with provider(row, {"graceMs": 300}) as ctx:
        shell, token = shell_of(ctx), CancelToken()
        timed_out = await shell.run(ShellRequest(command="sleep 30", timeout_ms=150))
        running = asyncio.ensure_future(shell.run(ShellRequest(command="sleep 30", signal=token)))
        await asyncio.sleep(0.05)
        token.cancel("stop")
        aborted = await running

        assert (timed_out.timed_out, timed_out.aborted, timed_out.timeout_ms) == (True, False, 150)
        assert (aborted.timed_out, aborted.aborted, aborted.signal) == (False, True, "SIGTERM")


@aio
async def test_a_directory_that_is_not_there_is_named(row: ModuleType) -> None:
    async with provider(row) as ctx:
        with pytest.raises(SpawnError, match="/no/such/place"):
            await shell_of(ctx).run(ShellRequest(command="true", workdir="/no/such/place"))
