"""The `subprocess` row: pipes that the starter uses itself, terminals, and children that die with us."""

import asyncio
import os
import signal
import subprocess as processes
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import process_group
from dsh.capabilities.subprocess import Collect, SpawnError, SpawnSpec, TerminalSpec
from tests.aio import aio
from tests.plugins.test_subprocess import TINY, descriptors, service
from tests.process import is_gone, is_running, wait_until

LIMITS = Collect(10_000)
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties children to their parent")


def piped(command: str, **options: Any) -> SpawnSpec:
    return SpawnSpec(
        argv=["bash", "-c", command],
        cwd="/",
        stdin="pipe",
        stdout="pipe",
        stderr=LIMITS,
        grace_ms=300,
        **options,
    )


def terminal(command: str) -> TerminalSpec:
    return TerminalSpec(argv=["bash", "-c", command], cwd="/", grace_ms=300, max_bytes=10_000)


@aio
async def test_a_conversation_over_pipes() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped('while read -r line; do echo "<$line>"; done; echo end >&2'))

        await process.writer.write(b"one\n")
        assert await process.reader.read() == b"<one>\n"
        await process.writer.write("zwei é\n".encode())
        assert await process.reader.read() == "<zwei é>\n".encode()
        process.writer.close()
        assert await process.reader.read() == b""
        assert (await process.done).exit_code == 0
        assert process.stderr.read().text == "end\n"


@aio
async def test_megabytes_go_both_ways_at_the_pace_of_the_slower() -> None:
    sent = os.urandom(1 << 16) * 64
    async with service() as subprocess:
        process = subprocess.spawn(piped("cat"))

        async def write() -> None:
            await process.writer.write(sent)
            process.writer.close()

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0.05)
        assert not writing.done()
        received = b""
        while piece := await process.reader.read():
            received += piece
        await writing
        assert received == sent


@aio
async def test_two_writers_do_not_mix_their_bytes() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped("cat"))
        writing = [asyncio.ensure_future(process.writer.write(bytes([n]) * 300_000)) for n in (65, 66)]
        received = b""
        while len(received) < 600_000:
            received += await process.reader.read()
        await asyncio.gather(*writing)
        process.writer.close()

    assert received in (b"A" * 300_000 + b"B" * 300_000, b"B" * 300_000 + b"A" * 300_000)


@aio
async def test_writing_to_a_child_that_does_not_read_ends_without_an_error() -> None:
    async with service() as subprocess:
        deaf = subprocess.spawn(piped("exec <&-; echo deaf"))
        await deaf.writer.write(b"x" * 300_000)
        assert await deaf.reader.read() == b"deaf\n"
        await deaf.done
        await deaf.writer.write(b"more")


@aio
async def test_what_a_child_wrote_can_be_read_after_its_end() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped("echo last words"))
        await process.done
        await subprocess.spawn(piped("true")).done

        assert await process.reader.read() == b"last words\n"
        assert await process.reader.read() == b""


@aio
async def test_a_pipe_that_others_hold_is_read_to_its_end_when_the_leader_is_gone(tmp_path: Path) -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped("sleep 300 & echo up"))
        async with asyncio.timeout(30):
            assert await process.reader.read() == b"up\n"
            assert await process.reader.read() == b""


@aio
async def test_ending_a_child_frees_who_reads_and_writes() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped("sleep 300"))
        reading = asyncio.ensure_future(process.reader.read())
        writing = asyncio.ensure_future(process.writer.write(b"x" * 1_000_000))
        await asyncio.sleep(0.05)

        process.terminate()
        async with asyncio.timeout(30):
            assert await reading == b""
            await writing


@aio
async def test_unread_pipes_leave_no_descriptor() -> None:
    before = descriptors()
    async with service() as subprocess:
        for _ in range(5):
            await subprocess.spawn(piped("echo unread")).done
    assert descriptors() == before


@aio
async def test_a_stream_in_another_mode_is_named() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(piped("true"))
        with pytest.raises(RuntimeError, match="pipe mode"):
            _ = process.stdout
        await process.done


@aio
async def test_descriptors_are_passed_on_and_no_others() -> None:
    ours, theirs = os.pipe()
    async with service() as subprocess:
        process = subprocess.spawn(
            piped(f"echo told >&{theirs}; ls /proc/self/fd | wc -l", pass_fds=(theirs,))
        )
        assert (await process.reader.read()).strip() == b"5"  # 0 to 2, the passed one, and that of ls
        await process.done
    assert os.read(ours, 100) == b"told\n"
    os.close(ours)
    os.close(theirs)


PARENT = """
import asyncio, os, sys
from dsh.capabilities.subprocess import SUBPROCESS, Collect, SpawnSpec, TerminalSpec
from dsh.kernel import Context
from dsh.plugins import subprocess as row

async def main():
    ctx = Context()
    await ctx.plugin(row)
    service = ctx.get(SUBPROCESS)
    limits = Collect(1000)
    argv = ["bash", "-c", "echo $$ > $0.part; mv $0.part $0; exec sleep 300", sys.argv[1]]
    service.spawn(SpawnSpec(argv=argv, cwd="/", stdout=limits, stderr=limits, grace_ms=100))
    argv = [*argv[:3], sys.argv[2]]
    service.spawn_terminal(TerminalSpec(argv=argv, cwd="/", grace_ms=100, max_bytes=1000))
    await asyncio.sleep(300)

asyncio.run(main())
"""


