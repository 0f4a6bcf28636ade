"""Failures after the start: each is told once, by the edit that causes it or when it happens."""

import asyncio
from pathlib import Path

import pytest

from tests.aio import aio
from tests.composition.layers import write
from tests.composition.tree import Tree, composition, row, rows

CODE = {
    "plain": "def apply(ctx, config): pass\n",
    "fails": "def apply(ctx): raise ValueError('it broke')\n",
    "parent": "def apply(ctx): ctx.plugin(lambda c: c.effect(lambda: 3), name='child')\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in CODE.items():
        write(tmp_path / f"{name}.py", text)
    return tmp_path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return told


@aio
async def test_an_optional_row_that_an_edit_leaves_down_is_told_by_the_first_such_edit(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        tree.loader.require_active()
        for n, told in enumerate((1, 0)):
            edit = rows(row("plain", config={"n": n}), row("fails", optional=True))
            await tree.loader.reload(composition(folder, edit))
            lines = warnings(caplog)
            assert len(lines) == told, lines
            assert all(line.startswith("optional row fails (./fails.py): ValueError: it") for line in lines)


@aio
async def test_an_edit_that_is_undone_tells_nothing_but_its_own_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        tree.loader.require_active()
        with pytest.raises(Exception, match="it broke"):
            await tree.loader.reload(composition(folder, rows(row("plain"), row("fails"))))

    assert warnings(caplog) == []


@aio
async def test_what_fails_inside_a_row_made_from_code_is_told_after_the_edit(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        tree.loader.require_active()
        await tree.loader.create({"id": "parent", "name": str(folder / "parent.py")})
        [line] = warnings(caplog)
        assert line.startswith("parent (")
        assert "child inside it failed: TypeError: Invalid effect: 3" in line


@aio
async def test_a_failure_of_the_start_is_left_to_its_own_report(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tree(folder) as tree:
        assert len(await tree.load(rows(row("fails")))) == 1
        assert warnings(caplog) == []
        entry = tree.loader.resolve("fails")
        assert entry.fiber is not None
        await asyncio.gather(entry.fiber.restart(), return_exceptions=True)

    assert warnings(caplog) == []
