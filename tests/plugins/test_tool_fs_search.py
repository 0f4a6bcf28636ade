"""The tools `glob` and `grep` over the real search program, and over its stand-in."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import CancelToken, ValidationError
from dsh.plugins import subprocess, tool_fs_search
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.error import SearchError
from dsh.plugins.tool_fs_search.matches import cut_line, parse_matches
from dsh.plugins.tool_fs_search.program import FALLBACK_NOTE, Program, SearchProgram, find_program, judged
from dsh.tools.execution import ToolSuccess
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.plugins.files import mounted
from tests.plugins.searching import both, found, plant, searching


@both
@aio
async def test_glob_lists_the_newest_first(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, p__a_dot_py="", p__q__b_dot_py="", c_dot_txt="", z_dot_py="")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "glob", pattern="**/*.py") == "z.py\np/q/b.py\np/a.py"
        assert await found(kit, kind, "glob", pattern="*.py", path="p") == "p/q/b.py\np/a.py"
        assert await found(kit, kind, "glob", pattern="p/*.py") == "p/a.py"
        assert await found(kit, kind, "glob", pattern="*.{txt,md}") == "c.txt"
        assert await found(kit, kind, "glob", pattern="!*.py") == "c.txt"
        assert await found(kit, kind, "glob", pattern="*.none") == "No files found"


@both
@aio
async def test_glob_includes_hidden_and_ignored_files_but_no_version_control(
    tmp_path: Path, kind: str
) -> None:
    plant(
        tmp_path,
        _dot_git__x_dot_py="",
        sub___dot_hg__x_dot_py="",
        _dot_gitignore="*.py\n",
        node_modules__x_dot_py="",
        _dot_hidden_dot_py="",
    )
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "glob", pattern="*.py") == ".hidden.py\nnode_modules/x.py"
        plant(tmp_path, worktree___dot_git="gitdir: elsewhere\n")
        assert await found(kit, kind, "glob", pattern=".git") == "No files found"
        assert await found(kit, kind, "glob", pattern="*", path=".git") == "No files found"


@both
@aio
async def test_grep_groups_matches_by_file_in_order_of_paths(tmp_path: Path, kind: str) -> None:
    plant(
        tmp_path,
        p__q__b_dot_py="def g():\n    return 1\n",
        p__a_dot_py="def f():\r\n    pass\n\ndef h(): pass",
    )
    async with searching(tmp_path, kind) as kit:
        expected = (
            "Found 3 matches\n\np/a.py\nLine 1: def f():\nLine 4: def h(): pass\n\np/q/b.py\nLine 1: def g():"
        )
        assert await found(kit, kind, "grep", pattern="def ") == expected
        assert await found(kit, kind, "grep", pattern="def ", path=str(tmp_path)) == expected
        assert await found(kit, kind, "grep", pattern="return \\d", path="p/q/b.py") == (
            "Found 1 match\n\np/q/b.py\nLine 2:     return 1"
        )
        assert await found(kit, kind, "grep", pattern="zebra") == "No matches found"


@both
@aio
async def test_grep_respects_ignore_files_and_skips_hidden_and_binary_files(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / ".git").mkdir()
    plant(
        tmp_path,
        _dot_gitignore="ignored.txt\nbuild/\n",
        _dot_ignore="also.txt\n",
        a_dot_txt="needle",
        _dot_hidden_dot_txt="needle",
        ignored_dot_txt="needle",
        also_dot_txt="needle",
        build__b_dot_txt="needle",
        bin_dot_dat=b"x\0needle",
        sub___dot_gitignore="!ignored.txt\n",
        sub__ignored_dot_txt="needle",
    )
    async with searching(tmp_path, kind) as kit:
        text = await found(kit, kind, "grep", pattern="needle")

    assert text == "Found 2 matches\n\na.txt\nLine 1: needle\n\nsub/ignored.txt\nLine 1: needle"


@both
@aio
async def test_include_narrows_and_may_leave_nothing(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a_dot_py="x", b_dot_txt="x", c_dot_md="x")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="x", include="*.{py,md}") == (
            "Found 2 matches\n\na.py\nLine 1: x\n\nc.md\nLine 1: x"
        )
        assert await found(kit, kind, "grep", pattern="x", include="*.zzz") == "No matches found"


@both
@aio
async def test_lines_that_are_no_text_have_a_placeholder(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a=b"caf\xe9 hi\nhi\n")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="hi") == (
            "Found 2 matches\n\na\nLine 1: (line is not valid UTF-8)\nLine 2: hi"
        )


@both
@aio
async def test_names_with_newlines_and_bad_bytes_stay_single_names(tmp_path: Path, kind: str) -> None:
    (tmp_path / "two\nlines.py").write_text("")
    with open(os.fsencode(tmp_path) + b"/bad\xff.py", "w"):  # noqa: PTH123
        pass
    async with searching(tmp_path, kind) as kit:
        result = await kit.run("glob", pattern="*.py")

    assert isinstance(result, ToolSuccess)
    assert sorted(result.value["paths"]) == ["bad\ufffd.py", "two\nlines.py"]


@both
@aio
async def test_patterns_and_paths_never_become_flags(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a_dot_txt="use --foo here\n")
    (tmp_path / "-x").mkdir()
    (tmp_path / "-x" / "--files").write_text("--foo")
    async with searching(tmp_path, kind) as kit:
        assert "a.txt\nLine 1: use --foo here" in await found(kit, kind, "grep", pattern="--foo")
        assert await found(kit, kind, "grep", pattern="--foo", path="-x") == (
            "Found 1 match\n\n-x/--files\nLine 1: --foo"
        )
        assert await found(kit, kind, "glob", pattern="--*", path="-x") == "-x/--files"


@aio
async def test_the_configuration_of_the_host_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, a_dot_txt="Needle\n", conf="--ignore-case\n--pre=/bin/false\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "conf"))
    async with searching(tmp_path) as kit:
        assert await kit.text("grep", pattern="needle", path="a.txt") == "No matches found"
        assert "Found 1 match" in await kit.text("grep", pattern="Needle", path="a.txt")


@both
@aio
async def test_an_invalid_pattern_has_its_code(tmp_path: Path, kind: str) -> None:
    async with searching(tmp_path, kind) as kit:
        assert await kit.code("grep", pattern="(") == "SEARCH_INVALID_PATTERN"
        assert await kit.code("glob", pattern="{a") == "SEARCH_INVALID_PATTERN"
        if kind == "rg":
            assert await kit.code("grep", pattern="a\nb") == "SEARCH_INVALID_PATTERN"


@both
@aio
async def test_a_broken_ignore_file_is_nobodys_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".git").mkdir()
    plant(tmp_path, _dot_gitignore="[z-a\n", a="needle")
    async with searching(tmp_path, kind) as kit:
        assert "Found 1 match" in await found(kit, kind, "grep", pattern="needle")


@aio
async def test_what_cannot_be_searched_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    started = time.monotonic()
    async with searching(tmp_path) as kit:
        for path in ("none", "fifo", "/dev/zero", "a\0b"):
            assert await kit.code("grep", pattern="x", path=path) == "SEARCH_FAILED", path
            assert await kit.code("glob", pattern="x", path=path) == "SEARCH_FAILED", path

    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("glob", {"pattern": "  "}),
        ("glob", {"pattern": "a\0"}),
        ("glob", {"pattern": "*", "path": " "}),
        ("grep", {"pattern": ""}),
        ("grep", {"pattern": "x", "path": ""}),
        ("grep", {"pattern": "x", "include": " "}),
        ("grep", {"pattern": "x\0"}),
        ("grep", {"pattern": "x", "include": "!*.py"}),
        ("grep", {"pattern": "x", "include": "*.py,*.md"}),
        ("grep", {"pattern": "x", "include": "*.{py,md},*.c"}),
    ],
)
@aio
async def test_rules_about_values_have_no_code(tmp_path: Path, tool: str, arguments: dict[str, Any]) -> None:
    async with searching(tmp_path) as kit:
        assert await kit.code(tool, **arguments) is None


@aio
async def test_a_pattern_of_white_space_is_a_pattern(tmp_path: Path) -> None:
    plant(tmp_path, a="x y\n")
    async with searching(tmp_path) as kit:
        assert "Found 1 match" in await kit.text("grep", pattern=" ")


@aio
async def test_over_the_cap_the_head_is_shown_and_the_rest_counted(tmp_path: Path) -> None:
    plant(tmp_path, **{f"f{number}": "x\n" for number in range(5)})
    async with searching(tmp_path, glob_max_results=2, grep_max_matches=3) as kit:
        globbed, grepped = await kit.text("glob", pattern="*"), await kit.text("grep", pattern="x")
        globbed_meta, grepped_meta = await kit.meta("glob", pattern="*"), await kit.meta("grep", pattern="x")

    lost = "The full list could not be saved; narrow the pattern or the path."
    assert globbed == f"f4\nf3\n\n(Showing 2 of 5 paths. Use offset=2 to see more. {lost})"
    assert grepped.startswith("Found 3 of 5 matches\n\nf0\nLine 1: x\n\nf1\n")
    assert grepped.endswith(f"f2\nLine 1: x\n\n(Showing 3 of 5 matches. Use offset=3 to see more. {lost})")
    assert globbed_meta == {"shape": "paths", "paths": ("f4", "f3"), "truncated": True, "total": 5}
    assert grepped_meta["total"] == 5
    assert grepped_meta["truncated"] is True
    assert [file["path"] for file in grepped_meta["files"]] == ["f0", "f1", "f2"]


@aio
async def test_the_metadata_within_the_cap(tmp_path: Path) -> None:
    plant(tmp_path, a="x\ny\nx\n")
    async with searching(tmp_path) as kit:
        assert await kit.meta("grep", pattern="x") == {
            "shape": "matches",
            "files": (
                {"path": "a", "matches": ({"lineNumber": 1, "line": "x"}, {"lineNumber": 3, "line": "x"})},
            ),
            "truncated": False,
            "total": 2,
        }
        assert await kit.meta("glob", pattern="none") == {
            "shape": "paths",
            "paths": (),
            "truncated": False,
            "total": 0,
        }


@aio
async def test_too_much_raw_output_is_refused_with_advice(tmp_path: Path) -> None:
    plant(tmp_path, a="x\n" * 3000)
    async with searching(tmp_path, raw_output_max_bytes=10_000) as kit:
        assert await kit.code("grep", pattern="x") == "SEARCH_RAW_OUTPUT_OVERFLOW"
        assert "narrow" in await kit.text("grep", pattern="x")


@aio
async def test_a_cancelled_search_is_aborted(tmp_path: Path) -> None:
    signal = CancelToken()
    async with searching(tmp_path) as kit:
        processes = kit.ctx.get(SUBPROCESS)
        assert processes is not None
        slow = Program(("/bin/sh", "-c", "sleep 60"))
        search = SearchProgram(processes, Config(sample_over_cap_glob_results=False), slow)
        asyncio.get_running_loop().call_later(0.1, signal.cancel, "stop")
        started = time.monotonic()

        with pytest.raises(SearchError) as caught:
            await search.run([], ".", str(tmp_path), signal, search.cut_at())

    assert caught.value.code == "SEARCH_ABORTED"
    assert time.monotonic() - started < 30


def test_a_partial_failure_keeps_the_result_and_is_told() -> None:
    stderr = "rg: ./u: Permission denied (os error 13)\nrg: ./v: Is a directory (os error 21)\n"

    assert judged(2, stderr) == (
        "Some places could not be searched: ./u: Permission denied (os error 13); "
        "./v: Is a directory (os error 21)",
    )
    many = judged(2, "".join(f"rg: {n}: Permission denied (os error 13)\n" for n in range(9)))
    assert many[0].endswith("; and 4 more")
    assert judged(0, "anything") == judged(1, "") == ()


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (2, "rg: regex parse error:\n    (\n    ^\nerror: unclosed group", "SEARCH_INVALID_PATTERN"),
        (2, "rg: error parsing glob '{a': unclosed", "SEARCH_INVALID_PATTERN"),
        (2, 'rg: the literal "\\n" is not allowed in a regex', "SEARCH_INVALID_PATTERN"),
        (2, "rg: compiled regex exceeds size limit of 104857600", "SEARCH_INVALID_PATTERN"),
        (2, "rg: unrecognized flag --no-config", "SEARCH_FAILED"),
        (2, "", "SEARCH_FAILED"),
        (101, "panicked", "SEARCH_FAILED"),
    ],
)
def test_total_failures_have_their_code(code: int, stderr: str, expected: str) -> None:
    with pytest.raises(SearchError) as caught:
        judged(code, stderr)

    assert caught.value.code == expected


@pytest.mark.parametrize(
    "record",
    [
        b"not json",
        b"[]",
        b'{"type":"match"}',
        b'{"type":"match","data":{"path":{},"lines":{"text":"x"},"line_number":1}}',
        b'{"type":"match","data":{"path":{"text":"a"},"lines":{"text":"x"},"line_number":null}}',
        b'{"type":"match","data":{"path":{"text":"a"},"line_number":1}}',
    ],
)
def test_a_malformed_record_fails_the_search(record: bytes) -> None:
    with pytest.raises(SearchError) as caught:
        parse_matches(record + b"\n", "/")

    assert caught.value.code == "SEARCH_FAILED"


def test_records_other_than_matches_are_passed_over() -> None:
    good = {"type": "match", "data": {"path": {"text": "./a"}, "lines": {"text": "x\r\n"}, "line_number": 7}}

    found = parse_matches(b'{"type":"begin","data":{}}\n' + json.dumps(good).encode() + b"\n", "/")

    assert found == ([{"path": "a", "lineNumber": 7, "line": "x"}], [])


def test_a_long_line_is_cut_on_a_character() -> None:
    assert cut_line("é" * 10, 20) == "é" * 10
    assert cut_line("é" * 10, 19) == "é" * 9 + " (line truncated)"


def test_the_program_is_found_on_the_path_then_beside_the_interpreter_then_not(tmp_path: Path) -> None:
    binary = tmp_path / "rg"
    binary.write_text("#!/bin/sh\n")
    python = str(tmp_path / "python")

    assert find_program("", python).is_fallback
    binary.chmod(0o755)
    assert find_program("", python) == Program((str(binary),))
    assert find_program(str(tmp_path), "/elsewhere/python") == Program((str(binary),))


@aio
async def test_the_stand_in_says_that_it_is_one(tmp_path: Path) -> None:
    plant(tmp_path, a="x")
    async with searching(tmp_path, "fallback") as kit:
        assert (await kit.text("glob", pattern="a")).endswith(f"\n\n({FALLBACK_NOTE})")
        assert (await kit.text("grep", pattern="none")).startswith(
            "No matches found\n\n(ripgrep was not found"
        )


@aio
async def test_the_row_mounts_with_its_one_required_option(tmp_path: Path) -> None:
    rows: Any = ((subprocess, {}), (tool_fs_search, {"sampleOverCapGlobResults": True, "globMaxResults": 2}))
    plant(tmp_path, a__1="", a__2="", b__1="")
    async with mounted(tmp_path, rows) as kit:
        text = await kit.text("glob", pattern="*")

    assert text.startswith("b/1\na/2\n\n(Showing 2 of 3")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"sampleOverCapGlobResults": 1},
        {"sampleOverCapGlobResults": True, "globMaxResults": 0},
        {"sampleOverCapGlobResults": True, "graceMs": 2**31},
        {"sampleOverCapGlobResults": True, "unknown": 1},
    ],
)
@aio
async def test_the_options_are_checked(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        async with mounted(tmp_path, ((subprocess, {}), (tool_fs_search, config))):
            pass


@aio
async def test_searches_declare_their_timeout_and_run_alone(tmp_path: Path) -> None:
    async with searching(tmp_path, timeout_ms=1234) as kit:
        registry = kit.ctx.get(TOOLS)
        assert registry is not None
        for tool in ("glob", "grep"):
            definition = registry.get(tool)
            assert definition is not None
            assert definition.timeout_ms == 1234
            assert definition.is_concurrency_safe is None
            assert definition.resources is None
