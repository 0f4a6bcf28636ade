"""What a search can be told beyond its pattern, which page it shows, and where all of it is kept."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy
from dsh.plugins import spill_local, spill_policy
from dsh.plugins.tool_fs_search.page import LOST
from dsh.plugins.tool_fs_search.program import Program
from dsh.session.log import Session
from dsh.tools.execution import ToolCall, ToolSuccess
from dsh.tools.registry import TOOLS
from tests.aio import aio
from tests.plugins.files import FixedPolicy, text_of
from tests.plugins.searching import both, found, plant, searching


@both
@aio
async def test_capitals_can_count_for_nothing(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a="Needle\nneedle\n")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="needle") == "Found 1 match\n\na\nLine 2: needle"
        assert await found(kit, kind, "grep", pattern="needle", ignore_case=True) == (
            "Found 2 matches\n\na\nLine 1: Needle\nLine 2: needle"
        )


@both
@aio
async def test_lines_around_a_match_are_shown_once_and_gaps_are_marked(tmp_path: Path, kind: str) -> None:
    text = "".join(f"{number}{'x' if number in (2, 4, 9) else ''}\n" for number in range(1, 12))
    plant(tmp_path, a=text, b="x")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="x", context=1) == (
            "Found 4 matches\n\na\nLine 1- 1\nLine 2: 2x\nLine 3- 3\nLine 4: 4x\nLine 5- 5\n--\n"
            "Line 8- 8\nLine 9: 9x\nLine 10- 10\n\nb\nLine 1: x"
        )
        assert await found(kit, kind, "grep", pattern="9x", context=50, path="a") == (
            "Found 1 match\n\na\n"
            + "\n".join(
                f"Line {at}{':' if at == 9 else '-'} {line}" for at, line in enumerate(text.split(), 1)
            )
        )
        paged = await found(kit, kind, "grep", pattern="x", context=1, limit=1, offset=2)
        assert paged.startswith("Found 1 of 4 matches\n\na\nLine 8- 8\nLine 9: 9x\nLine 10- 10\n\n(")


@both
@aio
async def test_a_pattern_can_match_over_several_lines(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, a="one\ntwo\nthree\none\ntwo\n", b="none\n")
    async with searching(tmp_path, kind) as kit:
        assert await found(kit, kind, "grep", pattern="one\ntwo", multiline=True) == (
            "Found 2 matches\n\na\nLine 1: one\nLine 2: two\nLine 4: one\nLine 5: two"
        )
        assert await found(kit, kind, "grep", pattern="(?s)two.*three", multiline=True, context=1) == (
            "Found 1 match\n\na\nLine 1- one\nLine 2: two\nLine 3: three\nLine 4- one"
        )


@both
@aio
async def test_hidden_and_ignored_files_are_in_or_out_as_asked(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".git").mkdir()
    plant(
        tmp_path,
        _dot_gitignore="out/\n", _dot_git__config="x", out__built="x", _dot_env="x", seen="x",
        sub___dot_git__HEAD="x",
    )  # fmt: skip
    async with searching(tmp_path, kind) as kit:

        async def grepped(**more: Any) -> set[str]:
            text = await found(kit, kind, "grep", pattern="x", **more)
            return set(re.findall(r"^(\S+)$", text, re.MULTILINE))

        async def globbed(**more: Any) -> set[str]:
            return set((await found(kit, kind, "glob", pattern="*", **more)).split("\n"))

        assert await grepped() == {"seen"}
        assert await grepped(include_hidden=True) == {"seen", ".env"}
        assert await grepped(include_ignored=True) == {"seen", "out/built"}
        assert await grepped(include="*") == {"seen", ".env", "out/built"}
        assert await grepped(include="*", include_hidden=False) == {"seen", "out/built"}
        assert await grepped(include="*", include_ignored=False) == {"seen", ".env"}
        everything = {"seen", ".env", "out/built", ".gitignore"}
        assert await globbed() == everything
        assert await globbed(include_hidden=False) == {"seen", "out/built"}
        assert await globbed(include_ignored=False) == everything - {"out/built"}
        assert await globbed(include_hidden=False, include_ignored=False) == {"seen"}


@aio
async def test_pages_chain_over_all_results(tmp_path: Path) -> None:
    plant(tmp_path, **{f"f{number}": "x\n" for number in range(7)})
    async with searching(tmp_path, glob_max_results=3, grep_max_matches=3) as kit:
        for tool, more in (("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})):
            seen, offset = [], 0
            while True:
                text = await kit.text(tool, offset=offset, **more)
                seen += re.findall(r"^f\d$", text, re.MULTILINE)
                following = re.search(r"Use offset=(\d+) to see more", text)
                if following is None:
                    break
                offset = int(following[1])
            assert sorted(seen) == [f"f{number}" for number in range(7)], tool
            assert "These are the last ones.)" in text
            beyond = await kit.text(tool, offset=99, **more)
            assert "(Showing 0 of 7" in beyond
            assert beyond.startswith("No more files\n" if tool == "glob" else "Found 0 of 7 matches\n")
            assert "Offset 99 is beyond the last one." in beyond
            one = await kit.text(tool, limit=1.0, **more)
            assert len(re.findall(r"^f\d$", one, re.MULTILINE)) == 1


@aio
async def test_only_the_first_page_is_a_sample(tmp_path: Path) -> None:
    plant(tmp_path, b__x="", a__x="", a__y="", a__z="")
    async with searching(tmp_path, sample_over_cap_glob_results=True, glob_max_results=2) as kit:
        assert await kit.text("glob", pattern="*") == f"a/z\nb/x\n\n(Showing 2 of 4 paths. {LOST})"
        assert await kit.text("glob", pattern="*", offset=1) == (
            "a/y\na/x\n\n(Showing 2 of 4 paths. Use offset=3 to see more.)"
        )


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("glob", {"offset": -1}), ("glob", {"limit": 0}), ("glob", {"limit": 101}), ("grep", {"limit": 251}),
        ("grep", {"offset": 1.5}), ("grep", {"context": -1}), ("grep", {"context": 101}),
        ("grep", {"context": 0.5}),
    ],
)  # fmt: skip
@aio
async def test_rules_about_values_have_no_code(tmp_path: Path, tool: str, arguments: dict[str, Any]) -> None:
    async with searching(tmp_path) as kit:
        assert await kit.code(tool, pattern="x", **arguments) is None
        assert await kit.code(tool, pattern="x", include_hidden="yes") == "INVALID_ARGS"


@aio
async def test_results_over_the_cap_are_kept_where_the_model_can_open_them(tmp_path: Path) -> None:
    workspace, store = tmp_path / "ws", tmp_path / "kept"
    plant(workspace, **{f"f{number}": "x\n" for number in range(5)})
    row = (spill_local, {"root": str(store)})
    async with searching(workspace, "rg", row, glob_max_results=2, grep_max_matches=3) as kit:
        globbed = await kit.text("glob", pattern="*")
        grepped = await kit.text("grep", pattern="x")
        later = await kit.text("glob", pattern="*", offset=2)
        within = await kit.text("glob", pattern="f1")

    files = {path.name[13:]: path for path in store.rglob("*.txt")}
    assert set(files) == {"glob-results.txt", "grep-results.txt"}
    assert files["glob-results.txt"].read_text() == "f4\nf3\nf2\nf1\nf0\n"
    assert files["grep-results.txt"].read_text() == (
        "Found 5 matches\n\n" + "\n\n".join(f"f{number}\nLine 1: x" for number in range(5)) + "\n"
    )
    assert f"2 of 5 paths. Use offset=2 to see more. All of them: {files['glob-results.txt']}. " in globbed
    assert str(files["grep-results.txt"]) in grepped
    assert "All of them" not in later
    assert within == "f1"


@aio
async def test_the_list_of_a_call_that_a_tool_makes_is_not_kept(tmp_path: Path) -> None:
    workspace, store = tmp_path / "ws", tmp_path / "kept"
    plant(workspace, a="", b="")
    async with searching(workspace, "rg", (spill_local, {"root": str(store)}), glob_max_results=1) as kit:
        tools = kit.ctx.get(TOOLS)
        assert tools is not None
        call = ToolCall(
            call_id="c", name="glob", arguments={"pattern": "*"}, agent=kit.owner, parent=object()
        )
        assert LOST in text_of(await tools.run(call))

    assert not list(store.rglob("*.txt"))


@aio
async def test_a_page_that_is_itself_too_long_names_one_file_which_holds_all(tmp_path: Path) -> None:
    workspace, store = tmp_path / "ws", tmp_path / "kept"
    plant(workspace, **{f"f{number}": "x" * 300 + "\n" for number in range(9)})
    rows = (spill_local, {"root": str(store)}), (spill_policy, {"maxInlineBytes": 1000})
    async with searching(workspace, "rg", *rows, grep_max_matches=8) as kit:
        shown = await kit.text("grep", pattern="x")

    [kept] = store.rglob("*.txt")
    assert kept.read_text().count("Line 1: xxx") == 9
    assert shown.count(str(store)) == 1
    assert len(shown) <= 1000
    notice, note = shown.split("\n\n")[-2:]
    assert re.fullmatch(r"\(\d+ bytes left out\.\)", notice)
    assert note.startswith(f"(Showing 8 of 9 matches. Use offset=8 to see more. All of them: {kept}. ")


@aio
async def test_a_store_that_fails_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = tmp_path / "ws"
    plant(workspace, a="", b="")
    (tmp_path / "file").write_text("")
    row = (spill_local, {"root": str(tmp_path / "file" / "below")})
    async with searching(workspace, "rg", row, glob_max_results=1) as kit:
        result = await kit.run("glob", pattern="*")

    assert isinstance(result, ToolSuccess)
    assert "The full list could not be saved" in text_of(result)
    assert "the results of glob were not saved" in caplog.text


class Hiding(FixedPolicy):
    """A policy that hides some paths."""

    def __init__(self, mode: SandboxMode, root: Path, *hidden: Path) -> None:
        super().__init__(mode, str(root))
        self.hidden = tuple(os.path.realpath(path) for path in hidden)

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy:
        return SandboxPolicy(mode or self.default_mode, self.root, hidden_paths=self.hidden)


@both
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@aio
async def test_what_the_policy_hides_is_not_found(tmp_path: Path, kind: str, mode: SandboxMode) -> None:
    plant(tmp_path, keys__id="x", keys2="x", seen="x", sub__token="x", sub__plain="x")
    (tmp_path / "link").symlink_to("keys")
    policy = Hiding(mode, tmp_path, tmp_path / "keys", tmp_path / "sub" / "token")
    note = "What the sandbox policy hides was left out."
    async with searching(tmp_path, kind, policy=policy) as kit:
        for root in (".", str(tmp_path)):
            globbed = await found(kit, kind, "glob", pattern="*", path=root)
            assert set(globbed.split("\n")[:3]) == {"keys2", "seen", "sub/plain"}
            assert note in globbed
            grepped = await found(kit, kind, "grep", pattern="x", path=root)
            assert grepped.startswith("Found 3 matches\n\nkeys2\n")
        for tool in ("glob", "grep"):
            assert re.search(
                rf"\(Showing 1 of 3 .*\)\n(\(ripgrep .*\)\n)?\({note}\)",
                await kit.text(tool, pattern="[ksp]*" if tool == "glob" else "x", limit=1),
            )
        for root in ("keys", "link", "keys/id", "sub/token", "sub/../keys"):
            assert await kit.code("grep", pattern="x", path=root) == "SEARCH_FAILED", root
        assert note not in await kit.text("glob", pattern="*", path="keys2")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self")
@both
@aio
async def test_a_path_that_means_another_place_to_each_process_leads_around_nothing(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, elsewhere = tmp_path / "ws", tmp_path / "else"
    plant(workspace, keys__id="x", seen="x", sub__keys__id="x")
    plant(elsewhere, other="x")
    monkeypatch.chdir(elsewhere)
    policy = Hiding("read-only", workspace, workspace / "keys", workspace / "sub" / "keys")
    async with searching(workspace, kind, policy=policy) as kit:
        for tool, shown in (("glob", f"{elsewhere}/other"), ("grep", f"{elsewhere}/other\nLine 1: x")):
            pattern = "*" if tool == "glob" else "x"
            told = await found(kit, kind, tool, pattern=pattern, path="/proc/self/cwd")
            assert told.removeprefix("Found 1 match\n\n") == shown
            assert await kit.code(tool, pattern=pattern, path="/proc/self/cwd/sub") == "SEARCH_FAILED"


@both
@aio
async def test_a_hidden_path_that_has_become_a_link_hides_what_it_leads_to(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, real__id="x", seen="x")
    policy = Hiding("read-only", tmp_path, tmp_path / "keys")
    (tmp_path / "keys").symlink_to("real")
    async with searching(tmp_path, kind, policy=policy) as kit:
        assert (await found(kit, kind, "glob", pattern="*")).startswith("seen\n\n(")


@both
@aio
async def test_results_are_spelled_from_the_working_directory_where_something_is_hidden(
    tmp_path: Path, kind: str
) -> None:
    workspace, link = tmp_path / "ws", tmp_path / "link"
    plant(workspace, keys__id="x", sub__keys2="x", sub__token="x", seen="x")
    link.symlink_to("ws")
    policy = Hiding("read-only", workspace, workspace / "keys", workspace / "sub" / "token")
    async with searching(link, kind, policy=policy) as kit:
        for root in ("sub", "./sub/", str(link / "sub"), str(workspace / "sub")):
            for pattern in ("*", "sub/*"):
                told = await found(kit, kind, "glob", pattern=pattern, path=root)
                assert told.startswith("sub/keys2\n\n("), (root, pattern)


@aio
async def test_full_access_hides_nothing(tmp_path: Path) -> None:
    plant(tmp_path, keys__id="x")
    policy = Hiding("danger-full-access", tmp_path, tmp_path / "keys")
    async with searching(tmp_path, policy=policy) as kit:
        assert await kit.text("glob", pattern="*") == "keys/id"


@aio
async def test_a_search_that_prints_too_much_is_stopped_and_not_waited_for(tmp_path: Path) -> None:
    endless = Program((sys.executable, "-S", "-c", "while True: print('x' * 1000)"))
    async with searching(tmp_path, endless, raw_output_max_bytes=100_000) as kit:
        assert await kit.code("grep", pattern="y") == "SEARCH_RAW_OUTPUT_OVERFLOW"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
@aio
async def test_a_search_that_fills_the_memory_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsh.plugins.tool_fs_search.program.MAX_MEMORY_BYTES", 64 * 1024 * 1024)
    (tmp_path / "big").write_bytes((b"y" * 200 + b"\n") * 20_000)
    async with searching(tmp_path) as kit:
        assert await kit.code("grep", pattern="y") == "SEARCH_RAW_OUTPUT_OVERFLOW"


@both
@aio
async def test_ten_thousand_files_are_listed_and_searched(tmp_path: Path, kind: str) -> None:
    for folder in range(100):
        (tmp_path / f"d{folder}").mkdir()
        for number in range(100):
            (tmp_path / f"d{folder}" / f"f{number}.py").write_text(f"def f{number}(): return {folder}\n")
    async with searching(tmp_path, kind) as kit:
        assert "Showing 100 of 10000 paths." in await kit.text("glob", pattern="**/*.py")
        assert "Found 250 of 10000 matches" in await kit.text("grep", pattern="^def")
        assert await found(kit, kind, "grep", pattern=r"f7\(\): return 42$") == (
            "Found 1 match\n\nd42/f7.py\nLine 1: def f7(): return 42"
        )
