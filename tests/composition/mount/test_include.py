"""Includes while they run: their file, their patches, and what is written back into it."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.composition.mount.audit import BootError
from dsh.composition.text.yaml import read_yaml
from dsh.errors import CompositionError
from tests.aio import aio
from tests.composition.layers import write
from tests.composition.tree import Tree, composition, row, rows

SEEN: list[str] = []
CODE = """
from tests.composition.mount.test_include import SEEN
def apply(ctx, config):
    row = ctx.fiber.entry.id
    SEEN.append(f"+{row} {config}")
    return lambda: SEEN.append(f"-{row}")
"""
FILE = """\
# rows of mine
- id: a  # the first
  name: ./plain.py
  config: {n: 1}
- {id: b, name: ./plain.py}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    SEEN.clear()
    before = set(sys.modules)
    write(tmp_path / "plain.py", textwrap.dedent(CODE))
    write(tmp_path / "more.yml", FILE)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("_dsh_file_"):
            del sys.modules[name]


def include(**config: object) -> str:
    return rows({"id": "i", "name": "cordis:include", "config": {"path": "more.yml", **config}})


async def edited(tree: Tree, text: str, *stale: Path) -> None:
    SEEN.clear()
    await tree.loader.reload(composition(tree.folder, text), stale=frozenset(stale))


@aio
async def test_other_patches_apply_to_what_was_read_and_restart_only_what_changes(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        write(folder / "more.yml", "]broken")
        await edited(tree, include(patches=[{"id": "b", "config": 2}]))
        assert SEEN == ["-i:b", "+i:b 2"]
        await edited(tree, include())
        assert SEEN == ["-i:b", "+i:b None"]
        await edited(tree, include(enableLogs=True))
        assert SEEN == []


@aio
async def test_another_path_is_another_include(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        write(folder / "other.yml", "- {id: a, name: ./plain.py, config: {n: 1}}")
        await edited(tree, include(path="other.yml"))
        assert SEEN == ["-i:b", "-i:a", "+i:a {'n': 1}"]


@aio
async def test_a_file_that_changed_is_read_anew_and_one_that_is_broken_changes_nothing(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        path = write(folder / "more.yml", FILE.replace("{n: 1}", "{n: 2}"))
        await edited(tree, include(), path)
        assert SEEN == ["-i:a", "+i:a {'n': 2}"]
        write(path, "]broken")
        with pytest.raises(CompositionError, match=r"more\.yml:1:1"):
            await edited(tree, include(), path)
        path.unlink()
        with pytest.raises(BootError, match="config file not found"):
            await edited(tree, include(), path)
        assert SEEN == []


@aio
async def test_initial_rows_are_written_where_there_is_no_file(folder: Path) -> None:
    initial = [{"id": "z", "name": "./plain.py", "config": {"k": ["x: y", None]}}]
    async with Tree(folder) as tree:
        await tree.load(include(path="new/made.yml", initial=initial))
        assert SEEN == ["+i:z {'k': ['x: y', None]}"]
    assert read_yaml(folder / "new/made.yml") == initial


@aio
async def test_a_start_that_fails_writes_no_initial_rows(folder: Path) -> None:
    bad = rows(
        {"id": "i", "name": "cordis:include", "config": {"path": "made.yml", "initial": []}}, row("absent")
    )
    async with Tree(folder) as tree:
        with pytest.raises(BootError):
            await tree.load(bad)
    assert not (folder / "made.yml").exists()


@aio
async def test_what_happens_to_a_row_is_written_and_comments_stay(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        [a, b] = tree.loader.resolve_group("i")
        assert a.fiber is not None and b.fiber is not None
        await a.fiber.update({"n": 5})
        await b.fiber.dispose()
    assert (folder / "more.yml").read_text() == FILE.replace("{n: 1}", "{n: 5}").replace(
        "{id: b, name: ./plain.py}", "{id: b, name: ./plain.py, disabled: true}"
    )


@aio
async def test_rows_made_changed_and_removed_from_code_are_written(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        assert await tree.loader.create({"id": "c", "name": "./plain.py"}, "i") == "i:c"
        await tree.loader.update("i:a", {"config": {"n": 9}})
        await tree.loader.remove("i:b")
        assert [entry.id for entry in tree.loader.entries] == ["i", "i:a", "i:c"]
        with pytest.raises(CompositionError, match="edit its file to move it"):
            await tree.loader.update("i:a", {}, None)
    text = (folder / "more.yml").read_text()
    assert text.startswith("# rows of mine\n- id: a  # the first\n  name: ./plain.py\n  config: {n: 9}\n")
    assert [found["id"] for found in read_yaml(folder / "more.yml")] == ["a", "c"]


@aio
async def test_a_change_that_began_before_an_earlier_one_was_written_is_written_too(folder: Path) -> None:
    write(
        folder / "plain.py", "import asyncio\nasync def apply(ctx, config):\n    await asyncio.sleep(0.03)\n"
    )
    async with Tree(folder) as tree:
        await tree.load(include())
        for n in range(5):
            await tree.loader.update("i:a", {"config": {"n": n}})
    assert read_yaml(folder / "more.yml")[0]["config"] == {"n": 4}


@aio
async def test_a_file_that_somebody_else_changed_is_not_overwritten(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tree(folder) as tree:
        await tree.load(include())
        write(folder / "more.yml", "[]")
        await tree.loader.remove("i:b")
    assert (folder / "more.yml").read_text() == "[]"
    assert "was changed meanwhile" in caplog.text


@aio
async def test_a_row_that_only_the_patches_bring_is_not_written(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(include(patches=[{"insert": [{"id": "p", "name": "./plain.py"}]}]))
        found = tree.loader.resolve("i:p").fiber
        assert found is not None
        await found.dispose()
        assert tree.loader.audit() == []
        with pytest.raises(CompositionError, match="i:p does not stand in the file of i"):
            await tree.loader.remove("i:p")
    assert (folder / "more.yml").read_text() == FILE


@aio
async def test_rows_of_an_include_are_logged_where_it_or_the_one_around_it_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write(folder / "outer.yml", "- {id: o, name: cordis:include, config: {path: more.yml}}")
    async with Tree(folder) as tree:
        await tree.load(include(path="outer.yml", enableLogs=True))
        await edited(tree, include(path="outer.yml", enableLogs=True), write(folder / "more.yml", "[]"))
        await edited(tree, include())
    assert caplog.messages == [
        "starting i:o (cordis:include)",
        "starting i:o:a (./plain.py)",
        "starting i:o:b (./plain.py)",
        "stopping i:o:b (./plain.py)",
        "stopping i:o:a (./plain.py)",
        "stopping i:o (cordis:include)",
    ]
