"""The page on turns says what the loop does."""

import re
from pathlib import Path

from docs.generate.source import REPOSITORY
from dsh.agent import contract
from dsh.agent.limits import OnTurnFailure
from dsh.kernel import Event
from dsh.plugins import agent_loop, headless_runner
from tests.agent.kit import calls, loop, text, types
from tests.agent.test_windows import NAMES, WINDOWS
from tests.aio import aio
from tests.docs.page import blocks

PAGE = REPOSITORY / "docs" / "agent-loop.md"
TEXT = PAGE.read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose first column is headed so."""
    lines = TEXT.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading}")) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


@aio
async def test_the_log_of_a_turn_is_that_of_the_page() -> None:
    (block,) = [block for block in blocks(Path(PAGE)) if block.name == "log"]
    shown = [line.split()[0] for line in block.text.splitlines()]

    async with loop(calls(("c1", "echo", "{}")), text("done")) as it:

        async def echo(args: object, execution: object) -> str:
            return "echoed"

        it.tool("echo", echo)
        agent = await it.agent()
        await it.prompt(agent, "go")

    assert [kind.replace("chunks", "assistant/chunk") for kind in types(agent.session)] == shown


def test_every_event_of_agents_is_there_with_its_mode() -> None:
    events = {e.name: e.mode for e in vars(contract).values() if isinstance(e, Event)}
    shown = {row[0].strip("`"): row[1] for row in table("event")}
    assert shown == events


def test_every_limit_is_there() -> None:
    keys = set(re.findall(r"`(\w+)`", " ".join(cell for row in table("limit") for cell in row)))
    of_turns = {field for field in agent_loop.Config.__struct_encode_fields__ if field.startswith("max")}
    of_runs = set(headless_runner.Config.__struct_encode_fields__) - {"task"}
    assert keys == (of_turns - {"maxParallelToolCalls"}) | of_runs
    for policy in OnTurnFailure.__args__:  # type: ignore[attr-defined]
        assert f"onTurnFailure: {policy}" in TEXT


def test_the_windows_of_the_page_are_tested_and_leave_what_it_says() -> None:
    for name, rows in table("cancelled in"):
        window = WINDOWS[NAMES.index(name)]
        if name == "status running":
            assert "turn/start" not in window.rows
            continue
        said = re.findall(r"`(\w+/\w+)`", rows)
        left = window.rows.split()
        assert [kind for kind in said if kind not in left] == [], name
        if "…" not in rows and said:
            assert left[3:] == said, name
