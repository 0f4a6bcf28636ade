"""The `subprocess` row: groups, pipes, environment, ends."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dsh.capabilities import process_group, scratch
from dsh.capabilities.subprocess import SUBPROCESS, Collect, SpawnError, SpawnSpec, Subprocess
from dsh.kernel import CancelToken, Context
from dsh.plugins import subprocess as row
from tests.aio import aio
from tests.process import is_running

TINY = Collect(10)


@asynccontextmanager
async def service() -> AsyncIterator[Subprocess]:
    ctx = Context()
    await ctx.plugin(row)
    found = ctx.get(SUBPROCESS)
    assert found is not None
    try:
        yield found
    finally:
        await ctx.dispose()


def spec(
    command: str,
    *,
    max_bytes: int = 64_000,
    spill: int | None = None,
    grace_ms: int = 300,
    stdin: bytes | None = None,
    env: Mapping[str, str | None] | None = None,
    token: CancelToken | None = None,
) -> SpawnSpec:
    limits = Collect(max_bytes, spill)
    return SpawnSpec(
        argv=["bash", "-c", command],
        cwd="/",
        stdin="ignore" if stdin is None else stdin,
        stdout=limits,
        stderr=limits,
        grace_ms=grace_ms,
        env=env or {},
        signal=token,
    )


def group_is_alive(pgid: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pgid and state not in "ZX":
            return True
    return False


def tracked() -> set[int]:
    return {group.pgid for group in process_group.live()}


async def until(condition: str, path: Path) -> int:
    """Wait for a file that holds a process id."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        await asyncio.sleep(0.01)
    raise AssertionError(condition)


@aio
async def test_output_and_exit_code_come_back() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("echo out; echo err >&2; exit 3"))

        status = await process.done

        assert (status.exit_code, status.signal, status.left_running) == (3, None, False)
        assert process.stdout.read().text == "out\n"
        assert process.stderr.read().text == "err\n"


@aio
async def test_a_child_that_traps_term_dies_after_the_grace_period() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("trap '' TERM; echo up; while :; do sleep 0.05; done"))
        while not process.stdout.read().text:
            await asyncio.sleep(0.01)

        process.terminate()
        status = await process.done

        assert status.signal == "SIGKILL"
        assert not group_is_alive(process.pid)


@aio
async def test_a_grandchild_of_the_group_dies_with_a_cancelled_command(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    token = CancelToken()
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"sleep 60 & echo $! > {pid_file}; wait", token=token))
        grandchild = await until("the grandchild started", pid_file)

        token.cancel("stop")
        await process.done

        assert not is_running(grandchild)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 45 & echo up",
        "sleep 45 </dev/null >/dev/null & echo up",
        "setsid sh -c 'echo $$ > {pid}; exec sleep 45' & echo up",
        "(while :; do echo tick; sleep 0.1; done) & echo up",
    ],
)
@aio
async def test_a_background_child_does_not_keep_the_command_open(command: str, tmp_path: Path) -> None:
    """SH-01: the outcome is the leader's, whoever still holds the pipes."""
    pid_file = tmp_path / "pid"
    async with service() as subprocess:
        started = time.monotonic()
        process = subprocess.spawn(spec(command.replace("{pid}", str(pid_file)), grace_ms=1000))

        status = await process.done

        assert status.exit_code == 0
        assert "up\n" in process.stdout.read().text
        assert time.monotonic() - started < 30
        is_detached = "setsid" in command
        assert (status.left_running, status.detached) == (not is_detached, is_detached)
        if is_detached:
            os.kill(await until("the child runs", pid_file), signal.SIGKILL)


@aio
async def test_what_runs_on_in_the_background_ends_with_the_service(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"sleep 60 & echo $! > {pid_file}"))
        await process.done
        child = int(pid_file.read_text())
        assert is_running(child)

    assert not is_running(child)
    assert tracked() == set()


@aio
async def test_the_tail_is_exact_and_the_spill_file_complete() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("seq 1 300000", max_bytes=1000, spill=10_000_000))
        await process.done

        captured = process.stdout.read()
        whole = "".join(f"{n}\n" for n in range(1, 300_001))
        assert captured.lossy
        assert captured.text == whole[-1000:]
        assert captured.spill_path is not None
        assert Path(captured.spill_path).read_text() == whole
        assert Path(captured.spill_path).stat().st_mode & 0o777 == 0o600
        assert Path(captured.spill_path).parent.stat().st_mode & 0o777 == 0o700

    assert not Path(captured.spill_path).exists()


@aio
async def test_a_stream_over_the_spill_cap_leaves_no_file() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("seq 1 300000", max_bytes=1000, spill=100_000))
        await process.done

        captured = process.stdout.read()
        assert captured.lossy
        assert captured.spill_path is None


