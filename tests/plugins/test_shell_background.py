"""Commands in the background: the shell service's `start`, and `run_in_background` of the tool `bash`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.jobs import JOBS, MODEL, Job, JobError, JobHooks, JobSpec
from dsh.capabilities.sandbox import SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, Shell, ShellDelta, ShellProcess, ShellRequest
from dsh.capabilities.subprocess import SpawnError
from dsh.kernel import CancelToken, Context, Effect
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.plugins.test_tool_bash import bash, machine, text
from tests.process import is_gone


def shell_of(ctx: Context) -> Shell:
    shell = ctx.get(SHELL)
    assert shell is not None
    return shell


async def all_of(process: ShellProcess) -> str:
    await process.done
    return process.read_from(0, 0).text


async def first_output(process: ShellProcess) -> ShellDelta:
    while not (delta := process.read_from(0, 0)).text:
        await asyncio.sleep(0.01)
    return delta


@aio
async def test_a_background_command_is_there_at_once_and_is_read_by_offsets() -> None:
    async with machine() as ctx:
        process = await shell_of(ctx).start(
            ShellRequest(command="echo one; read -t 0.3 <> <(:); echo two; exit 3")
        )
        assert (process.status, process.exit_code, process.signal) == ("running", None, None)

        first = await first_output(process)
        await process.done

        assert (process.status, process.exit_code) == ("completed", 3)
        assert first.text == "one\n"
        assert process.read_from(first.next_stdout, first.next_stderr).text == "two\n"
        assert process.read_from(0, 0).text == "one\ntwo\n"


@aio
async def test_standard_error_comes_under_its_name() -> None:
    async with machine(confining=False) as ctx:
        shell = shell_of(ctx)
        both = await shell.start(ShellRequest(command="printf out; echo err >&2"))
        only = await shell.start(ShellRequest(command="echo err >&2"))

        assert await all_of(both) == "out\n[stderr]\nerr\n"
        assert await all_of(only) == "[stderr]\nerr\n"


@aio
async def test_a_killed_command_is_killed_and_so_is_what_it_started(tmp_path: Path) -> None:
    async with machine(confining=False) as ctx:
        process = await shell_of(ctx).start(ShellRequest(command="sleep 300 & echo $!; wait"))
        child = int((await first_output(process)).text)

        process.kill()
        process.kill()
        await process.done

        assert (process.status, process.exit_code, process.signal) == ("killed", None, "SIGTERM")
        assert is_gone(child)


@aio
async def test_neither_a_timeout_nor_a_signal_ends_a_background_command() -> None:
    token = CancelToken()
    async with machine() as ctx:
        process = await shell_of(ctx).start(
            ShellRequest(command="sleep 0.3; echo done", timeout_ms=1, signal=token)
        )
        token.cancel("stop")
        assert await all_of(process) == "done\n"


@aio
async def test_a_command_that_cannot_start_is_refused_at_once() -> None:
    async with machine() as ctx:
        with pytest.raises(SpawnError, match="not a directory"):
            await shell_of(ctx).start(ShellRequest(command="true", workdir="/no/such"))


@aio
async def test_a_confined_background_command_keeps_its_policy(tmp_path: Path) -> None:
    async with machine() as ctx:
        policy = SandboxPolicy(mode="read-only", workspace_root=str(tmp_path))
        try:
            process = await shell_of(ctx).start(
                ShellRequest(command="echo x > new", workdir=str(tmp_path), sandbox_policy=policy)
            )
        except SandboxUnavailable as refused:
            pytest.skip(f"no sandbox works here: {refused}")
        await process.done

        assert process.status == "completed"
        assert process.sandbox is not None
        assert (process.sandbox.mode, process.sandbox.denied) == ("read-only", True)
        assert not (tmp_path / "new").exists()


@aio
async def test_a_long_output_is_lossy_and_names_its_file() -> None:
    async with machine(shell={"maxOutputBytes": 100}, confining=False) as ctx:
        process = await shell_of(ctx).start(ShellRequest(command="seq 1 1000"))
        await process.done
        delta = process.read_from(0, 0)

        assert delta.lossy
        assert delta.text.endswith("999\n1000\n")
        assert delta.stdout_spill_path is not None
        assert Path(delta.stdout_spill_path).read_text() == "".join(f"{n}\n" for n in range(1, 1001))


@aio
async def test_an_escape_sequence_that_comes_in_two_pieces_is_none_of_the_text() -> None:
    async with machine(confining=False) as ctx:
        process = await shell_of(ctx).start(
            ShellRequest(command=r"printf 'a\033[3'; sleep 0.2; printf '1mb\033[0m\n'")
        )
        first = await first_output(process)
        await process.done

        assert first.text + process.read_from(first.next_stdout, first.next_stderr).text == "ab\n"


# -- the tool ------------------------------------------------------------------------------------


class Held:
    """Holds jobs as simply as can be. Implements what `bash` needs of `dsh.capabilities.jobs.Jobs`."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.specs: list[JobSpec] = []
        self.hooks: list[JobHooks] = []

    async def start(self, spec: JobSpec) -> Job:
        if self.refusal:
            raise JobError(self.refusal)
        self.hooks.append(await spec.run())
        self.specs.append(spec)
        number = len(self.specs)
        return Job(id=f"bash-{number}", kind=spec.kind, label=spec.label, status="running", started_at=0)

    def list(self, caller: str | None) -> Sequence[Job]:
        raise NotImplementedError

    def get(self, job_id: str, caller: str | None) -> Job:
        raise NotImplementedError

    def read(self, job_id: str, caller: str | None, *, reader: str = MODEL) -> str:
        raise NotImplementedError

    def attach(self) -> Effect:
        raise NotImplementedError

    def kill(self, job_id: str, caller: str | None, reason: str | None = None) -> Job:
        raise NotImplementedError

    async def wait(
        self, job_id: str, ms: float, caller: str | None, *, signal: CancelToken | None = None
    ) -> Job:
        raise NotImplementedError

    def running(self) -> Sequence[Job]:
        raise NotImplementedError


