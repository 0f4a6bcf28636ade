"""Background work that dies with nobody awaiting it ends the run: one line, exit 1, the tree undone."""

from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import text

SPAWNED = """
import asyncio, pathlib
def apply(ctx):
    ctx.effect(lambda: lambda: pathlib.Path("disposed").touch())
    async def boom():
        await asyncio.sleep(0.1)
        raise ValueError("the reason")
    {start}
"""


@pytest.mark.parametrize("start", ["ctx.spawn(boom(), 'boom')", "asyncio.create_task(boom())"])
def test_unawaited_failure_ends_the_run(
    space: Workspace, answering: Callable[..., Model], start: str
) -> None:
    answering(text(*["slow "] * 300, delay_ms=100))
    space.write("boom.py", SPAWNED.replace("{start}", start))
    space.write("p.yml", "- insert:\n    - {id: boom, name: ./boom.py}\n")
    done = space.run("--profile", "headless", "--patch", "p.yml", "x", timeout_s=15)
    assert (done.code, done.stdout) == (1, "")
    [line] = done.errors
    assert line.startswith("dsh: ") and "the reason" in line
    assert (space.work / "disposed").exists()
    for log in space.logs():
        assert log_rows(log)[-1]["type"] == "turn/end"


def test_failure_of_one_listener_is_told_and_the_run_goes_on(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    answering(text("ok"))
    space.write(
        "deaf.py",
        "def apply(ctx):\n    def listen(event): raise ValueError('cannot hear')\n"
        "    ctx.on('agent/status', listen)\n",
    )
    space.write("p.yml", "- insert:\n    - {id: deaf, name: ./deaf.py}\n")
    done = space.run("--profile", "headless", "--patch", "p.yml", "x")
    assert (done.code, done.stdout) == (0, "ok\n")
    assert "cannot hear" in done.stderr and "Traceback" not in done.stderr
