"""What displays show of the built-in tools: live, from our logs, and from logs of the original."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.plugins import bash_local, shell_env, subprocess, tool_bash, tool_fs_search
from dsh.plugins.tool_bash.card import result as bash_result
from dsh.plugins.tool_bash.result import UNKILLABLE_NOTE
from dsh.plugins.tool_fs.card import read_result
from dsh.tools.arguments import parse_arguments
from dsh.tools.execution import ToolCall
from dsh.tools.presentation import (
    Diff,
    DiffCall,
    DiffResult,
    GenericCall,
    Line,
    Location,
    MatchedFile,
    MatchedLine,
    Outcome,
    ReadResult,
    SearchResult,
    TerminalCall,
    TerminalResult,
    outcome_in_log,
    outcome_of,
)
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.files import PLAIN, Kit, mounted

ROWS: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    *PLAIN,
    (subprocess, {}),
    (tool_fs_search, {"sampleOverCapGlobResults": False}),
    (bash_local, {}),
    (shell_env, {}),
    (tool_bash, {}),
)


async def cards(kit: Kit, name: str, **arguments: Any) -> tuple[Any, Any]:
    """Run a call; its card and that of its result."""
    tools = kit.ctx.use(TOOLS)
    call = ToolCall(call_id="c-1", name=name, arguments=arguments, agent=kit.owner)
    outcome = outcome_of(await tools.run(call))
    return tools.present_call(call), tools.present_result(call, outcome)


@aio
async def test_read_shows_the_file_and_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    async with mounted(tmp_path, ROWS) as kit:
        asked, got = await cards(kit, "read", file_path="a.py", offset=2, limit=1)
        nowhere, _ = await cards(kit, "read", file_path="a.py", offset=0)

    assert asked == GenericCall(title="Read a.py", kind="read", locations=(Location(path="a.py", line=2),))
    assert nowhere == GenericCall(title="Read a.py", kind="read", locations=(Location(path="a.py"),))
    assert got == ReadResult(
        path=str(tmp_path / "a.py"),
        offset=2,
        lines=(Line(number=2, text="two"),),
        total_lines=3,
        lang="py",
    )


@aio
async def test_write_and_edit_show_what_changes(tmp_path: Path) -> None:
    async with mounted(tmp_path, ROWS) as kit:
        asked, got = await cards(kit, "write", file_path="a", content="one\ntwo\n")
        assert asked == DiffCall(
            title="Write a",
            diffs=(Diff(path="a", old_text=None, new_text="one\ntwo\n"),),
            locations=(Location(path="a"),),
        )
        assert got == DiffResult(diffs=()), "a new file has no hunks"
        await kit.run("read", file_path="a")
        asked, got = await cards(kit, "edit", file_path="a", old_string="two", new_string="2")
        assert asked.title == "Edit a" and asked.diffs == (Diff(path="a", old_text="two", new_text="2"),)
        assert got == DiffResult(diffs=(Diff(path="a", old_text="one\ntwo", new_text="one\n2"),))


@aio
async def test_searches_show_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    async with mounted(tmp_path, ROWS) as kit:
        asked, got = await cards(kit, "glob", pattern="*.py")
        assert asked == GenericCall(title="Find *.py", kind="search")
        assert got == SearchResult(shape="paths", truncated=False, total=1, paths=("a.py",))
        asked, got = await cards(kit, "grep", pattern="t.o", path=".", include="*.py")
        assert asked == GenericCall(
            title="Search for t.o in *.py", kind="search", locations=(Location(path="."),)
        )
        matches = (MatchedLine(line_number=2, line="two"),)
        assert got == SearchResult(
            shape="matches", truncated=False, total=1, files=(MatchedFile(path="a.py", matches=matches),)
        )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo hi", TerminalResult(output="hi\n", exit_code=0)),
        ("true", TerminalResult(output="(no output)", exit_code=0)),
        ("echo hi; exit 3", TerminalResult(output="hi", exit_code=3)),
        ("printf hi; kill -9 $$", TerminalResult(output="hi", signal="SIGKILL")),
        ("printf '[exit code: 7]\\nmore'", TerminalResult(output="[exit code: 7]\nmore", exit_code=0)),
    ],
)
@aio
async def test_a_command_shows_its_output_and_how_it_ended(
    tmp_path: Path, command: str, expected: TerminalResult
) -> None:
    async with mounted(tmp_path, ROWS) as kit:
        asked, got = await cards(kit, "bash", command=command, description="try", workdir=str(tmp_path))

    assert asked == TerminalCall(title=command, description="try", cwd=str(tmp_path))
    assert got == expected


def said(text: str, *, is_error: bool = False) -> Outcome:
    return Outcome(content=({"type": "text", "text": text},), is_error=is_error)


def test_a_command_that_has_not_ended_has_no_exit_code() -> None:
    note = UNKILLABLE_NOTE
    text = f"out\n{note}\n[timed out after 10ms]"

    assert bash_result({}, said(text), has_no_end=note) == TerminalResult(output=text)


def test_a_job_that_was_left_behind_and_a_failed_call_have_no_card() -> None:
    note = UNKILLABLE_NOTE

    assert bash_result({"run_in_background": True}, said("started"), has_no_end=note) is None
    assert bash_result({}, said("Error: no", is_error=True), has_no_end=note) is None


@pytest.mark.parametrize(
    ("offset", "numbers", "total"),
    [(0, [1], 1), (2, [1], 3), (1, [1, 1], 3), (1, [2, 1], 3), (1, [1, 5], 4), (-1, [], 0)],
)
def test_a_window_that_cannot_be_one_is_no_card(offset: int, numbers: list[int], total: int) -> None:
    lines = [{"number": number, "text": ""} for number in numbers]
    meta = {"path": "p", "offset": offset, "lines": lines, "totalLines": total}

    assert read_result({}, Outcome(content=(), meta=meta)) is None


@needs_corpus
@aio
async def test_results_that_the_original_logged_have_cards(tmp_path: Path) -> None:
    names = {"bash", "read", "write", "edit", "glob", "grep"}
    shown: dict[str, int] = dict.fromkeys(names, 0)
    async with mounted(tmp_path, ROWS) as kit:
        tools = kit.ctx.use(TOOLS)
        for path in sorted((CORPUS / "fixtures").glob("*.jsonl")):
            calls: dict[str, ToolCall] = {}
            for line in path.read_bytes().splitlines():
                row = json.loads(line)
                data = row.get("data")
                if row.get("type") == "tool/call" and data["name"] in names:
                    arguments = parse_arguments(data["arguments"]).value
                    calls[data["callId"]] = ToolCall(
                        call_id=data["callId"], name=data["name"], arguments=arguments
                    )
                elif row.get("type") == "tool/result" and "message" in data:
                    call = calls.get(data["message"]["source"]["callId"])
                    outcome = outcome_in_log(data)
                    if call is None or outcome.is_error or tools.present_call(call) is None:
                        continue
                    card = tools.present_result(call, outcome)
                    is_bare = call.arguments.get("run_in_background") or "meta" not in data
                    assert card is not None or is_bare, (path.name, data)
                    shown[call.name] += card is not None
    assert shown["bash"] and shown["read"] and shown["write"] and shown["edit"]
