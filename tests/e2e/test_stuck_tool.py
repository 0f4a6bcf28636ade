"""A tool that ends neither at its deadline nor after it, through the real program."""

from collections.abc import Callable

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.e2e.sound import errors_in

Answering = Callable[..., Model]

STUCK = """
import asyncio

from dsh.tools.registry import TOOLS
from dsh.tools.typed import TEXT_OUTPUT, typed_tool

inject = [TOOLS]
provide = []


def apply(ctx):
    async def stuck(args, execution):
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                open("ended", "w").close()
                raise

    async def late(args, execution):
        gate = asyncio.Event()
        execution.signal.on_cancel(lambda _: gate.set())
        await gate.wait()
        return "too late"

    for name, body in (("stuck", stuck), ("late", late)):
        ctx.use(TOOLS).register(
            typed_tool(
                name=name, description=name, parameters={}, output=TEXT_OUTPUT, execute=body, timeout_ms=100,
                concurrency_safe=True,
            )
        )
"""
PATCH = """
- insert:
    - {id: stuck, name: ./stuck.py}
- id: timeout-policy
  config: {graceMs: 100}
"""


def test_the_run_goes_on_without_it_and_its_task_ends_with_the_run(
    space: Workspace, answering: Answering
) -> None:
    space.write("stuck.py", STUCK)
    space.write("p.yml", PATCH)
    calls = [
        {"id": f"c{n}", "name": name, "args": ["{}"]} for n, name in enumerate(("stuck", "late", "stuck"))
    ]
    answering({"tools": calls}, text("done"))

    done = space.run("run", "--patch", "p.yml", "x")

    assert (done.code, done.stdout) == (0, "done\n")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("tool stuck did not end when it was told to; it was given up") == 2
    [log] = space.logs()
    results = [row["data"] for row in log_rows(log) if row["type"] == "tool/result"]
    codes = [result["error"]["code"] for result in results]
    assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_TIMEOUT", "TOOL_OUTCOME_UNKNOWN"]
    assert (space.work / "ended").exists()
    assert errors_in(space) == []