@aio
async def test_a_cut_never_shows_half_a_character() -> None:
    """SL-05: the tail starts on a code point."""
    async with service() as subprocess:
        process = subprocess.spawn(spec("for i in $(seq 3000); do printf '🏷'; done", max_bytes=1001))
        await process.done

        assert "\ufffd" not in process.stdout.read().text


@aio
async def test_incremental_reads_follow_the_stream() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("echo one; sleep 0.2; echo two"))
        while not process.stdout.read().text:
            await asyncio.sleep(0.01)
        first = process.stdout.read()
        await process.done

        second = process.stdout.read_from(first.next_offset)
        assert (first.text, second.text, second.lossy) == ("one\n", "two\n", False)


@aio
async def test_children_see_no_secret_and_no_inherited_dsh_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-01."""
    for name in ("DEEPSEEK_API_KEY", "GH_TOKEN", "DB_PASSWORD", "MY_SECRET", "MY_PASSPHRASE", "LLM_CRED"):
        monkeypatch.setenv(name, "leak-me")
    monkeypatch.setenv("DSH_SESSION_ID", "stale")
    monkeypatch.setenv("KEYBOARD", "us")
    async with service() as subprocess:
        subprocess.hide("LLM_CRED")
        process = subprocess.spawn(
            spec("env", env={"EXPLICIT_TOKEN": "given", "DSH_SHELL": "1", "HOME": None, "KEPT": "yes"})
        )
        await process.done

        seen = dict(line.split("=", 1) for line in process.stdout.read().text.splitlines())
        assert "leak-me" not in seen.values()
        assert "DSH_SESSION_ID" not in seen
        assert "HOME" not in seen
        assert (seen["EXPLICIT_TOKEN"], seen["DSH_SHELL"], seen["KEYBOARD"]) == ("given", "1", "us")
        assert "PATH" in seen


@aio
async def test_stdin_is_the_null_device_or_the_given_bytes() -> None:
    async with service() as subprocess:
        silent = subprocess.spawn(spec("cat; echo after"))
        fed = subprocess.spawn(spec("wc -c", stdin=b"x" * 300_000))
        deaf = subprocess.spawn(spec("exec <&-; echo deaf", stdin=b"x" * 300_000))

        assert (await silent.done).exit_code == 0
        await fed.done
        assert (await deaf.done).exit_code == 0
        assert silent.stdout.read().text == "after\n"
        assert fed.stdout.read().text.strip() == "300000"
        assert deaf.stdout.read().text == "deaf\n"


@aio
async def test_streams_are_real_pipes_that_can_be_reopened() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("echo hi | tee /dev/stderr > /dev/stdout"))

        assert (await process.done).exit_code == 0
        assert process.stderr.read().text == "hi\n"


@aio
async def test_no_terminal_is_reachable() -> None:
    """SH-03: a prompt that opens the controlling terminal fails at once."""
    async with service() as subprocess:
        process = subprocess.spawn(spec("read -r x < /dev/tty; echo $?"))
        await process.done

        assert process.stdout.read().text.strip() != "0"


@aio
async def test_what_cannot_start_is_refused_with_a_reason() -> None:
    async with service() as subprocess:
        limits = Collect(10)

        def attempt(argv: list[str], cwd: str = "/", token: CancelToken | None = None) -> str:
            with pytest.raises(SpawnError) as caught:
                subprocess.spawn(
                    SpawnSpec(argv=argv, cwd=cwd, stdout=limits, stderr=limits, grace_ms=100, signal=token)
                )
            return caught.value.message

        token = CancelToken()
        token.cancel("no")
        assert attempt(["no-such-program"]) == (
            "cannot start 'no-such-program': there is no such program on PATH"
        )
        assert attempt(["/no/such"]) == "cannot start '/no/such': no such file or directory"
        assert attempt(["/etc/passwd"]) == "cannot start '/etc/passwd': permission denied"
        assert attempt(["true"], "/no/such") == "cannot start 'true': '/no/such' is not a directory"
        assert attempt(["true"], token=token) == "cannot start 'true': it was cancelled before"
        assert attempt(["true", "a\0b"]).endswith("an argument or a variable holds a NUL character")
        assert attempt(["true", "\ud800"]).endswith("an argument or a variable is not valid Unicode")
        assert "an argument of 200000 bytes is too long" in attempt(["true", "x" * 200_000])
        assert "program name" in attempt([])
        assert tracked() == set()


@aio
async def test_disposing_waits_for_the_death_of_a_running_child() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("trap '' TERM; while :; do sleep 0.05; done"))

    assert not group_is_alive(process.pid)


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@aio
async def test_no_descriptor_is_left_by_children_that_ran_or_could_not_start() -> None:
    async with service() as subprocess:
        before = descriptors()
        for _ in range(100):
            await subprocess.spawn(spec("true", stdin=b"x")).done
            with pytest.raises(SpawnError):
                subprocess.spawn(SpawnSpec(argv=["no-such"], cwd="/", stdout=TINY, stderr=TINY, grace_ms=100))

        assert descriptors() == before
        assert tracked() == set()


@aio
async def test_groups_that_ended_by_themselves_are_forgotten(tmp_path: Path) -> None:
    async with service() as subprocess:
        until_told = f"while [ ! -e {tmp_path}/gate ]; do sleep 0.01; done"
        left = subprocess.spawn(spec(f"({until_told}) >/dev/null 2>&1 &"))
        assert (await left.done).left_running
        assert left.pid in tracked()
        (tmp_path / "gate").touch()
        while group_is_alive(left.pid):
            await asyncio.sleep(0.02)

        await subprocess.spawn(spec("true")).done

        assert left.pid not in tracked()


@aio
async def test_a_child_that_closes_its_pipes_is_judged_by_its_exit() -> None:
    async with service() as subprocess:
        status = await subprocess.spawn(spec("exec >&- 2>&-; sleep 0.2; exit 5")).done

        assert (status.exit_code, status.left_running, status.detached) == (5, False, False)


@aio
async def test_a_signal_without_a_name_of_its_own_is_named() -> None:
    async with service() as subprocess:
        status = await subprocess.spawn(spec("kill -40 $$")).done

        assert status.signal == "SIGRTMIN+6"


@aio
async def test_a_stopped_child_hears_of_the_end_at_once() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("echo up; kill -STOP $$", grace_ms=20_000))
        while not process.stdout.read().text:
            await asyncio.sleep(0.01)

        process.terminate()

        async with asyncio.timeout(15):
            assert (await process.done).signal == "SIGTERM"


@aio
async def test_terminating_while_the_pipes_drain_ends_the_background_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"(while :; do echo x; sleep 0.05; done) & echo $! > {pid_file}"))
        child = await until("the child runs", pid_file)

        process.terminate()
        process.terminate()
        status = await process.done

        assert (status.exit_code, status.left_running) == (0, False)
        assert not is_running(child)


@aio
async def test_who_waits_for_a_command_as_its_owner_takes_it_along(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"echo $$ > {pid_file}; sleep 60", grace_ms=20_000))
        owner = asyncio.ensure_future(process.finish())
        await asyncio.sleep(0)
        leader = await until("the command runs", pid_file)

        owner.cancel()
        await asyncio.wait((owner,))

        assert (await process.done).signal == "SIGTERM"
        assert not is_running(leader)


def test_a_loop_that_goes_down_takes_its_children_along(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    async def run() -> int:
        ctx = Context()
        await ctx.plugin(row)
        process = ctx.use(SUBPROCESS).spawn(spec(f"trap '' TERM; echo $$ > {pid_file}; sleep 60; sleep 60"))
        waiting = asyncio.ensure_future(process.finish())
        await asyncio.sleep(0)
        await until("the command runs", pid_file)
        assert not waiting.done()
        return process.pid

    pgid = asyncio.run(run())

    end = time.monotonic() + 30
    while group_is_alive(pgid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not group_is_alive(pgid)


@aio
async def test_an_exit_is_seen_also_without_process_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    async with service() as subprocess:
        process = subprocess.spawn(spec("echo x; exit 4"))

        assert (await process.done).exit_code == 4
        assert process.stdout.read().text == "x\n"


@aio
async def test_a_service_that_is_ending_starts_nothing() -> None:
    async with service() as subprocess:
        running = subprocess.spawn(spec("trap '' TERM; echo up; while :; do sleep 0.05; done"))
        while not running.stdout.read().text:
            await asyncio.sleep(0.01)

    with pytest.raises(SpawnError, match="the run is ending"):
        subprocess.spawn(spec("true"))


@aio
async def test_which_variables_commands_see_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-01."""
    values = (
        "APP_TOKEN",
        "APP_KEY",
        "PLAIN_ID",
        "LLM_KEY",
        "GITHUB_PAT",
        "MYSQL_PWD",
        "NPM_AUTH",
        "SSH_AUTH_SOCK",
    )
    for name in values:
        monkeypatch.setenv(name, "value")
    monkeypatch.setenv("DSH_X", "value")
    ctx = Context()
    await ctx.plugin(row, {"keepEnv": ["APP_*", "LLM_KEY", "DSH_*"], "hideEnv": ["PLAIN_*", "APP_K?Y"]})
    subprocess = ctx.get(SUBPROCESS)
    assert subprocess is not None
    subprocess.hide("LLM_KEY")
    process = subprocess.spawn(spec("env"))
    await process.done
    seen = {line.partition("=")[0] for line in process.stdout.read().text.splitlines()}
    await ctx.dispose()

    assert seen & {*values, "DSH_X"} == {"APP_TOKEN", "SSH_AUTH_SOCK"}


@aio
async def test_spilled_output_lies_where_confined_commands_may_read() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("seq 1 1000", max_bytes=10, spill=10_000))
        await process.done
        path = process.stdout.read().spill_path
        assert path is not None
        assert Path(path).is_relative_to(scratch.shared_folder("subprocess"))
