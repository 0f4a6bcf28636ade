"""Row `file-reference`: what the model is told of `@path`, and which candidates a front end is offered."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.file_references import FILE_REFERENCES, FileCandidate, FileReferences
from dsh.plugins import file_reference, fs_local, fs_observation_policy, tool_fs
from dsh.plugins.file_reference.rank import score
from tests.agent.kit import Loop, calls, data_of, loop, text
from tests.aio import aio

FILES: list[Any] = [(fs_local, {}), (fs_observation_policy, {}), (tool_fs, {})]


@asynccontextmanager
async def mounted(**config: Any) -> AsyncIterator[tuple[Loop, FileReferences]]:
    async with loop(calls(("c1", "nothing", "{}")), text("done"), rows=[(file_reference, config)]) as run:
        yield run, run.ctx.use(FILE_REFERENCES)


def paths(found: tuple[FileCandidate, ...]) -> list[str]:
    return [one.path + ("/" if one.is_directory else "") for one in found]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "main.c",
        "src/main.c",
        "src/domain.c",
        "src/main/x.c",
        "docs/a b.md",
        "node_modules/main.js",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "main").touch()
    (tmp_path / "up").symlink_to("..")
    return tmp_path


# -- the model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_read", [True, False])
@aio
async def test_the_section_is_there_for_who_can_read(has_read: bool) -> None:
    async with loop(rows=[*(FILES if has_read else []), (file_reference, {})]) as run:
        agent = await run.agent()
        await run.prompt(agent, "look at @a.txt")

        [header] = data_of(agent.session, "request/header")
        assert ("`@src/main.c`" in header["header"].get("system", "")) is has_read
        assert "look at @a.txt" in str(run.model.requests[0].messages)


# -- candidates ------------------------------------------------------------------------------------


def test_the_scores_are_those_of_the_specification() -> None:
    assert score("main.c", "src/main.c", is_directory=False) == 1000
    assert score("MAIN", "src/main.c", is_directory=False) == 900
    assert score("main", "src/domain.c", is_directory=False) == 700
    assert score("main", "main/x.c", is_directory=False) == 500
    assert score("mc", "main.c", is_directory=False) == 300 + 100 - 4
    assert score("ac", "a" + "x" * 200 + "c", is_directory=False) == 300
    assert score("src", "src", is_directory=True) == 1025
    assert score("zz", "main.c", is_directory=False) is None


@given(st.text(min_size=1, max_size=8), st.text(max_size=40))
def test_every_score_is_within_its_bounds(query: str, path: str) -> None:
    found = score(query, path, is_directory=False)

    assert found is None or 300 <= found <= 1000
    if query.casefold() in path.casefold():
        assert found is not None


@aio
async def test_the_best_come_first_and_what_is_excluded_not_at_all(tree: Path) -> None:
    async with mounted() as (_, references):
        assert paths(await references.search("main", str(tree))) == [
            "src/main/", "main.c", "src/main.c", "src/domain.c", "src/main/x.c",
        ]  # fmt: skip
        assert paths(await references.search("mn.c", str(tree)))[0] == "main.c"
        assert paths(await references.search("nowhere", str(tree))) == []


@aio
async def test_without_a_name_or_with_a_slash_one_directory_is_listed(tree: Path) -> None:
    async with mounted() as (_, references):
        assert paths(await references.search("", str(tree))) == ["docs/", "main.c", "src/", "up"]
        assert paths(await references.search("src/", str(tree))) == [
            "src/domain.c",
            "src/main/",
            "src/main.c",
        ]
        assert paths(await references.search("./src/ma", str(tree))) == ["src/main/", "src/main.c"]
        assert paths(await references.search("node_modules/", str(tree))) == ["node_modules/main.js"]


@pytest.mark.parametrize(
    "query", ["up/", "../", "/", "/etc/", "src/../../", "src/\0/", "main.c/", "no/such/"]
)
@aio
async def test_nothing_outside_and_nothing_behind_a_link_is_offered(tree: Path, query: str) -> None:
    async with mounted() as (_, references):
        assert await references.search(query, str(tree)) == ()


@aio
async def test_a_path_with_blanks_is_quoted_and_found_again(tree: Path) -> None:
    async with mounted() as (_, references):
        [found] = await references.search("a b", str(tree))
        assert found.reference == '@"docs/a b.md"'
        assert await references.search('"docs/a b.md"', str(tree)) == (found,)
        assert FileCandidate("main.c", False).reference == "@main.c"


@aio
async def test_the_numbers_of_results_and_entries_are_bounded(tree: Path) -> None:
    async with mounted(maxResults=2, maxEntries=3) as (_, references):
        assert len(await references.search("", str(tree))) == 2
        assert paths(await references.search("domain", str(tree))) == []  # beyond the third entry


@aio
async def test_other_names_can_be_excluded(tree: Path) -> None:
    async with mounted(excludedDirectories=["src"]) as (_, references):
        assert "node_modules/main.js" in paths(await references.search("main", str(tree)))
        assert "src/main.c" not in paths(await references.search("main", str(tree)))


@aio
async def test_the_result_of_a_tool_makes_the_search_look_again(tree: Path) -> None:
    async with mounted() as (run, references):
        agent = await run.agent(cwd=str(tree))
        assert paths(await references.search("new", str(tree))) == []
        (tree / "new.txt").touch()
        assert paths(await references.search("new", str(tree))) == []

        await run.prompt(agent, "go")

        assert paths(await references.search("new", str(tree))) == ["new.txt"]


@aio
async def test_a_name_that_no_text_can_hold_is_left_out_and_a_directory_that_is_gone_is_empty(
    tmp_path: Path,
) -> None:
    (tmp_path / os.fsdecode(b"b\xffd")).touch()
    (tmp_path / "good").touch()
    async with mounted() as (_, references):
        assert paths(await references.search("", str(tmp_path))) == ["good"]
        assert await references.search("x", str(tmp_path / "gone")) == ()
