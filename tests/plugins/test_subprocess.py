"""The `subprocess` row: groups, pipes, environment, ends."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dsh.capabilities import process_group
from dsh.capabilities.subprocess import SUBPROCESS, Collect, SpawnError, SpawnSpec, Subprocess
from dsh.kernel import CancelToken, Context
from dsh.plugins import subprocess as row
from tests.aio import aio


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


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def until(condition: str, path: Path) -> int:
    """Wait for a file that holds a process id."""
    end = time.monotonic() + 5
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
        assert not process_group.is_alive(process.pid)


@aio
async def test_a_grandchild_of_the_group_dies_with_a_cancelled_command(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    token = CancelToken()
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"sleep 60 & echo $! > {pid_file}; wait", token=token))
        grandchild = await until("the grandchild started", pid_file)

        token.cancel("stop")
        await process.done

        assert not alive(grandchild)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 45 & echo up",
        "sleep 45 </dev/null >/dev/null & echo up",
        "setsid sleep 3 & echo up",
        "(while :; do echo tick; sleep 0.1; done) & echo up",
    ],
)
@aio
async def test_a_background_child_does_not_keep_the_command_open(command: str) -> None:
    """SH-01: the outcome is the leader's, whoever still holds the pipes."""
    async with service() as subprocess:
        started = time.monotonic()
        process = subprocess.spawn(spec(command, grace_ms=1000))

        status = await process.done

        assert status.exit_code == 0
        assert "up\n" in process.stdout.read().text
        assert time.monotonic() - started < 3
        assert status.left_running is ("setsid" not in command)


@aio
async def test_what_runs_on_in_the_background_ends_with_the_service(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with service() as subprocess:
        process = subprocess.spawn(spec(f"sleep 60 & echo $! > {pid_file}"))
        await process.done
        child = int(pid_file.read_text())
        assert alive(child)

    assert not alive(child)
    assert process_group.tracked() == frozenset()


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
        assert "no-such-program" in attempt(["no-such-program"])
        assert "/no/such/place" in attempt(["true"], "/no/such/place")
        assert "cancelled" in attempt(["true"], token=token)
        assert "program name" in attempt([])
        assert process_group.tracked() == frozenset()


@aio
async def test_disposing_waits_for_the_death_of_a_running_child() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(spec("trap '' TERM; while :; do sleep 0.05; done"))

    assert not process_group.is_alive(process.pid)


def test_kill_all_ends_every_tracked_group_from_any_thread() -> None:
    import subprocess as sub

    child = sub.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    process_group.track(child.pid)

    process_group.kill_all()

    assert child.wait(5) == -signal.SIGKILL
    process_group.forget(child.pid)
