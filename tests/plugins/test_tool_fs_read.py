"""The tool `read`: exact frame and footers, its rules, and flat memory on any file."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.kernel import CancelToken, ValidationError
from dsh.plugins import fs_local, fs_observation_policy, tool_fs
from dsh.plugins.tool_fs import read
from dsh.plugins.tool_fs.language import language_of
from dsh.tools.definition import Resources
from dsh.tools.execution import ToolCall, ToolFailure, ToolSuccess
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.files import PLAIN, Kit, mounted, text_of


def frame(content: str, name: str = "f") -> str:
    return f"<path>/ws/{name}</path>\n<type>file</type>\n<content>\n{content}\n</content>"


def small(**config: int) -> Any:
    return ((fs_local, {}), (tool_fs, config))


@needs_corpus
@pytest.mark.parametrize("name", ["parallel-reads", "read-missing"])
@aio
async def test_results_are_those_that_the_original_gave(tmp_path: Path, name: str) -> None:
    scenario = json.loads((CORPUS / "scenarios" / f"{name}.json").read_text())
    for file, text in scenario["options"].get("files", {}).items():
        (tmp_path / file).write_text(text)
    calls = scenario["model_script"][0]["tools"]
    answers = [m["content"] for m in scenario["requests"][-1]["body"]["messages"] if m["role"] == "tool"]
    async with mounted(tmp_path) as kit:
        for call, answer in zip(calls, answers, strict=True):
            arguments = json.loads(call["raw"].replace("$CWD", str(tmp_path)))
            assert await kit.text("read", **arguments) == answer


@aio
async def test_pages_say_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    async with mounted(tmp_path) as kit:
        assert await kit.text("read", file_path="f", offset=5, limit=2) == frame(
            "5: line 5\n6: line 6\n\n(Showing lines 5-6 of 10. Use offset=7 to continue.)"
        )
        assert (await kit.text("read", file_path="f", offset=10)).endswith(
            "10: line 10\n\n(End of file - total 10 lines)\n</content>"
        )


@aio
async def test_an_empty_file_is_told_apart_from_an_offset_past_the_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    (tmp_path / "g").write_text("one\ntwo")
    async with mounted(tmp_path) as kit:
        empty = frame("(End of file - total 0 lines)")
        assert (
            await kit.text("read", file_path="f") == await kit.text("read", file_path="f", offset=1) == empty
        )
        assert await kit.code("read", file_path="f", offset=2) == "FS_NOT_FOUND"
        assert await kit.code("read", file_path="g", offset=3) == "FS_NOT_FOUND"
        assert "the file has 2 lines" in await kit.text("read", file_path="g", offset=3)


@aio
async def test_a_page_cut_by_bytes_gives_the_next_offset_and_no_total(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("aaaa\nbbbb\ncccc\n")
    async with mounted(tmp_path, small(readMaxBytes=9)) as kit:
        text = await kit.text("read", file_path="f")

    assert "\n2: bbbb\n\n(Showing lines 1-2; a page holds at most 9 bytes. Use offset=3 to continue.)" in text


@aio
async def test_offsets_chain_over_a_file_and_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join("x" * (n % 7) + "\n" for n in range(100)))
    seen, offset = [], 1
    async with mounted(tmp_path, small(readMaxBytes=20, readLimit=9)) as kit:
        for _ in range(100):
            meta = await kit.meta("read", file_path="f", offset=offset)
            seen += [line["number"] for line in meta["lines"]]
            offset = seen[-1] + 1
            if offset > meta["totalLines"]:
                break

    assert seen == list(range(1, 101))


@aio
async def test_the_metadata_is_the_value_with_the_language(tmp_path: Path) -> None:
    (tmp_path / "a.PY").write_text("x\n")
    (tmp_path / "link.txt").symlink_to("a.PY")
    async with mounted(tmp_path) as kit:
        meta = await kit.meta("read", file_path="a.PY")
        assert list(meta) == ["path", "offset", "lines", "totalLines", "lang"]
        assert meta["path"] == str(tmp_path / "a.PY")
        assert meta["lang"] == "py"
        linked = await kit.meta("read", file_path="link.txt")

    assert linked["path"] == str(tmp_path / "link.txt")
    assert "lang" not in linked


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.py", "py"),
        ("a.tar.CTS", "ts"),
        ("h.hpp", "cpp"),
        ("x.kt", "kotlin"),
        ("s.zsh", "sh"),
        ("i.htm", "html"),
        (".py", None),
        ("Makefile", None),
        ("a.unknown", None),
        ("dir.py/file", None),
    ],
)
def test_the_language_goes_by_the_last_ending(name: str, language: str | None) -> None:
    assert language_of(f"/x/{name}") == language


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": " "},
        {"file_path": "f", "offset": 0},
        {"file_path": "f", "offset": 1.5},
        {"file_path": "f", "limit": 0},
        {"file_path": "f", "limit": 2001},
    ],
)
@aio
async def test_rules_about_values_have_no_code(tmp_path: Path, arguments: dict[str, Any]) -> None:
    (tmp_path / "f").write_text("x")
    async with mounted(tmp_path) as kit:
        assert await kit.code("read", **arguments) is None


@pytest.mark.parametrize(
    "arguments", [{}, {"file_path": 3}, {"file_path": "f", "offset": "1"}, {"file_path": None}]
)
@aio
async def test_arguments_of_the_wrong_type_are_invalid(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async with mounted(tmp_path) as kit:
        assert await kit.code("read", **arguments) == "INVALID_ARGS"


@aio
async def test_null_and_unknown_arguments_count_as_absent(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    async with mounted(tmp_path) as kit:
        text = await kit.text("read", file_path="f", offset=None, limit=2.0, other=1)

    assert "1: x" in text


@aio
async def test_other_kinds_of_files_are_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    started = time.monotonic()
    async with mounted(tmp_path) as kit:
        for name in ("fifo", "zero", ".", "/dev/zero"):
            assert await kit.code("read", file_path=name) == "FS_NOT_REGULAR_FILE"

    assert time.monotonic() - started < 30


@aio
async def test_streaming_shows_the_same_as_reading_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\ufeffa\r\n" + "é" * 3000 + "\n" + "b\n" * 50)
    async with mounted(tmp_path) as whole, mounted(tmp_path, small(readStreamMinSize=1)) as streamed:
        for offset, limit in ((1, 2000), (2, 1), (40, 5)):
            text = await whole.text("read", file_path="f", offset=offset, limit=limit)
            assert await streamed.text("read", file_path="f", offset=offset, limit=limit) == text


@aio
async def test_a_large_file_is_not_counted_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n" * 5_000_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "COUNTED_CHARS", 2_000_000)
        async with mounted(tmp_path, small(readStreamMinSize=10_000_000)) as kit:
            result = await kit.run("read", file_path="f", limit=2)
            far = await kit.text("read", file_path="f", offset=5_000_000)

    assert isinstance(result, ToolSuccess)
    assert result.value["totalIsMinimum"] is True
    counted = result.value["totalLines"]
    assert 1_000_000 <= counted < 5_000_000
    assert f"(Showing lines 1-2 of at least {counted}. Use offset=3 to continue.)" in text_of(result)
    assert "(End of file - total 5000000 lines)" in far


BIG_READ = r"""
import asyncio, re, sys
from pathlib import Path
from tests.plugins.files import mounted