@ON_LINUX
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    files = [tmp_path / "pipes", tmp_path / "terminal"]
    parent = processes.Popen([sys.executable, "-c", PARENT, *map(str, files)], stderr=processes.PIPE)
    wait_until(lambda: all(file.exists() for file in files), parent)
    children = [int(file.read_text()) for file in files]
    assert all(map(is_running, children))

    parent.kill()
    parent.communicate()

    assert all(map(is_gone, children))


@ON_LINUX
@aio
async def test_a_program_that_the_system_refuses_after_all_is_told(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"\x7fELF no program")
    bad.chmod(0o755)
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    async with service() as subprocess:
        for path, why in ((bad, "Exec format error"), (orphan, "No such file or directory")):
            process = subprocess.spawn(
                SpawnSpec(argv=[str(path)], cwd="/", stdout=TINY, stderr=TINY, grace_ms=100)
            )
            with pytest.raises(SpawnError) as caught:
                await process.done
            assert caught.value.message == f"cannot start {str(path)!r}: cannot start {str(path)!r}: {why}"
            assert await process.wait_for_exit()


@aio
async def test_a_program_that_exits_like_the_launcher_is_a_program_that_ran() -> None:
    async with service() as subprocess:
        process = subprocess.spawn(
            SpawnSpec(
                argv=["bash", "-c", "echo 'landlock-run: no' >&2; exit 125"],
                cwd="/",
                stdout=LIMITS,
                stderr=LIMITS,
                grace_ms=100,
            )
        )
        assert (await process.done).exit_code == 125


@aio
async def test_the_environment_is_the_same_with_and_without_the_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("LC_ALL", "C")
    seen = []
    async with service() as subprocess:
        for dies_with_parent in (True, False):
            process = subprocess.spawn(
                SpawnSpec(
                    argv=["env", "-0"],
                    cwd="/",
                    stdout=LIMITS,
                    stderr=LIMITS,
                    grace_ms=100,
                    env={"ODD": "caf\udce9"},
                    dies_with_parent=dies_with_parent,
                )
            )
            await process.done
            seen.append(sorted(process.stdout.read().raw.split(b"\0")))
    assert seen[0] == seen[1]
    assert b"ODD=caf\xe9" in seen[0]


# -- terminals -----------------------------------------------------------------------------------


@aio
async def test_a_terminal_controls_its_session() -> None:
    async with service() as subprocess:
        child = subprocess.spawn_terminal(
            terminal("test -t 0 -a -t 1 -a -t 2 && echo yes >/dev/tty; stty size; exit 4")
        )
        assert (await child.done).exit_code == 4
        assert child.output.read().text == "yes\n50 200\n"


@aio
async def test_what_is_typed_arrives_and_is_not_echoed() -> None:
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal('read -r line; echo "<$line>"; cat; echo end'))
        child.set_lines(True)
        await child.write(b"hello\n")
        assert await child.changed(0)
        assert child.output.read().text == "<hello>\n"
        await child.write(b"x\n\x04")
        assert (await child.done).exit_code == 0
        assert child.output.read().text == "<hello>\nx\nend\n"
        assert not await child.changed(child.output.read().next_offset)
        await child.write(b"nobody hears it")


@aio
async def test_an_interrupt_can_be_typed() -> None:
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal("echo up; exec sleep 300"))
        child.set_lines(True)
        while not child.output.read().text:
            await child.changed(0)
        await child.write(b"\x03")
        assert (await child.done).signal == "SIGINT"


@aio
async def test_every_job_of_a_terminal_ends_with_it(tmp_path: Path) -> None:
    stubborn = "(trap '' TERM HUP; sleep 301)"
    command = f"set -m; sleep 300 & echo $!; {stubborn} & echo $!; nohup sleep 302 >/dev/null & echo $!; wait"
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal(command))
        while child.output.read().text.count("\n") < 3:
            await child.changed(child.output.read().next_offset)
        pids = [int(word) for word in child.output.read().text.split() if word.isdecimal()]

        child.terminate()
        assert await child.wait_for_exit()

        assert len(pids) >= 3
        assert all(map(is_gone, pids))
    assert not [group for group in process_group.live() if group.is_alive()]


@aio
async def test_terminals_end_with_the_service_and_leave_no_descriptor() -> None:
    before = descriptors()
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal("trap '' TERM HUP; while :; do sleep 0.1; done"))
        with pytest.raises(SpawnError, match="no such program"):
            subprocess.spawn_terminal(
                TerminalSpec(argv=["no-such-program"], cwd="/", grace_ms=1, max_bytes=1)
            )
    assert is_gone(child.pid)
    assert descriptors() == before


@aio
async def test_a_terminal_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "leak-me")
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal("env"))
        await child.done
        assert "leak-me" not in child.output.read().text


@ON_LINUX
@aio
async def test_who_waits_for_input_is_seen() -> None:
    async with service() as subprocess:
        child = subprocess.spawn_terminal(terminal("echo a; read x; echo b; sleep 300"))
        if child.waits_for_input() is None:
            pytest.skip("this system does not show what a process waits for")
        await child.changed(0)
        while not child.waits_for_input():
            await asyncio.sleep(0.01)
        await child.write(b"\n")
        await child.changed(2)
        await asyncio.sleep(0.05)
        assert child.waits_for_input() is False
        os.killpg(child.pid, signal.SIGKILL)
        await child.done
