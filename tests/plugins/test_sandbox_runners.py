"""Each runner of the table in `spec/capabilities-core.md` §11, played by a script: how a command ends under
it, whose failure it is, and which runner is taken where one is missing.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import launcher
from dsh.capabilities.sandbox import BackendReport, SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins import bash_sandbox, sandbox, sandbox_policy, subprocess
from dsh.plugins.sandbox.backend import Prober
from dsh.plugins.sandbox.landlock import Landlock
from tests.aio import aio

RUN = 'while [ "$1" != -- ]; do shift; done; shift; "$@"; code=$?'
BWRAP = f"""
all=" $* "; while [ "$1" != --json-status-fd ]; do shift; done; fd=$2
case $all in *"$PROBE"*) echo '{{"exit-code": 0}}' >&$fd; exit 0 ;; esac
TOLD
{RUN}; echo "{{\\"exit-code\\": $code}}" >&$fd; exit $code
"""
"""Plays bubblewrap: believed when it is tried, then says `TOLD`, runs the command and tells of its end."""
FIND = 'args=("$@"); for at in "${!args[@]}"; do [ "${args[at]}" = --status ] && FD=${args[at+1]}; done'
LAUNCHER = f"""
for word; do [ "$word" = --probe ] && {{ echo 'landlock: ABI 6' && echo ready >&$FD; exit; }}; done
TOLD
echo ready >&$FD
{RUN}; exit $code
"""
NOTICE = "landlock-run: partial enforcement (older Landlock ABI)"
FAILED = "the sandbox ({}) failed, the command was not run: {}"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return str(path)


def play(runner: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put the script of a runner, with a line of its own, in its place; answers the config of the row."""
    if runner == "bwrap":
        script(tmp_path / "bwrap", BWRAP.replace("$PROBE", "mount -o remount").replace("TOLD", told))
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    elif runner == "landlock":
        hide_bwrap(tmp_path, monkeypatch)
        find = (
            'args=("$@"); for at in "${!args[@]}"; do [ "${args[at]}" = --status ] && FD=${args[at+1]}; done'
        )
        played = script(tmp_path / "launch", find + LAUNCHER.replace("TOLD", told))
        monkeypatch.setattr(launcher, "_program", lambda: [played])
    else:
        own = script(tmp_path / "own", f"{told}\n{RUN}; exit $code")
        return {"runnerCommand": [own], "runnerFailureSignatures": ["own: ", "landlock-run: "]}
    return {}


def hide_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "sh", "mount"):
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


@asynccontextmanager
async def shell(config: dict[str, Any], workspace: Path) -> AsyncIterator[Shell]:
    ctx = Context()
    try:
        await ctx.plugin(subprocess)
        await ctx.plugin(sandbox, config)
        await ctx.plugin(sandbox_policy, {"mode": "workspace-write", "workspaceRoot": str(workspace)})
        await ctx.plugin(bash_sandbox, {"graceMs": 300})
        service = ctx.get(SHELL)
        assert service is not None
        yield service
    finally:
        await ctx.dispose()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the runners are those of Linux")
RUNNERS = pytest.mark.parametrize("runner", ["bwrap", "landlock", "own"])


