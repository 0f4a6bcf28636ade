"""The tool `bash` over a shell that lives on: real bash on a real terminal."""

import asyncio
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities import process_group
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.plugins import subprocess
from dsh.plugins.tool_bash_persistent import render
from dsh.plugins.tool_bash_persistent.call import Ran
from dsh.plugins.tool_bash_persistent.protocol import end_in, line_for, quoted, start_of
from dsh.plugins.tool_bash_persistent.shell import ARGV, PersistentShell
from tests.aio import aio
from tests.process import is_gone, is_running

SEES_WAITING = platform.machine() in ("x86_64", "aarch64") and Path("/proc/self/syscall").exists()


class Kit:
    """A shell and the context it lives in."""

    def __init__(self, ctx: Context, shell: PersistentShell) -> None:
        self.ctx, self.shell = ctx, shell

    async def run(self, command: str, timeout_s: float = 60, token: CancelToken | None = None) -> Ran:
        return await self.shell.run(command, timeout_s, token or CancelToken())


@asynccontextmanager
async def shell(tmp_path: Path, max_bytes: int = 16_000) -> AsyncIterator[Kit]:
    ctx = Context()
    await ctx.plugin(subprocess)
    service = ctx.get(SUBPROCESS)
    assert service is not None
    try:
        opened = await PersistentShell.open(
            service, ARGV, str(tmp_path), {"TERM": "dumb"}, grace_ms=300, max_bytes=max_bytes
        )
        yield Kit(ctx, opened)
    finally:
        await ctx.dispose()


def end(ran: Ran) -> tuple[str, str, int | None]:
    return ran.outcome, ran.text, ran.exit_code


@aio
async def test_directory_variables_functions_and_status_last(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with shell(tmp_path) as kit:
        await kit.run("cd sub; X='a b'; f() { echo \"<$1>\"; }; alias hi='echo alias'")

        assert end(await kit.run("pwd; echo $X; f 1")) == ("completed", f"{tmp_path}/sub\na b\n<1>\n", 0)
        assert end(await kit.run("hi")) == ("completed", "alias\n", 0)
        assert end(await kit.run("(exit 7)")) == ("completed", "", 7)
        assert end(await kit.run("echo $?")) == ("completed", "7\n", 0)


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("printf no-newline", "no-newline", 0),
        ("printf '\\n\\nx\\n\\n'", "\n\nx\n\n", 0),
        ("true", "", 0),
        ("false", "", 1),
        ("echo one\necho two", "one\ntwo\n", 0),
        ("cat <<'EOF'\nit's $X \\ ! `x`\nEOF", "it's $X \\ ! `x`\n", 0),
        ("echo 'é 🏷 中'", "é 🏷 中\n", 0),
        ("echo '!!' \"$(echo '!x')\"", "!! !x\n", 0),
        ("# only a comment", "", 0),
        ("echo a; # comment at the end", "a\n", 0),
        ("echo x &>/dev/null; exec 5>&1", "", 0),
        ("printf '\\033[31mred\\033[0m\\n'", "red\n", 0),
        ("test -t 0 && test -t 1 && echo terminal", "terminal\n", 0),
        ("echo up > /dev/tty", "up\n", 0),
        ("set -u; echo $undefined_name; echo not reached", "bash: undefined_name: unbound variable\n", 1),
    ],
)
@aio
async def test_the_output_and_the_status_come_back(
    command: str, text: str, code: int, tmp_path: Path
) -> None:
    async with shell(tmp_path) as kit:
        ran = await kit.run(command)

        assert end(ran) == ("completed", text, code)
        assert end(await kit.run("echo later")) == ("completed", "later\n", 0)


@aio
async def test_a_command_of_bad_syntax_leaves_the_shell(tmp_path: Path) -> None:
    async with shell(tmp_path) as kit:
        await kit.run("X=1")
        for command in ("if", "echo 'unclosed", "echo )", "for"):
            ran = await kit.run(command)
            assert ran.outcome == "completed"
            assert ran.exit_code != 0
            assert "syntax error" in ran.text or "unexpected" in ran.text

        assert end(await kit.run("echo $X")) == ("completed", "1\n", 0)


@aio
async def test_traced_verbose_and_redirected_shells_still_find_their_end(tmp_path: Path) -> None:
    async with shell(tmp_path) as kit:
        assert "+ echo hi" in (await kit.run("set -x; echo hi")).text
        assert "hi\n" in (await kit.run("echo hi")).text
        await kit.run("set +x; PS1='mine> '; PROMPT_COMMAND='echo prompt'")
        assert end(await kit.run("echo hi")) == ("completed", "hi\n", 0)
        await kit.run(f"exec 3>&1 >{tmp_path}/out 2>&1")
        assert end(await kit.run("echo away")) == ("completed", "", 0)
        assert (tmp_path / "out").read_text().count("away\n") == 1


@aio
async def test_a_long_command_reaches_the_shell_whole(tmp_path: Path) -> None:
    words = "x" * 60_000
    async with shell(tmp_path) as kit:
        assert end(await kit.run(f"echo {words} | wc -c")) == ("completed", "60001\n", 0)


@aio
async def test_the_beginning_of_a_long_output_is_kept(tmp_path: Path) -> None:
    async with shell(tmp_path, max_bytes=100) as kit:
        ran = await kit.run("seq 1 2000")

        whole = "".join(f"{n}\n" for n in range(1, 2001))
        assert (ran.text, ran.clipped_bytes, ran.exit_code) == (whole[:100], len(whole) - 100, 0)
        cut = await kit.run("printf 'a'; for i in $(seq 50); do printf 'é'; done")
        assert cut.text == "a" + "é" * 49


