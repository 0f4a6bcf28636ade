"""The row `tool-bash-persistent` in a composition: policy, agents, other calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.sandbox import SANDBOX, SANDBOX_POLICY
from dsh.kernel import CancelToken
from dsh.plugins import (
    sandbox,
    sandbox_policy,
    shell_env,
    subprocess,
    tool_bash_persistent,
)
from dsh.tools.execution import ToolCall, ToolFailure
from tests.agent.kit import Loop, loop
from tests.aio import aio
from tests.process import is_gone


def rows(mode: str, root: Path, **options: Any) -> list[Any]:
    return [
        (subprocess, {}),
        (sandbox, {}),
        (sandbox_policy, {"mode": mode, "workspaceRoot": str(root)}),
        (shell_env, {}),
        (tool_bash_persistent, {"graceMs": 300, **options}),
    ]


async def bash(kit: Loop, agent: Agent | None, command: str, token: CancelToken | None = None) -> str:
    call = ToolCall(
        call_id="c1", name="bash", arguments={"command": command}, agent=agent, signal=token or CancelToken()
    )
    result = await kit.tools.run(call)
    if isinstance(result, ToolFailure) and result.code == "SANDBOX_UNAVAILABLE":
        pytest.skip(f"no sandbox works here: {result.content[0]['text']}")
    return "".join(str(block["text"]) for block in result.content)


@aio
async def test_each_agent_has_a_shell_of_its_own_in_its_directory(tmp_path: Path) -> None:
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        one, two = await kit.agent(cwd=str(tmp_path)), await kit.agent(cwd="/")

        assert await bash(kit, one, "X=one; pwd") == f"{tmp_path}\n"
        assert await bash(kit, two, "echo [$X]; pwd") == "[]\n/\n"
        assert await bash(kit, one, "echo $X $DSH_SESSION_ID") == f"one {one.session.id}\n"
        assert await bash(kit, one, "exit 3") == (
            "exit\n[shell exited: code 3]\n[the shell was ended; the next call starts a fresh one]"
        )
        assert await bash(kit, one, "echo [$X]") == "[]\n"


@aio
async def test_calls_of_one_agent_take_turns(tmp_path: Path) -> None:
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        agent = await kit.agent(cwd=str(tmp_path))
        calls = [bash(kit, agent, f"echo {n}; sleep 0.05; echo {n}") for n in range(4)]

        assert await asyncio.gather(*calls) == [f"{n}\n{n}\n" for n in range(4)]


@pytest.mark.parametrize("command", ["", " ", "a\0b"])
@aio
async def test_what_is_no_command_is_refused(command: str, tmp_path: Path) -> None:
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        assert (await bash(kit, await kit.agent(cwd=str(tmp_path)), command)).startswith(
            "Error: command must not"
        )


@aio
async def test_a_call_without_an_agent_or_a_directory_is_refused(tmp_path: Path) -> None:
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        assert "comes from none" in await bash(kit, None, "true")
        assert "is gone" in await bash(kit, await kit.agent(cwd=str(tmp_path / "no")), "true")


@aio
async def test_a_cancelled_call_is_an_error_and_the_next_one_works(tmp_path: Path) -> None:
    token = CancelToken()
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        agent = await kit.agent(cwd=str(tmp_path))
        running = asyncio.ensure_future(bash(kit, agent, "touch up; sleep 300", token))
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.01)
        token.cancel({"kind": "user"})

        assert await running == "Error: tool call aborted"
        assert await bash(kit, agent, "echo again") == "again\n"


@aio
async def test_a_shell_ends_with_its_agent(tmp_path: Path) -> None:
    async with loop(rows=rows("danger-full-access", tmp_path)) as kit:
        handle = await kit.create(cwd=str(tmp_path))
        pid = int(await bash(kit, handle.agent, "echo $$"))
        await handle.dispose()

        assert is_gone(pid)


@aio
async def test_a_shell_keeps_the_policy_and_is_replaced_when_it_changes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    work = tmp_path / "work"
    outside.mkdir()
    work.mkdir()
    async with loop(rows=rows("workspace-write", work)) as kit:
        agent = await kit.agent(cwd=str(work))

        said = await bash(kit, agent, f"X=1; echo in > in; echo out > {outside}/out; echo $TMPDIR")
        assert (work / "in").read_text() == "in\n"
        assert not (outside / "out").exists()
        policy = kit.ctx.use(SANDBOX_POLICY).resolve(agent.session)
        assert said.endswith(f"{policy.temp_folder}\n")
        assert kit.ctx.use(SANDBOX) is not None

        agent.session.append("sandbox/mode", {"mode": "read-only"})
        said = await bash(kit, agent, "echo [$X]; echo in > again")
        assert said.startswith("[the sandbox policy has changed: this is a fresh shell]\n[]\n")
        assert not (work / "again").exists()