async def main():
    async with mounted(Path(sys.argv[1])) as kit:
        text = await kit.text("read", file_path="big", limit=5)
        print(text[-300:])

asyncio.run(main())
print("peak", re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
"""


def test_a_line_of_a_hundred_megabytes_is_read_in_flat_memory(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 1_000_000)

    run = subprocess.run(
        [sys.executable, "-c", BIG_READ, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "... (line truncated to 2000 chars)\n\n(End of file - total 1 lines)\n</content>" in run.stdout
    peak_kib = int(run.stdout.split("peak ")[1])
    assert peak_kib < 150_000


@aio
async def test_a_huge_sparse_file_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(3 * 1024**3)
    started = time.monotonic()
    async with mounted(tmp_path) as kit:
        assert await kit.code("read", file_path="f", limit=5) == "FS_NOT_TEXT"

    assert time.monotonic() - started < 30


@pytest.mark.parametrize("config", [{}, {"readStreamMinSize": 1}])
@aio
async def test_a_file_that_grows_while_it_is_read_has_an_end_and_must_be_read_again(
    tmp_path: Path, config: dict[str, int]
) -> None:
    (tmp_path / "log").write_text("first\n" + "more\n" * 100_000)
    grow = ["bash", "-c", "while echo more; do :; done >> log"]
    rows: Any = ((fs_local, {}), (fs_observation_policy, {}), (tool_fs, config))

    async def grown() -> None:
        size = (tmp_path / "log").stat().st_size
        while (tmp_path / "log").stat().st_size == size:
            await asyncio.sleep(0.001)

    with subprocess.Popen(grow, cwd=tmp_path) as growing:
        try:
            async with mounted(tmp_path, rows) as kit, asyncio.timeout(60):
                await grown()
                text = await kit.text("read", file_path="log", limit=1)
                await grown()
                edit = {"file_path": "log", "old_string": "first", "new_string": "1st"}
                assert await kit.code("edit", **edit) == "FS_STALE_VERSION"
        finally:
            growing.kill()
    assert re.search(r"\n1: first\n\n\(Showing lines 1-1 of [1-9]\d{5,}\. Use", text)
    assert (tmp_path / "log").read_text().startswith("first\nmore\n")


@aio
async def test_dots_in_a_path_go_as_the_system_would_from_the_directory(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "f").write_text("right")
    (tmp_path / "f").write_text("wrong")
    (tmp_path / "alias").symlink_to("real/deep")
    async with mounted(tmp_path / "alias") as kit:
        assert "1: right" in await kit.text("read", file_path="../f")


@aio
async def test_a_cancelled_call_is_aborted(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    signal = CancelToken()
    signal.cancel("stop")
    async with mounted(tmp_path) as kit:
        result = await kit.run("read", signal=signal, file_path="f")

    assert isinstance(result, ToolFailure)
    assert result.code == "ABORTED_BEFORE_DISPATCH"


def resources_of(kit: Kit, tool: str, **arguments: Any) -> Resources | None:
    registry = kit.ctx.get(TOOLS)
    assert registry is not None
    return registry.resources(ToolCall(call_id="c", name=tool, arguments=arguments, agent=kit.owner))


@aio
async def test_calls_name_the_file_they_touch_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "l").symlink_to("f")
    key = frozenset({f"fs:{os.path.realpath(tmp_path / 'f')}"})
    async with mounted(tmp_path) as kit:
        assert resources_of(kit, "read", file_path="l") == Resources(reads=key)
        assert resources_of(kit, "write", file_path="./f", content="") == Resources(writes=key)
        edit = resources_of(kit, "edit", file_path=str(tmp_path / "l"), old_string="a", new_string="b")
        assert edit == Resources(writes=key)
        assert resources_of(kit, "read", file_path="") == Resources()
        assert resources_of(kit, "write", file_path="", content="") == Resources()


@pytest.mark.parametrize("key", ["readLimit", "readMaxLineLength", "readMaxBytes", "readStreamMinSize"])
@aio
async def test_the_options_are_positive_integers(tmp_path: Path, key: str) -> None:
    for value in (0, -1, 1.5, "3"):
        with pytest.raises(ValidationError, match=key):
            async with mounted(tmp_path, ((fs_local, {}), (tool_fs, {key: value}))):
                pass


@aio
async def test_the_tools_go_with_their_row(tmp_path: Path) -> None:
    async with mounted(tmp_path, PLAIN[:2]) as kit:
        fiber = await kit.ctx.plugin(tool_fs, {})
        registry = kit.ctx.get(TOOLS)
        assert registry is not None
        assert [tool.name for tool in registry.schemas()] == ["edit", "read", "write"]
        await kit.ctx.fiber.quiet()
        await fiber.dispose()
        assert registry.schemas() == ()
