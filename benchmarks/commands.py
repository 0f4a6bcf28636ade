"""In process: what a command costs on its way through the shell. Prints one figure a line, by name.

The rows of the shell as they are in a run: a command that does nothing, unconfined (with the launcher that
ties it to our life) and under each sandbox backend that works here (-1 where one does not), then 100 MB of
output.
Run by `python -m benchmarks`, or alone: `python -m benchmarks.commands`.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import kept_kib
from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.kernel import Context
from dsh.plugins import bash_sandbox, sandbox, sandbox_policy
from dsh.plugins import subprocess as subprocess_row

CALLS = 30
OUTPUT_MB = 100


async def shell_of(ctx: Context) -> Shell:
    """The shell in its rows."""
    await ctx.plugin(subprocess_row)
    await ctx.plugin(sandbox, {"checkAtStart": False})
    await ctx.plugin(sandbox_policy, {"mode": "danger-full-access"})
    await ctx.plugin(bash_sandbox)
    return ctx.use(SHELL)


async def call_ms(shell: Shell, policy: SandboxPolicy) -> float:
    """The median of calls one after the other; the first, which may look for a backend, not counted."""
    spent = []
    for at in range(CALLS + 1):
        begin = time.perf_counter()
        try:
            result = await shell.run(
                ShellRequest(command=":", workdir=policy.workspace_root, sandbox_policy=policy)
            )
        except SandboxUnavailable:
            return -1
        if result.exit_code != 0:
            raise RuntimeError(f"the command failed: {result.stderr.text}")
        if at:
            spent.append((time.perf_counter() - begin) * 1000)
    return statistics.median(spent)


def bare_ms() -> float:
    """The same command without any of it."""
    spent = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        subprocess.run(["bash", "-c", ":"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        spent.append((time.perf_counter() - begin) * 1000)
    return statistics.median(spent)


async def output(shell: Shell, policy: SandboxPolicy) -> tuple[float, float]:
    """Seconds that a command takes to print so much, and the KiB by which this process has grown at most."""
    before = most = kept_kib()
    begin = time.perf_counter()
    command = f"head -c {OUTPUT_MB}000000 /dev/zero | tr '\\0' x"
    running = asyncio.ensure_future(
        shell.run(ShellRequest(command=command, workdir=policy.workspace_root, sandbox_policy=policy))
    )
    while not running.done():
        await asyncio.wait((running,), timeout=0.005)
        most = max(most, kept_kib())
    result = await running
    if not result.stdout.truncated:
        raise RuntimeError("the output was not cut")
    return time.perf_counter() - begin, most - before


async def measured(folder: Path) -> dict[str, float]:
    """All figures."""

    def policy(mode: SandboxMode) -> SandboxPolicy:
        return SandboxPolicy(mode=mode, workspace_root=str(folder))

    found = {"bare_ms": bare_ms()}
    ctx = Context()
    shell = await shell_of(ctx)
    found["plain_ms"] = await call_ms(shell, policy("danger-full-access"))
    found["bwrap_ms"] = (
        await call_ms(shell, policy("workspace-write")) if shutil.which("bwrap") is not None else -1
    )
    found["output_s"], found["output_kib"] = await output(shell, policy("danger-full-access"))
    await ctx.dispose()
    programs = folder / "bin"
    programs.mkdir()
    (programs / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    os.environ["PATH"] = str(programs)  # without bwrap
    ctx = Context()
    found["landlock_ms"] = await call_ms(await shell_of(ctx), policy("workspace-write"))
    await ctx.dispose()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, value in asyncio.run(measured(Path(folder).resolve())).items():
            sys.stdout.write(f"{name} {value}\n")


if __name__ == "__main__":
    main()
