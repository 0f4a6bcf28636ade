"""What globs and ignore files mean: the same to the search program and to its stand-in."""

from pathlib import Path
from typing import Any

import pytest

from tests.aio import aio
from tests.plugins.searching import both, found, plant, searching


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("src", ""),
        ("src/", ""),
        ("src/*", "src/a.py src/[x].ts"),
        ("src/**", "src/a.py src/[x].ts src/in/a.py"),
        ("/src/*.py", "src/a.py"),
        ("/*.py", "a.py"),
        ("**/src/a.py", "src/a.py"),
        ("src/**/a.py", "src/a.py src/in/a.py"),
        ("**", "#a# a.py src/a.py src/[x].ts src/in/a.py"),
        ("s*", ""),
        ("?.py", "a.py src/a.py src/in/a.py"),
        ("[!b-z].py", "a.py src/a.py src/in/a.py"),
        ("\\[x].t[s]", "src/[x].ts"),
        ("{src/{in,out},x}/*.{py,ts}", "src/in/a.py"),
        ("#*", "#a#"),
        ("!#*", "a.py src/a.py src/[x].ts src/in/a.py"),
        ("!src", "#a# a.py"),
        ("!src/", "#a# a.py"),
        ("!in/", "#a# a.py src/a.py src/[x].ts"),
        ("!a.py/", "#a# a.py src/a.py src/[x].ts src/in/a.py"),
        ("a.py/", ""),
        ("src[!a]a.py", "src/a.py"),
        ("[[]x].ts", "src/[x].ts"),
        ("!src/*.py", "#a# a.py src/[x].ts src/in/a.py"),
    ],
)
@both
@aio
async def test_a_glob_names_files_and_not_what_is_below_them(
    tmp_path: Path, kind: str, pattern: str, expected: str
) -> None:
    plant(
        tmp_path,
        **{"a_dot_py": "", "#a#": "", "src__a_dot_py": "", "src__in__a_dot_py": "", "src__[x].ts": ""},
    )
    async with searching(tmp_path, kind) as kit:
        text = await found(kit, kind, "glob", pattern=pattern)

    assert sorted(text.replace("No files found", "").split()) == sorted(expected.split())


@both
@aio
async def test_gitignore_counts_in_repositories_and_begins_anew_in_each(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, _dot_gitignore="a\n", _dot_ignore="b\n", a="x", b="x", sub__a="x", sub__b="x", sub__c="x")
    async with searching(tmp_path, kind) as kit:

        async def grepped(**more: Any) -> list[str]:
            text = await found(kit, kind, "grep", pattern="x", **more)
            return [line for line in text.split("\n")[1:] if line and not line.startswith("Line ")]

        assert await grepped() == ["a", "sub/a", "sub/c"]
        (tmp_path / ".git").mkdir()
        assert await grepped() == await grepped(path="sub") == ["sub/c"]
        (tmp_path / "sub" / ".git").mkdir()
        assert await grepped() == await grepped(path="sub") == ["sub/a", "sub/c"]
        plant(tmp_path, sub___dot_gitignore="c\n", sub___dot_ignore="!b\n!c\n")
        assert await grepped() == await grepped(path="sub") == ["sub/a", "sub/b", "sub/c"]


@both
@aio
async def test_a_folder_that_is_asked_for_is_searched_though_a_rule_leaves_it_out(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / ".git").mkdir()
    plant(tmp_path, _dot_gitignore="build/\n", build__in__a="x", build__b="x")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="x") == "No matches found"
        for path in ("build", "build/", str(tmp_path / "build")):
            text = await found(kit, kind, "grep", pattern="x", path=path)
            assert text == "Found 2 matches\n\nbuild/b\nLine 1: x\n\nbuild/in/a\nLine 1: x", path


@both
@aio
async def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a=b"\xef\xbb\xbfneedle\n")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="^needle$") == "Found 1 match\n\na\nLine 1: needle"


@both
@aio
async def test_include_may_begin_with_a_hash(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, **{"#a#": "x", "b": "x"})
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="x", include="#*") == "Found 1 match\n\n#a#\nLine 1: x"


@aio
async def test_a_file_with_a_late_nul_is_no_text_to_the_stand_in(tmp_path: Path) -> None:
    plant(tmp_path, f=b"x\n" * 5_000 + b"\0", g="x\n")
    async with searching(tmp_path, "fallback") as kit:
        assert await found(kit, "fallback", "grep", pattern="x") == "Found 1 match\n\ng\nLine 1: x"


@both
@aio
async def test_a_folder_that_is_asked_for_is_searched_though_an_own_rule_leaves_it_out(
    tmp_path: Path, kind: str
) -> None:
    plant(tmp_path, out__f="x\n", _dot_ignore="out\n")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="x") == "No matches found"
        assert (await found(kit, kind, "grep", pattern="x", path="out")).endswith("out/f\nLine 1: x")