@aio
async def test_output_of_many_megabytes_keeps_the_shell(tmp_path: Path) -> None:
    async with shell(tmp_path, max_bytes=1000) as kit:
        ran = await kit.run("head -c 5000000 /dev/zero | tr '\\0' x; echo; exit_code=3; (exit $exit_code)")

        assert (ran.outcome, ran.exit_code) == ("completed", 3)
        assert set(ran.text) == {"x"}
        assert end(await kit.run("echo $exit_code")) == ("completed", "3\n", 0)


@pytest.mark.parametrize(
    ("command", "code", "signal"), [("echo bye; exit 4", 4, None), ("echo bye; kill -9 $$", None, "SIGKILL")]
)
@aio
async def test_a_shell_that_ends_is_told_with_what_was_printed(
    command: str, code: int | None, signal: str | None, tmp_path: Path
) -> None:
    async with shell(tmp_path) as kit:
        ran = await kit.run(command)

        assert (ran.outcome, ran.text) == ("exited", "bye\n") or ran.text.startswith("bye\nexit")
        assert (ran.exit_code, ran.signal, ran.is_over) == (code, signal, True)


@aio
async def test_a_late_command_takes_the_shell_and_its_children_along(tmp_path: Path) -> None:
    async with shell(tmp_path) as kit:
        ran = await kit.run("sleep 300 & echo $!; set -m; sleep 301 & echo $!; sleep 302", timeout_s=1)

        assert (ran.outcome, ran.is_over) == ("timed-out", True)
        await kit.shell.wait_closed()
        assert all(is_gone(int(pid)) for pid in ran.text.split() if pid.isdecimal())
        assert not [group for group in process_group.live() if group.is_alive()]


@aio
async def test_a_cancelled_command_takes_the_shell_along(tmp_path: Path) -> None:
    token = CancelToken()
    async with shell(tmp_path) as kit:
        running = asyncio.ensure_future(kit.run(f"echo $$ > {tmp_path}/pid; sleep 300", token=token))
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            await asyncio.sleep(0.01)
        token.cancel("stop")

        with pytest.raises(Cancelled):
            await running
        await kit.shell.wait_closed()
        assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(not SEES_WAITING, reason="this system does not show what a process waits for")
@pytest.mark.parametrize(
    "command",
    [
        "read -r answer",
        "cat",
        "printf 'name? '; read name; echo got $name",
        "bash -c 'read x'",
        "trap '' INT; cat",
    ],
)
@aio
async def test_a_command_that_waits_for_input_is_interrupted_and_the_shell_stays(
    command: str, tmp_path: Path
) -> None:
    async with shell(tmp_path) as kit:
        await kit.run("X=kept")
        ran = await kit.run(command)

        assert (ran.outcome, ran.is_over) == ("waiting", False)
        assert end(await kit.run("echo $X")) == ("completed", "kept\n", 0)


@aio
async def test_a_silent_command_that_only_takes_its_time_is_left_alone(tmp_path: Path) -> None:
    async with shell(tmp_path) as kit:
        assert end(await kit.run("sleep 0.9; echo done")) == ("completed", "done\n", 0)


@aio
async def test_what_a_shell_started_ends_with_the_service(tmp_path: Path) -> None:
    async with shell(tmp_path) as kit:
        ran = await kit.run("sleep 300 & disown; echo $!; set -m; sleep 301 >/dev/null & echo $!")
        pids = [int(word) for word in ran.text.split() if word.isdecimal()]
        assert len(pids) >= 2

    assert all(is_gone(pid) for pid in pids)


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_command_is_one_line_of_ascii(text: str) -> None:
    line = line_for(text, "a" * 32, 0)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert b"!" not in quoted(text).encode()


@aio
async def test_every_text_arrives_as_it_is(tmp_path: Path) -> None:
    text = "".join(chr(n) for n in [*range(1, 0x180), 0x2028, 0x1F3F7])
    async with shell(tmp_path) as kit:
        await kit.run(f"printf %s {quoted(text)} > out")

    assert (tmp_path / "out").read_bytes() == text.encode()


def test_the_line_itself_is_no_marker() -> None:
    nonce = "0123456789abcdef" * 2
    line = line_for("echo x", nonce, 3)
    assert start_of(b"\n" + line, nonce) is None
    assert end_in(b"\n" + line, nonce, "f" * 32) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"text": "hi\n"}, "hi\n"),
        ({}, "(no output)"),
        ({"exitCode": 2}, "(no output)\n[exit code: 2]"),
        (
            {"text": "a", "clippedBytes": 9},
            "a\n[output clipped: 9 more bytes; send it to a file to see the rest]",
        ),
        (
            {"outcome": "timed-out", "isOver": True, "text": "a\n"},
            "a\n[timed out after 5ms]\n[the shell was ended; the next call starts a fresh one]",
        ),
        (
            {"outcome": "exited", "exitCode": 4, "isOver": True},
            "(no output)\n[shell exited: code 4]\n[the shell was ended; the next call starts a fresh one]",
        ),
        (
            {"outcome": "exited", "signal": "SIGKILL", "isOver": True},
            "(no output)\n[shell killed by signal: SIGKILL]\n"
            "[the shell was ended; the next call starts a fresh one]",
        ),
        ({"isFresh": True, "text": "a\n"}, "[the sandbox policy has changed: this is a fresh shell]\na\n"),
        ({"isLost": True, "text": "a\n"}, "[the beginning of the output was lost]\na\n"),
    ],
)
def test_each_end_has_its_line(changes: dict[str, Any], text: str) -> None:
    value = {
        "outcome": "completed",
        "text": "",
        "clippedBytes": 0,
        "isLost": False,
        "isFresh": False,
        "isOver": False,
        "exitCode": 0,
        "signal": None,
        "timeoutMs": 5,
        **changes,
    }
    assert render({}, value) == text
