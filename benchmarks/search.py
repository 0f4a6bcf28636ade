"""In process: `glob` and `grep` over a tree of 10,000 files, through the real rows; prints figures by name.

Each figure is a whole call of the tool: the search program's process, its output, the text for the model.
`python -m benchmarks.search`.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dsh.capabilities.agent import AgentRef
from dsh.kernel import Context
from dsh.plugins import subprocess, tool_fs_search
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.tools.execution import ToolCall, ToolSuccess
from dsh.tools.registry import ToolRegistry

FILES = 10_000
FOLDERS = 100
RUNS = 7


class Caller:
    """The agent whose session works in the tree. Implements `AgentRef`."""

    def __init__(self, ctx: Context, cwd: Path) -> None:
        self.id, self.ctx = "bench", ctx
        self.session = Session(SessionHeader(id="bench", created_at=0, cwd=str(cwd)))


def plant(root: Path) -> None:
    """Files of 40 lines, each in ten with a line to be found."""
    for number in range(FILES):
        folder = root / f"part{number % FOLDERS:02}"
        folder.mkdir(exist_ok=True)
        lines = [f"value_{number}_{line} = {line}" for line in range(40)]
        if number % 10 == 0:
            lines[20] = f"def needle_{number}(): ..."
        (folder / f"module_{number}.py").write_text("\n".join(lines))


async def spent_ms(registry: ToolRegistry, caller: AgentRef, tool: str, arguments: dict[str, Any]) -> float:
    """The median of several calls."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        result = await registry.run(ToolCall(call_id="c", name=tool, arguments=arguments, agent=caller))
        times.append((time.perf_counter() - begin) * 1000)
        assert isinstance(result, ToolSuccess), result.content
    return statistics.median(times[1:])


async def measured(root: Path) -> dict[str, float]:
    ctx = Context()
    registry = ToolRegistry(ctx)
    await ctx.plugin(subprocess, {})
    await ctx.plugin(tool_fs_search, {"sampleOverCapGlobResults": False})
    caller = Caller(ctx, root)
    found = {
        "glob_all_ms": await spent_ms(registry, caller, "glob", {"pattern": "**/*.py"}),
        "glob_one_ms": await spent_ms(registry, caller, "glob", {"pattern": "module_77.py"}),
        "grep_ms": await spent_ms(registry, caller, "grep", {"pattern": "def needle_"}),
        "grep_none_ms": await spent_ms(registry, caller, "grep", {"pattern": "nobody wrote this"}),
    }
    await ctx.dispose()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plant(Path(folder))
        for name, value in asyncio.run(measured(Path(folder))).items():
            sys.stdout.write(f"{name} {value:.1f}\n")


if __name__ == "__main__":
    main()
