"""The tool `bash` through the real rows: shell, environment, markers, ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import scratch
from dsh.capabilities.sandbox import SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, ShellRequest
from dsh.kernel import CancelToken, Context, ValidationError
from dsh.plugins import (
    bash_local,
    bash_sandbox,
    sandbox,
    sandbox_policy,
    shell_env,
    subprocess,
    tool_bash,
    tools,
)
from dsh.plugins.tool_bash.result import BACKGROUND_NOTE, UNKILLABLE_NOTE
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from dsh.tools.registry import TOOLS, ToolRegistry
from tests.aio import aio

FULL_ACCESS = {"mode": "danger-full-access"}


@asynccontextmanager
async def machine(*, confining: bool = True, shell: dict[str, Any] | None = None) -> AsyncIterator[Context]:
    """A context with the rows that `bash` needs; a short grace period."""
    ctx = Context()
    options = {"graceMs": 300, **(shell or {})}
    await ctx.plugin(subprocess)
    await ctx.plugin(sandbox)
    await ctx.plugin(sandbox_policy, FULL_ACCESS)
    await ctx.plugin(bash_sandbox if confining else bash_local, options)
    await ctx.plugin(shell_env)
    await ctx.plugin(tools)
    await ctx.plugin(tool_bash)
    try:
        yield ctx
    finally:
        await ctx.dispose()


async def bash(ctx: Context, token: CancelToken | None = None, **arguments: Any) -> ToolResult:
    registry = ctx.get(TOOLS)
    assert isinstance(registry, ToolRegistry)
    call = ToolCall(call_id="c1", name="bash", arguments=arguments, signal=token or CancelToken())
    return await registry.run(call)


def code_of(result: ToolResult) -> str | None:
    return result.code if isinstance(result, ToolFailure) else None


def text(result: ToolResult) -> str:
    return "".join(str(block["text"]) for block in result.content)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo hello", "hello\n"),
        ("true", "(no output)"),
        ("false", "(no output)\n[exit code: 1]"),
        ("exit 300", "(no output)\n[exit code: 44]"),
        ("echo out; echo err >&2; exit 3", "out\n[stderr]\nerr\n[exit code: 3]"),
        ("printf no-newline", "no-newline"),
        ("printf a; printf b >&2", "a\n[stderr]\nb"),
        ("kill -9 $$", "(no output)\n[killed by signal: SIGKILL]"),
        ("cat; echo after", "after\n"),
        ('read -r x; echo "[$x]"', "[]\n"),
        ("echo $TERM $NO_COLOR $PAGER $GIT_PAGER $DSH_SHELL", "dumb 1 cat cat 1\n"),
        ("cd /; cd /tmp", "(no output)"),
    ],
)
@aio
async def test_the_model_sees_output_and_how_the_command_ended(command: str, shown: str) -> None:
    async with machine() as ctx:
        result = await bash(ctx, command=command, description="try it")

        assert text(result) == shown
        assert not result.is_error


@aio
async def test_a_shell_is_fresh_for_each_call(tmp_path: Path) -> None:
    async with machine() as ctx:
        await bash(ctx, command="cd /; X=1; export X", description="d", workdir=str(tmp_path))
        result = await bash(ctx, command="pwd; echo [$X]", description="d", workdir=str(tmp_path))

        assert text(result) == f"{tmp_path.resolve()}\n[]\n"


@aio
async def test_a_timeout_is_marked_also_when_the_command_traps_it_and_exits_0() -> None:
    async with machine() as ctx:
        plain = await bash(ctx, command="sleep 30", description="d", timeoutMs=200)
        trapping = await bash(
            ctx,
            command="trap 'echo after; exit 0' TERM; while :; do sleep 0.02; done",
            description="d",
            timeoutMs=200,
        )

        assert text(plain) == "(no output)\n[timed out after 200ms]\n[killed by signal: SIGTERM]"
        assert text(trapping).startswith("after\n")
        assert text(trapping).endswith("\n[timed out after 200ms]")


@aio
async def test_a_timeout_is_clamped_to_the_cap() -> None:
    async with machine(shell={"maxTimeoutMs": 150}) as ctx:
        result = await bash(ctx, command="sleep 30", description="d", timeoutMs=60_000)

        assert "[timed out after 150ms]" in text(result)


@aio
async def test_a_cancelled_call_is_an_error_and_its_children_are_gone(tmp_path: Path) -> None:
    token = CancelToken()
    async with machine() as ctx:
        running = asyncio.ensure_future(
            bash(ctx, token, command=f"echo $$ > {tmp_path}/pid; sleep 60", description="d")
        )
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        token.cancel({"kind": "user"})
        result = await running

        assert result.is_error
        assert (text(result), code_of(result)) == ("Error: tool call aborted", "ABORTED")


@aio
async def test_long_output_is_its_tail_and_a_file_with_all_of_it() -> None:
    async with machine(shell={"maxOutputBytes": 100}) as ctx:
        shown = text(await bash(ctx, command="seq 1 5000", description="d"))

        tail, _, path = shown.rpartition("\n[output truncated; full output: ")
        assert tail.endswith("4999\n5000")
        assert len(tail) <= 100
        assert Path(path.rstrip("]")).read_text() == "".join(f"{n}\n" for n in range(1, 5001))


@aio
async def test_markers_stay_last_behind_truncated_output() -> None:
    async with machine(shell={"maxOutputBytes": 100, "maxSpillBytes": 200}) as ctx:
        shown = text(await bash(ctx, command="seq 1 5000; exit 7", description="d"))

        assert shown.endswith("[output truncated; full output: (unavailable)]\n[exit code: 7]")


@aio
async def test_two_long_streams_fit_into_one_result_each_with_its_file() -> None:
    async with machine() as ctx:
        shown = text(await bash(ctx, command="seq 1 20000; seq 1 20000 >&2; exit 3", description="d"))

        assert 47_000 < len(shown) < 50_000
        assert shown.count("20000\n[output truncated; full output: /") == 2
        assert shown.endswith("]\n[exit code: 3]")


@aio
async def test_a_long_stream_without_a_file_is_shown_as_far_as_it_was_kept() -> None:
    async with machine(shell={"maxOutputBytes": 60_000, "maxSpillBytes": 60_001}) as ctx:
        shown = text(await bash(ctx, command="seq 1 20000", description="d"))

        assert len(shown) > 60_000
        assert shown.endswith("[output truncated; full output: (unavailable)]")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (r"printf 'caf\xe9\n'", "caf\ufffd\n"),
        (r"printf '\033[31mred\033[0m\r50%%\r100%%\n'", "100%\n"),
        (r"printf 'a\0b'", "a␀b"),
        (r"printf '\033]0;title\007text\n'", "text\n"),
        ("ls --color=always -d /", "/\n"),
    ],
)
@aio
async def test_bytes_that_are_not_text_become_text(command: str, shown: str) -> None:
    """SH-05."""
    async with machine() as ctx:
        assert text(await bash(ctx, command=command)) == shown


@aio
async def test_binary_output_is_named_and_its_file_holds_the_raw_bytes() -> None:
    async with machine(shell={"maxOutputBytes": 1000}) as ctx:
        short = text(await bash(ctx, command="head -c 900 /dev/zero"))
        long = text(await bash(ctx, command="head -c 3000 /dev/zero"))

        assert short.startswith("[binary output, 900 bytes; it starts with]\n␀")
        assert "the last 1000 bytes of it" in long
        path = long.rpartition("full output: ")[2].rstrip("]")
        assert Path(path).read_bytes() == b"\0" * 3000


@aio
async def test_commands_of_a_session_share_its_temporary_folder() -> None:
    async with machine(confining=False) as ctx:
        shell = ctx.get(SHELL)
        assert shell is not None
        folder = scratch.session_folder("s1")
        told = {"DSH_SESSION_ID": "s1"}

        result = await shell.run(
            ShellRequest(command="echo $TMPDIR $TMP $TEMP; touch $TMPDIR/x", dsh_env=told)
        )

        assert result.stdout.text == f"{folder} {folder} {folder}\n"
        assert (folder / "x").exists()
        scratch.drop_session("s1")


@aio
async def test_a_command_reads_what_it_is_given_and_keeps_as_much_as_is_asked() -> None:
    async with machine() as ctx:
        shell = ctx.get(SHELL)
        assert shell is not None

        fed = await shell.run(ShellRequest(command="wc -c", stdin=b"x" * 200_000))
        short = await shell.run(ShellRequest(command="seq 1 9", max_output_bytes=4))

        assert fed.stdout.text.strip() == "200000"
        assert (short.stdout.text, short.stdout.truncated) == ("8\n9\n", True)


@aio
async def test_processes_left_in_the_background_are_told() -> None:
    """SH-01: the call returns at once and says that something runs on."""
    async with machine() as ctx:
        started = time.monotonic()
        shown = text(await bash(ctx, command="sleep 45 & echo up", description="d"))

        assert shown == f"up\n{BACKGROUND_NOTE}"
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        ({"command": " "}, "command must not be blank", None),
        ({"command": "echo a\0b"}, "command must not hold a NUL character", None),
        ({"command": "true", "description": " "}, "description must not be blank", None),
        ({"command": "true", "timeoutMs": 0}, "timeoutMs must be a positive number, got 0", None),
        ({"command": "true", "workdir": "/no/such"}, "workdir '/no/such' is not a directory", None),
        ({"command": "true", "sandbox_permissions": "danger-full-access"}, "give both or neither", None),
        ({"command": "true", "run_in_background": True}, "run_in_background is not available", None),
        ({"command": 3}, 'invalid arguments: "command" must be a string', "INVALID_ARGS"),
        ({}, 'invalid arguments: missing required property "command"', "INVALID_ARGS"),
    ],
)
@aio
async def test_what_cannot_run_is_refused_before_anything_runs(
    arguments: dict[str, Any], message: str, code: str | None
) -> None:
    async with machine() as ctx:
        result = await bash(ctx, **{"description": "d", **arguments})

        assert result.is_error
        assert message in text(result)
        assert code_of(result) == code


@aio
async def test_a_description_may_be_left_out_or_null() -> None:
    async with machine() as ctx:
        assert text(await bash(ctx, command="echo x")) == "x\n"
        assert text(await bash(ctx, command="echo x", description=None, timeoutMs=None)) == "x\n"


@aio
async def test_a_wider_mode_than_full_access_does_not_exist() -> None:
    async with machine() as ctx:
        result = await bash(
            ctx,
            command="true",
            sandbox_permissions="danger-full-access",
            justification="because",
        )

        assert "is not wider than 'danger-full-access'" in text(result)


@aio
async def test_the_plain_shell_offers_no_escalation() -> None:
    async with machine(confining=False) as ctx:
        registry = ctx.get(TOOLS)
        assert registry is not None
        (schema,) = registry.schemas()

        assert "sandbox_permissions" not in schema.parameters["properties"]
        result = await bash(ctx, command="true", sandbox_permissions="x", justification="y")
        assert "not offered here" in text(result)


@aio
async def test_the_sandboxed_shell_never_runs_less_confined_than_asked(tmp_path: Path) -> None:
    async with machine() as ctx:
        shell = ctx.get(SHELL)
        assert shell is not None
        policy = SandboxPolicy(mode="read-only", workspace_root=str(tmp_path))

        try:
            result = await shell.run(
                ShellRequest(command=f"touch {tmp_path}/x", workdir=str(tmp_path), sandbox_policy=policy)
            )
        except SandboxUnavailable as refused:  # no backend works on this machine
            assert refused.code == "SANDBOX_UNAVAILABLE"
        else:
            assert result.exit_code != 0
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("options", [{"timeoutMs": 0}, {"graceMs": -1}, {"maxOutputBytes": 0}, {"tmeout": 1}])
@aio
async def test_a_bad_option_fails_the_row(options: dict[str, Any]) -> None:
    ctx = Context()
    await ctx.plugin(subprocess)
    with pytest.raises(ValidationError):
        await ctx.plugin(bash_local, options)
    await ctx.dispose()


@aio
async def test_a_command_that_the_system_does_not_let_go_of_is_told() -> None:
    async with machine() as ctx:
        shell = ctx.get(SHELL)
        assert shell is not None
        stream = {"text": "", "truncated": False}
        value = {
            "kind": "foreground",
            "exitCode": None,
            "signal": None,
            "timedOut": True,
            "timeoutMs": 10,
            "stdout": stream,
            "stderr": stream,
            "leftRunning": True,
            "detached": False,
        }

        shown = tool_bash.Bash(ctx, shell).render({}, value)

        assert shown == f"(no output)\n{UNKILLABLE_NOTE}\n[timed out after 10ms]"


@aio
async def test_a_read_only_workspace_in_a_hidden_place_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("here\n")
    async with machine() as ctx:
        shell = ctx.get(SHELL)
        assert shell is not None
        policy = SandboxPolicy(mode="read-only", workspace_root=str(tmp_path))
        try:
            result = await shell.run(
                ShellRequest(command="cat x; echo no > x", workdir=str(tmp_path), sandbox_policy=policy)
            )
        except SandboxUnavailable as refused:
            pytest.skip(f"no sandbox works here: {refused}")

        assert result.stdout.text == "here\n"
        assert (tmp_path / "x").read_text() == "here\n"