@RUNNERS
@aio
async def test_what_a_command_says_in_its_runners_words_is_its_own(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a runner with a status pipe. One without is believed by its words."""
    words = f"bwrap: no\n{NOTICE}\nlandlock-run: no" if runner != "own" else NOTICE
    async with shell(play(runner, ":", tmp_path, monkeypatch), tmp_path) as shell_:
        for code in (1, 125, 126, 127, 128, 137, 255):
            result = await shell_.run(
                ShellRequest(command=f"echo '{words}' >&2; exit {code}", workdir=str(tmp_path))
            )
            assert (result.exit_code, result.stderr.text) == (code, f"{words}\n")
            assert result.sandbox is not None and not result.sandbox.denied


@RUNNERS
@aio
async def test_a_notice_of_partial_walls_before_a_failing_command_is_an_ordinary_exit_code(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(play(runner, f"echo '{NOTICE}' >&2", tmp_path, monkeypatch), tmp_path) as shell_:
        result = await shell_.run(ShellRequest(command="false", workdir=str(tmp_path)))

    assert result.exit_code == 1 and result.stderr.text == f"{NOTICE}\n"


@pytest.mark.parametrize(
    ("runner", "told", "words"),
    [
        ("bwrap", "echo noise >&2; echo 'bwrap: Can'\\''t bind' >&2; exit 1", "bwrap: Can't bind"),
        ("bwrap", "exit 0", "it told no reason"),
        ("landlock", "echo 'landlock-run: no rule' >&$FD; exit 125", "no rule"),
        ("landlock", "exit 125", "it was ended before it had started the command"),
        ("own", "echo noise >&2; echo 'Own: broken' >&2; exit 125", "Own: broken"),
    ],
)
@aio
async def test_a_runner_that_fails_is_named_with_its_words(
    runner: str, told: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = play(runner, told, tmp_path, monkeypatch)
    async with shell(config, tmp_path) as shell_:
        request = ShellRequest(command=": > ran", workdir=str(tmp_path))
        with pytest.raises(SandboxUnavailable) as failed:
            await shell_.run(request)
        job = await shell_.start(request)
        await job.done

    name = config["runnerCommand"][0] if config else runner
    assert failed.value.message == job.failure == FAILED.format(name, words)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        ("bwrap", ["read-only file system"]),
        ("landlock", ["permission denied"]),
        ("own", ["read-only file system", "permission denied"]),
    ],
)
@aio
async def test_each_runner_has_its_own_words_for_a_denial(
    runner: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(play(runner, ":", tmp_path, monkeypatch), tmp_path) as shell_:
        for said in ("read-only file system", "permission denied", "operation not permitted"):
            result = await shell_.run(
                ShellRequest(command=f"echo {said.title()} >&2; exit 1", workdir=str(tmp_path))
            )
            assert result.sandbox is not None and result.sandbox.denied == (said in words), said


@aio
async def test_nothing_that_works_is_an_error_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_bwrap(tmp_path, monkeypatch)
    mute = script(tmp_path / "mute", ": > $0.ran")
    monkeypatch.setattr(launcher, "_program", lambda: [mute])
    async with shell({"checkAtStart": False}, tmp_path) as shell_:
        with pytest.raises(
            SandboxUnavailable, match=r"bwrap: the program is not installed; landlock: .*not run"
        ):
            await shell_.run(ShellRequest(command=": > ran", workdir=str(tmp_path)))

    assert Path(f"{mute}.ran").exists() and not (tmp_path / "ran").exists()


@asynccontextmanager
async def landlock_that(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Landlock, BackendReport]]:
    """The backend, tried over a launcher that gives this answer."""
    played = script(tmp_path / "launch", f"{FIND}; echo '{answer}'; echo ready >&$FD")
    monkeypatch.setattr(launcher, "_program", lambda: [played])
    ctx = Context()
    try:
        await ctx.plugin(subprocess)
        service, backend = ctx.get(SUBPROCESS), Landlock()
        assert service is not None
        yield backend, await backend.probe(Prober(service, 10_000))
    finally:
        await ctx.dispose()


@pytest.mark.parametrize("answer", ["landlock: ABI 0", "landlock: ABI -1", "landlock: ABI x", "7 of 8", ""])
@aio
async def test_landlock_is_believed_only_when_it_names_its_version(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with landlock_that(answer, tmp_path, monkeypatch) as (_, report):
        assert report.enforcement is None and report.hint


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6, 7, 12])
@aio
async def test_what_a_version_of_landlock_lacks_is_told(
    abi: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with landlock_that(f"landlock: ABI {abi}", tmp_path, monkeypatch) as (backend, report):
        told = {words for words in ("moved", "emptied", "devices", "signals") if words in report.reason}
        closed = SandboxPolicy("read-only", "/", is_network_open=False)
        if abi < 4:
            with pytest.raises(SandboxUnavailable, match=f"before ABI 4, this is {abi}"):
                backend.confine(["true"], closed, cwd=None, status_fd=None)
        else:
            confined = backend.confine(["true"], closed, cwd=None, status_fd=None)
            assert "--no-network" in confined.argv and confined.status == "none"

    lacking = {"moved": 2, "emptied": 3, "devices": 5, "signals": 6}
    assert report.enforcement == "partial"
    assert told == {words for words, since in lacking.items() if abi < since}
