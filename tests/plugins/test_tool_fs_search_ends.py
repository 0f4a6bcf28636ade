"""Searches that do not end well: out of time, out of memory, too deep, or the program itself breaks."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.plugins import timeout_policy
from dsh.plugins.tool_fs_search.program import CUT_NOTE, FALLBACK_NOTE, Program
from tests.aio import aio
from tests.plugins.searching import both, found, plant, searching


def match(path: str, line: int) -> str:
    data = {"path": {"text": path}, "lines": {"text": "x\n"}, "line_number": line}
    return json.dumps({"type": "match", "data": data}) + "\n"


def printing(text: str, before: float = 0) -> Program:
    """A search that says this and then never ends."""
    code = f"import sys, time; time.sleep({before}); sys.stdout.write({text!r}); sys.stdout.flush(); "
    return Program((sys.executable, "-S", "-c", code + "time.sleep(60)"))


@aio
async def test_what_was_found_in_time_is_shown_and_that_there_may_be_more(tmp_path: Path) -> None:
    plant(tmp_path, old="", new="")
    started = time.monotonic()
    async with searching(tmp_path, printing("./old\0./new\0./ha"), timeout_ms=1000) as kit:
        assert await kit.text("glob", pattern="*") == f"new\nold\n\n({CUT_NOTE})"
    records = match("./b", 1) + match("./a", 2) + match("./c", 3)[:20]
    async with searching(tmp_path, printing(records), timeout_ms=1000) as kit:
        assert await kit.text("grep", pattern="x") == (
            f"Found 2 matches\n\na\nLine 2: x\n\nb\nLine 1: x\n\n({CUT_NOTE})"
        )

    assert time.monotonic() - started < 30


@aio
async def test_a_listing_that_takes_too_long_leaves_time_for_the_search(tmp_path: Path) -> None:
    plant(tmp_path, seen="")
    async with searching(tmp_path, printing("./seen\0"), timeout_ms=2000) as kit:
        text = await kit.text("glob", pattern="*", include_hidden=False)

    assert text == f"seen\n\n({CUT_NOTE})"


@aio
async def test_a_list_of_what_may_be_found_that_is_cut_is_told(tmp_path: Path) -> None:
    listing = printing("./a\0").argv[-1]
    code = f"""import sys
if any(text.endswith("=*.py") for text in sys.argv):
    print({match("./a", 1)!r} if "--json" in sys.argv else "./a\\0", end="")
else:
    {listing}"""
    async with searching(tmp_path, Program((sys.executable, "-S", "-c", code)), timeout_ms=1000) as kit:
        for tool, more in (("glob", {"pattern": "*.py"}), ("grep", {"pattern": "x", "include": "*.py"})):
            text = await kit.text(tool, include_hidden=False, **more)
            assert text.endswith(f"\n\n({CUT_NOTE})"), tool


@aio
async def test_the_first_result_may_come_late(tmp_path: Path) -> None:
    async with searching(tmp_path, printing("./a\0", before=0.5), timeout_ms=100) as kit:
        assert await kit.text("glob", pattern="*") == f"a\n\n({CUT_NOTE})"


@aio
async def test_a_search_that_found_nothing_in_time_is_no_answer(tmp_path: Path) -> None:
    async with searching(tmp_path, printing(""), (timeout_policy, {}), timeout_ms=300) as kit:
        assert await kit.code("grep", pattern="x") == "TOOL_TIMEOUT"


@pytest.mark.parametrize("program", ["import no_such_module", "raise MemoryError"])
@aio
async def test_a_stand_in_that_crashes_has_not_found_nothing(tmp_path: Path, program: str) -> None:
    broken = Program((sys.executable, "-c", program), is_fallback=True)
    async with searching(tmp_path, broken) as kit:
        for tool in ("glob", "grep"):
            text = await kit.text(tool, pattern="x")
            assert text.startswith("Error: the search failed with exit code 1: M")
            assert "Traceback" not in text
            assert await kit.code(tool, pattern="x") == "SEARCH_FAILED"


@pytest.fixture
def abyss(tmp_path: Path) -> Iterator[Path]:
    """A place with a file below 1200 folders; taken away however the test ends: too deep for shutil."""
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=folder)
            inner = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(os.open("x.txt", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        os.close(folder)
        yield tmp_path
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


@both
@aio
async def test_folders_may_be_nested_as_deep_as_a_path_goes(abyss: Path, kind: str) -> None:
    async with searching(abyss, kind) as kit:
        assert await found(kit, kind, "glob", pattern="*.txt") == "d/" * 1200 + "x.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
@aio
async def test_a_file_that_the_stand_in_cannot_hold_is_told_and_the_rest_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh.plugins.tool_fs_search.program.MAX_MEMORY_BYTES", 64 * 1024 * 1024)
    (tmp_path / "big").write_bytes(b"y\n" * 5_000_000)
    plant(tmp_path, small="x\n")
    async with searching(tmp_path, "fallback") as kit:
        assert await kit.text("grep", pattern="x") == (
            "Found 1 match\n\nsmall\nLine 1: x\n\n"
            "(Some places could not be searched: ./big: Cannot allocate memory (os error 12))\n"
            f"({FALLBACK_NOTE})"
        )