def parameters(ctx: Context) -> dict[str, Any]:
    registry = ctx.get(TOOLS)
    assert registry is not None
    (schema,) = registry.schemas()
    found: dict[str, Any] = dict(schema.parameters["properties"])
    return found


def hold(ctx: Context, held: Held) -> Any:
    return ctx.plugin(lambda inner: inner.provide(JOBS, held), name="held-jobs")


@aio
async def test_the_parameter_is_offered_while_something_holds_jobs() -> None:
    async with machine() as ctx:
        assert "run_in_background" not in parameters(ctx)
        row = hold(ctx, Held())
        await row
        await asyncio.sleep(0.01)
        assert "run_in_background" in parameters(ctx)
        await row.dispose()
        await asyncio.sleep(0.01)
        assert "run_in_background" not in parameters(ctx)


@aio
async def test_a_command_becomes_a_job_that_survives_the_call() -> None:
    held = Held()
    async with machine() as ctx:
        await hold(ctx, held)
        await asyncio.sleep(0.01)
        started = await bash(
            ctx, command="echo out; echo err >&2; exit 2", run_in_background=True, timeoutMs=1
        )

        assert text(started) == "started background job bash-1"
        (spec,), (hooks,) = held.specs, held.hooks
        assert (spec.kind, spec.label) == ("bash", "echo out; echo err >&2; exit 2")
        outcome = await hooks.done
        assert (outcome.status, outcome.detail) == ("completed", "exit code: 2")
        assert hooks.open_output is not None
        read = hooks.open_output()
        assert read() == "out\n[stderr]\nerr\n"
        assert read() == ""
        assert hooks.open_output()() == "out\n[stderr]\nerr\n"


@aio
async def test_a_job_that_is_cancelled_is_killed() -> None:
    held = Held()
    async with machine(confining=False) as ctx:
        await hold(ctx, held)
        await asyncio.sleep(0.01)
        await bash(ctx, command="sleep 300", run_in_background=True)
        (hooks,) = held.hooks
        hooks.cancel("enough")
        outcome = await hooks.done

        assert (outcome.status, outcome.detail) == ("killed", "signal: SIGTERM")


@aio
async def test_output_that_was_dropped_is_told_on_every_read() -> None:
    held = Held()
    async with machine(shell={"maxOutputBytes": 100}, confining=False) as ctx:
        await hold(ctx, held)
        await asyncio.sleep(0.01)
        await bash(ctx, command="seq 1 1000", run_in_background=True)
        (hooks,) = held.hooks
        await hooks.done
        assert hooks.open_output is not None
        first = hooks.open_output()()

        assert "1000\n[some output was dropped from memory; full output: /" in first


@pytest.mark.parametrize("is_refused", [False, True])
@aio
async def test_a_job_that_cannot_be_is_an_error_of_the_call(is_refused: bool) -> None:
    async with machine() as ctx:
        if is_refused:
            await hold(ctx, Held("too many jobs: 10"))
            await asyncio.sleep(0.01)
        result = await bash(ctx, command="true", run_in_background=True)

        assert result.is_error
        expected = "too many jobs: 10" if is_refused else "nothing here holds background jobs"
        assert expected in text(result)
