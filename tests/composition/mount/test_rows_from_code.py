"""Rows that are made, changed, moved and removed by code, and what a running row does to itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.composition.mount.audit import BootError
from dsh.composition.mount.loader import LOADER
from dsh.composition.mount.transaction import StageError
from dsh.errors import CompositionError
from dsh.kernel import Fiber
from tests.aio import aio
from tests.composition.tree import Tree, composition, group, plugin_files, row, rows

SEEN: list[str] = []

CODE = {
    "plain": """
        from tests.composition.mount.test_rows_from_code import SEEN
        def apply(ctx, config):
            row = ctx.fiber.entry.id
            SEEN.append(f"+{row} {config}")
            return lambda: SEEN.append(f"-{row}")
    """,
    "strict": """
        import msgspec
        class Config(msgspec.Struct, forbid_unknown_fields=True):
            k: int = 5
            j: int = 6
        def apply(ctx, config): ...
    """,
    "fails": "def apply(ctx): raise RuntimeError('it broke')",
    "waits": "inject = ['ghost']\ndef apply(ctx): ...",
    "late": """
        from tests.composition.mount.test_rows_from_code import SEEN
        inject = {"loader": {"await": True}}
        def apply(ctx): SEEN.append("+late")
    """,
    "once": """
        from tests.composition.mount.test_rows_from_code import SEEN
        async def apply(ctx):
            SEEN.append("+once")
            ctx.effect(lambda: lambda: SEEN.append("-once"))
            await ctx.fiber.dispose()
    """,
    "slow": """
        import asyncio
        from tests.composition.mount.test_rows_from_code import SEEN
        async def apply(ctx):
            for _ in range(20): await asyncio.sleep(0)
            SEEN.append("+slow")
    """,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    SEEN.clear()
    with plugin_files(tmp_path, CODE):
        yield tmp_path


def ids(tree: Tree) -> list[str]:
    return [entry.id for entry in tree.loader.entries]


def fiber(tree: Tree, entry_id: str) -> Fiber:
    found = tree.loader.resolve(entry_id).fiber
    assert found is not None
    return found


@aio
async def test_a_row_is_made_changed_moved_and_removed(folder: Path) -> None:
    plain = str(folder / "plain.py")
    async with Tree(folder) as tree:
        await tree.load(rows(group("g", row("plain", "a")), row("plain", "b")))
        loader = tree.root.use(LOADER)
        assert await loader.create({"id": "c", "name": plain, "config": {"n": 1}}, "g", 0) == "c"
        made = await loader.create({"name": plain})
        assert len(made) == 8
        assert ids(tree) == ["g", "c", "a", "b", made]
        await loader.update("c", {"config": {"n": 2}})
        await loader.update("c", {}, None, 0)
        assert ids(tree) == ["c", "g", "a", "b", made]
        await loader.remove(made)
        assert SEEN[2:] == [
            "+c {'n': 1}",
            f"+{made} None",
            "-c",
            "+c {'n': 2}",
            "-c",
            "+c {'n': 2}",
            f"-{made}",
        ]
        assert [entry.id for entry in loader.resolve_group("g")] == ["a"]
        assert [entry.id for entry in loader.resolve_group()] == ["c", "g", "b"]
        assert loader.locate(fiber(tree, "c")) is loader.resolve("c")


@aio
async def test_what_cannot_be_is_refused_and_leaves_everything(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain", "a", config=1), row("strict")))
        before = tree.loader.resolve("a").row
        fails = {"id": "f", "name": str(folder / "fails.py")}
        with pytest.raises(StageError, match=r"failed to apply loader entry f \(.*RuntimeError: it broke"):
            await tree.loader.create(fails)
        for wrong, says in (
            ({"id": "x", "name": "./absent.py"}, "failed to import loader entry x .*plugin file not found"),
            ({"id": "a", "name": str(folder / "plain.py")}, "duplicate loader entry id: a"),
            ({"id": "a:b", "name": "x"}, "must not hold a colon"),
            ({"name": 5}, "needs a name"),
        ):
            with pytest.raises(CompositionError, match=says):
                await tree.loader.create(wrong)
        with pytest.raises(CompositionError, match=r"b \(.*carries no rows|there is no row"):
            await tree.loader.create(fails, "b")
        with pytest.raises(CompositionError, match=r"a .*carries no rows"):
            await tree.loader.create(fails, "a")
        with pytest.raises(CompositionError, match=r"failed to apply loader entry strict .*expected integer"):
            await tree.loader.update("strict", {"config": {"k": "x"}})
        with pytest.raises(CompositionError, match="there is no row 'ghost'"):
            await tree.loader.remove("ghost")
        assert ids(tree) == ["a", "strict"]
        assert tree.loader.resolve("a").row is before
        assert SEEN == ["+a 1"]


@aio
async def test_a_row_that_only_waits_may_be_made(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        await tree.loader.create({"id": "w", "name": str(folder / "waits.py")})
        assert [report.id for report in tree.loader.audit()] == ["w"]
        await tree.loader.await_()


@aio
async def test_what_code_changed_survives_edits_of_files_that_leave_its_row_alone(folder: Path) -> None:
    async with Tree(folder) as tree:
        first = [row("plain", "a"), row("plain", "b"), row("plain", "c")]
        await tree.load(rows(*first))
        await tree.loader.update("a", {"config": 1})
        await tree.loader.remove("b")
        await tree.loader.create({"id": "n", "name": str(folder / "plain.py")})
        SEEN.clear()
        await tree.loader.reload(composition(folder, rows(*first[:2], row("plain", "c", config=3))))
        assert SEEN == ["-c", "+c 3"]
        assert ids(tree) == ["a", "c", "n"]
        SEEN.clear()
        second = rows(row("plain", "a", config=2), row("plain", "b", config=2), row("plain", "c", config=3))
        await tree.loader.reload(composition(folder, second))
        assert sorted(SEEN) == ["+a 2", "+b 2", "-a"]
        assert ids(tree) == ["a", "b", "c", "n"]


@aio
async def test_a_row_that_ends_itself_is_switched_off_and_stays_so(folder: Path) -> None:
    async with Tree(folder) as tree:
        text = rows(group("g", row("plain", "a"), row("plain", "b")))
        await tree.load(text)
        await fiber(tree, "a").dispose()
        assert tree.loader.audit() == []
        assert tree.loader.resolve("a").row.disabled is True
        await tree.loader.reload(composition(folder, text))
        assert SEEN == ["+a None", "+b None", "-a"]
        await tree.loader.reload(composition(folder, rows(group("g", row("plain", "a", config=1)))))
        assert SEEN[3:] == ["-b", "+a 1"]


@aio
async def test_a_row_that_ends_itself_while_the_tree_starts_or_is_edited_is_switched_off_too(
    folder: Path,
) -> None:
    async with Tree(folder) as tree:
        once = [row("once"), row("slow")]
        assert await tree.load(rows(*once)) == []
        assert SEEN == ["+once", "-once", "+slow"]
        assert tree.loader.resolve("once").row.disabled is True
        more = rows(*once, row("once", "o2"), row("slow", "s2"))
        await tree.loader.reload(composition(folder, more))
        await tree.loader.create({"id": "o3", "name": str(folder / "once.py")})
        assert SEEN[3:] == ["+once", "-once", "+slow", "+once", "-once"]
        await tree.loader.reload(composition(folder, rows(*once, row("once", "o2"), row("plain"))))
        assert SEEN[8:] == ["+plain None"]
        assert [e.id for e in tree.loader.entries if e.is_disabled] == ["once", "o2", "o3"]


@aio
async def test_a_row_that_ended_itself_in_an_edit_that_was_undone_starts_when_it_is_tried_again(
    folder: Path,
) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        for _ in range(2):
            with pytest.raises(BootError):
                await tree.loader.reload(composition(folder, rows(row("once"), row("slow"), row("fails"))))
        assert SEEN.count("+once") == 2
        assert ids(tree) == ["plain"]
        assert tree.loader.steps == []


@aio
async def test_a_config_given_to_a_running_row_is_kept_without_its_defaults(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("strict", config={"k": 1}), row("plain")))
        await fiber(tree, "strict").update({"k": 2, "j": 6})
        assert tree.loader.resolve("strict").row.config == {"k": 2}
        await fiber(tree, "plain").update({"x": [1]}, no_save=True)
        assert tree.loader.resolve("plain").row.config is None


@aio
async def test_a_config_given_to_a_row_that_waits_or_has_failed_is_kept_too(folder: Path) -> None:
    async with Tree(folder) as tree:
        text = rows(row("waits", config={"n": 1}), row("fails"), row("plain"))
        await tree.load(text)
        await fiber(tree, "waits").update({"n": 2})
        await fiber(tree, "fails").update([3])
        await fiber(tree, "waits").update({"n": 9}, no_save=True)
        assert tree.loader.resolve("waits").row.config == {"n": 2}
        assert tree.loader.resolve("fails").row.config == [3]
        tree.root.provide("ghost", {})
        await tree.loader.settled()
        assert fiber(tree, "waits").config == {"n": 9}


@aio
async def test_a_row_can_wait_for_a_settled_tree(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(
            rows(
                row("late"),
                row("slow"),
                row("plain", inject=["loader"], intercept={"loader": {"await": True}}),
            )
        )
        assert found == []
        assert SEEN[0] == "+slow"
        assert sorted(SEEN[1:]) == ["+late", "+plain None"]
        SEEN.clear()
        more = rows(row("late"), row("slow"), row("plain"), row("slow", "s2"), row("late", "l2"))
        await tree.loader.reload(composition(folder, more))
        assert SEEN == ["-plain", "+plain None", "+slow", "+late"]


@aio
async def test_tasks_are_seen_and_failures_are_raised_by_waiting(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("fails"), row("slow")))
        with pytest.raises(RuntimeError, match="it broke"):
            await tree.loader.await_()
        assert tree.loader.get_tasks() == []
        await fiber(tree, "slow").restart()
        await tree.load(rows())
    async with Tree(folder) as tree:
        await tree.load(rows(row("fails"), row("fails", "f2")))
        with pytest.raises(ExceptionGroup, match="loader fibers failed"):
            await tree.loader.await_()
