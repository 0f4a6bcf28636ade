"""Edits of a mounted tree: what restarts and what does not, what is refused, and what a failed one leaves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.composition.mount.audit import BootError
from dsh.composition.mount.event import CONFIG_UPDATE, ENTRY_INIT, PARTIAL_DISPOSE
from dsh.composition.mount.transaction import Refused, StageError
from dsh.kernel import FiberState
from tests.aio import aio
from tests.composition.layers import write
from tests.composition.tree import Tree, composition, group, plugin_files, row, rows

SEEN: list[str] = []
"""What the plugins of these tests do: `+id config` at activation, `-id` when they are undone."""

CODE = {
    "plain": """
        from tests.composition.mount.test_reload import SEEN
        def apply(ctx, config):
            row = ctx.fiber.entry.id
            SEEN.append(f"+{row} {config}")
            return lambda: SEEN.append(f"-{row}")
    """,
    "gives": """
        from tests.composition.mount.test_reload import SEEN
        def apply(ctx, config):
            row = ctx.fiber.entry.id
            SEEN.append(f"+{row} {config}")
            ctx.effect(lambda: (lambda: SEEN.append(f"-{row}")))
            ctx.provide("a", {"from": row, "config": config})
    """,
    "needs": """
        from tests.composition.mount.test_reload import SEEN
        inject = ["a"]
        def apply(ctx, config):
            row = ctx.fiber.entry.id
            SEEN.append(f"+{row} {ctx.get('a')['from']}")
            return lambda: SEEN.append(f"-{row}")
    """,
    "fails": """
        from tests.composition.mount.test_reload import SEEN
        def apply(ctx, config):
            SEEN.append("+fails")
            ctx.effect(lambda: (lambda: SEEN.append("-fails")))
            raise RuntimeError("it broke")
    """,
    "strict": """
        import msgspec
        from tests.composition.mount.test_reload import SEEN
        class Config(msgspec.Struct, forbid_unknown_fields=True):
            k: int = 5
        def apply(ctx, config):
            SEEN.append(f"+strict {config.k}")
            return lambda: SEEN.append("-strict")
    """,
    "stuck": """
        import asyncio
        async def apply(ctx, config):
            await asyncio.Event().wait()
    """,
    "broken": "raise ValueError('at import')",
    "parent": """
        def bad(ctx): raise RuntimeError("inside")
        def apply(ctx, config):
            if config: ctx.plugin(bad, name="child")
    """,
    "holds": """
        inject = ["a"]
        def apply(ctx, config): ctx.fiber.hold("holds is busy")
    """,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    SEEN.clear()
    with plugin_files(tmp_path, CODE):
        yield tmp_path


async def edited(tree: Tree, *texts: str) -> tuple[str, ...]:
    """Bring the tree to other layers; only what this did is in SEEN afterwards."""
    SEEN.clear()
    return await tree.loader.reload(composition(tree.folder, *texts))


def states(tree: Tree) -> dict[str, str]:
    return {e.id: e.fiber.state.name if e.fiber else "-" for e in tree.loader.entries}


@aio
async def test_only_the_row_that_changed_restarts(folder: Path) -> None:
    async with Tree(folder) as tree:
        first = [row("plain", f"p{n}", config={"n": n}) for n in range(4)]
        await tree.load(rows(*first))
        uids = {entry.fiber.uid for entry in tree.loader.entries if entry.fiber}
        second = [dict(r, config={"n": 9}) if r["id"] == "p2" else r for r in first]
        assert await edited(tree, rows(*reversed(second))) == ("p2",)
        assert SEEN == ["-p2", "+p2 {'n': 9}"]
        assert uids == {entry.fiber.uid for entry in tree.loader.entries if entry.fiber}


@aio
async def test_the_same_again_changes_nothing(folder: Path) -> None:
    async with Tree(folder) as tree:
        text = rows(
            row("plain", config={"a": [1, None]}), group("g", row("plain", "q")), {"name": "./plain.py"}
        )
        await tree.load(text)
        assert await edited(tree, text) == ()
        assert SEEN == []


@pytest.mark.parametrize("value", [True, 1.5, "1", [1], None])
@aio
async def test_a_value_of_another_kind_is_another_config(folder: Path, value: Any) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain", config={"a": 1})))
        assert await edited(tree, rows(row("plain", config={"a": value}))) == ("plain",)


@aio
async def test_rows_appear_go_and_are_switched_off_and_on(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain", "a"), row("plain", "b")))
        assert await edited(tree, rows(row("plain", "b"), row("plain", "c"))) == ("a", "c")
        assert SEEN == ["-a", "+c None"]
        assert await edited(tree, rows(row("plain", "b", disabled=True), row("plain", "c"))) == ("b",)
        assert SEEN == ["-b"]
        assert await edited(tree, rows(row("plain", "b"), row("plain", "c"))) == ("b",)
        assert SEEN == ["+b None"]


@aio
async def test_a_provider_can_be_swapped_for_one_with_another_id_in_one_edit(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("gives", "one"), row("needs"), row("plain")))
        assert await edited(tree, rows(row("gives", "two"), row("needs"), row("plain"))) == ("one", "two")
        assert SEEN == ["-needs", "-one", "+two None", "+needs two"]


@aio
async def test_users_stop_before_providers_and_start_after_them(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("needs"), row("gives")))
        await edited(tree, "- insert: []")
        assert SEEN == ["-needs", "-gives"]
        await edited(tree, rows(row("needs"), row("gives")))
        assert SEEN == ["+gives None", "+needs gives"]


@aio
async def test_a_provider_and_its_user_that_change_together_restart_once(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("gives", config={"n": 1}), row("needs", config={"n": 1})))
        await edited(tree, rows(row("gives", config={"n": 2}), row("needs", config={"n": 2})))
        assert sorted(SEEN) == ["+gives {'n': 2}", "+needs gives", "-gives", "-needs"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row("fails"), "RuntimeError: it broke"),
        (row("needs", "n2", inject=["ghost"]), "pending (waiting for service(s): ghost)"),
        (row("parent", config=1), "child inside it failed: RuntimeError: inside"),
    ],
)
@aio
async def test_an_edit_with_a_row_that_does_not_come_up_is_undone(
    folder: Path, bad: dict[str, Any], says: str
) -> None:
    async with Tree(folder) as tree:
        good = [row("gives", "g1"), row("needs"), row("plain", config=1), row("plain", "gone")]
        await tree.load(rows(*good))
        before = composition(folder, rows(*good)).rows
        with pytest.raises(BootError) as caught:
            await edited(tree, rows(row("gives", "g2"), row("needs"), row("plain", config=2), bad))
        assert says in str(caught.value)
        assert set(states(tree).values()) == {"ACTIVE"}
        assert [entry.row for entry in tree.loader.entries] == before
        assert tree.root.get("a")["from"] == "g1"
        assert SEEN[-1].startswith("+") and "+plain 1" in SEEN and "+needs g1" in SEEN
        assert await edited(tree, rows(*good)) == ()
        assert await edited(tree, rows(row("gives", "g2"), row("needs"))) == ("g1", "plain", "gone", "g2")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row("broken"), "ValueError: at import"),
        (row("absent"), "plugin file not found"),
        (row("strict", config={"k": "x"}), "expected integer but got string"),
        (row("plain", "g", config={"v": "EXPR"}), "there is no 'nope'"),
        (row("plain", "g", group=True, config=[]), "only cordis:group carries rows"),
    ],
)
@aio
async def test_what_can_be_judged_before_anything_runs_touches_nothing(
    folder: Path, bad: dict[str, Any], says: str
) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain", config=1), row("plain", "gone")))
        text = rows(row("plain", config=2), bad)
        text = (
            text
            if "EXPR" not in text
            else "- insert: [{id: e, name: ./plain.py, config: {v: !expr 'json(\"{}\").nope'}}]"
        )
        with pytest.raises(BootError, match=says.replace("(", r"\(")):
            await edited(tree, text)
        assert SEEN == []
        assert states(tree) == {"plain": "ACTIVE", "gone": "ACTIVE"}


@aio
async def test_an_optional_row_that_fails_does_not_undo_an_edit(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        edit = rows(row("plain", "p"), row("fails", optional=True), row("broken", optional=True))
        assert await edited(tree, edit) == ("plain", "p", "fails", "broken")
        assert states(tree) == {"p": "ACTIVE", "fails": "FAILED", "broken": "-"}


@aio
async def test_what_is_held_is_not_restarted_by_its_own_row_or_by_what_it_uses(folder: Path) -> None:
    async with Tree(folder) as tree:
        stay = [row("gives"), row("holds"), row("plain")]
        await tree.load(rows(*stay))
        for other in (
            [row("gives", config=1), *stay[1:]],
            [stay[0], row("holds", config=1), stay[2]],
            stay[:1],
            [row("gives", isolate={"a": True}), *stay[1:]],
        ):
            with pytest.raises(Refused, match="holds is busy"):
                await edited(tree, rows(*other))
            assert SEEN == []
        await edited(tree, rows(stay[0], stay[1], row("plain", config=1)))
        assert SEEN == ["-plain", "+plain 1"]


@aio
async def test_a_group_that_is_switched_off_stops_what_is_inside_and_stays(folder: Path) -> None:
    async with Tree(folder) as tree:
        inner = [row("plain", "a"), group("h", row("plain", "b"))]
        await tree.load(rows(group("g", *inner)))
        await edited(tree, rows(group("g", *inner, disabled=True)))
        assert sorted(SEEN) == ["-a", "-b"]
        assert states(tree) == {"g": "ACTIVE", "a": "-", "h": "-", "b": "-"}
        await edited(tree, rows(group("g", *inner)))
        assert sorted(SEEN) == ["+a None", "+b None"]
        await edited(tree, rows(group("g", row("plain", "a"), group("h", row("plain", "b", config=1)))))
        assert SEEN == ["-b", "+b 1"]


@aio
async def test_a_row_that_moves_into_a_group_is_another_one(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain"), group("g")))
        await edited(tree, rows(group("g", row("plain"))))
        assert SEEN == ["-plain", "+plain None"]


@aio
async def test_another_plugin_or_another_inject_is_another_fiber(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("gives"), row("plain", "x")))
        before = tree.loader.entries[1].fiber
        await edited(tree, rows(row("gives"), {"id": "x", "name": "./strict.py"}))
        assert SEEN == ["-x", "+strict 5"]
        middle = tree.loader.entries[1].fiber
        await edited(tree, rows(row("gives"), {"id": "x", "name": "./strict.py", "inject": ["a"]}))
        assert SEEN == ["-strict", "+strict 5"]
        assert len({before, middle, tree.loader.entries[1].fiber}) == 3


@aio
async def test_the_events_of_an_edit(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain", "a"), row("plain", "b"), row("plain", "c")))
        heard: list[Any] = []
        tree.root.on(ENTRY_INIT, lambda entry: heard.append(("init", entry.id)))
        tree.root.on(PARTIAL_DISPOSE, lambda said: heard.append((said.entry.id, said.still_active)))
        tree.root.on(CONFIG_UPDATE, lambda ids: heard.append(ids))
        await edited(tree, rows(row("plain", "b", inject=[]), {"id": "c", "name": "./strict.py"}))
        assert heard == [("init", "c"), ("c", True), ("a", False), ("c", "a")]
        heard.clear()
        with pytest.raises(BootError):
            await edited(tree, rows(row("absent")))
        assert heard == []


@aio
async def test_an_optional_row_that_was_given_up_is_tried_again_only_when_it_changes(folder: Path) -> None:
    async with Tree(folder) as tree:
        tree.loader.bound_s = 0.05
        stuck = row("stuck", optional=True)
        await tree.load(rows(row("plain"), stuck))
        given_up = tree.loader.resolve("stuck")
        assert (given_up.fiber, given_up.is_given_up) == (None, True)
        assert await edited(tree, rows(row("plain", config=1), stuck)) == ("plain",)
        assert SEEN == ["-plain", "+plain 1"]
        again = rows(row("plain", config=1), row("plain", "stuck", optional=True))
        assert await edited(tree, again) == ("stuck",)
        assert states(tree) == {"plain": "ACTIVE", "stuck": "ACTIVE"}


@aio
async def test_a_config_that_does_not_fit_once_its_services_are_read_is_not_applied(folder: Path) -> None:
    async with Tree(folder) as tree:
        both = (
            "- insert: [{id: g, name: ./gives.py, config: %s}, {id: strict, name: ./strict.py, inject: [a], "
        )
        text = both + "config: {k: !expr '%s'}}]"
        await tree.load(text % (5, 'svc.a["config"]'))
        for wrong in (text % (5, 'str(svc.a["config"])'), text % ("x", 'svc.a["config"]')):
            with pytest.raises(
                BootError, match=r"strict .* expected integer but got string \(at k\), which comes"
            ):
                await edited(tree, wrong)
            entry = tree.loader.resolve("strict")
            assert entry.fiber is not None
            assert (entry.fiber.config.k, entry.report()) == (5, None)
        await edited(tree, text % (6, 'svc.a["config"]'))
        assert SEEN[-1] == "+strict 6"


@aio
async def test_a_row_that_never_comes_up_is_given_up_and_undone(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        tree.loader.bound_s = 0.05
        with pytest.raises(Exception, match=r"stuck \(\./stuck\.py\): still loading after 0\.05 s"):
            await edited(tree, rows(row("plain", config=1), row("stuck")))
        assert states(tree) == {"plain": "ACTIVE"}
        assert SEEN[-1] == "+plain None"


@aio
async def test_a_tree_that_cannot_be_put_back_says_both(folder: Path) -> None:
    write(
        folder / "once.py",
        "n = []\ndef apply(ctx, config):\n    if n: raise RuntimeError('only once')\n    n.append(1)\n",
    )
    async with Tree(folder) as tree:
        await tree.load(rows(row("once"), row("plain")))
        with pytest.raises(StageError) as caught:
            await edited(tree, rows(row("fails"), row("plain", config=1)))
        assert caught.value.stage == "rollback"
        assert "failed to rollback loader entry once (./once.py): " in str(caught.value)
        assert "only once" in str(caught.value) and "it broke" in str(caught.value)
        once, plain = tree.loader.entries
        assert (once.is_broken, plain.is_broken) == (True, False)
        assert states(tree) == {"once": "FAILED", "plain": "ACTIVE"}


@aio
async def test_rows_without_id_keep_their_fibers_when_others_come_before_them(folder: Path) -> None:
    async with Tree(folder) as tree:
        one, two = {"name": "./plain.py", "config": 1}, {"name": "./plain.py", "config": 2}
        await tree.load(rows(one, two))
        await edited(tree, rows({"name": "./plain.py", "config": 0}, two, one))
        assert len(SEEN) == 1 and SEEN[0].endswith(" 0")
        await edited(tree, rows(two))
        assert sorted(entry.split()[0][0] for entry in SEEN) == ["-", "-"]


@aio
async def test_a_service_of_the_row_is_gone_with_it_and_nothing_is_left(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("plain")))
        counts = (len(tree.root.kernel.impls), tree.root.kernel.events.count())
        for _ in range(10):
            await edited(tree, rows(row("plain"), row("gives"), row("needs"), group("g", row("plain", "q"))))
            await edited(tree, rows(row("plain")))
        assert (len(tree.root.kernel.impls), tree.root.kernel.events.count()) == counts
        assert [e.fiber.state for e in tree.loader.entries if e.fiber] == [FiberState.ACTIVE]


@aio
async def test_other_realms_and_intercepts_are_taken_without_a_restart_of_the_row(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(row("gives"), row("needs"), row("plain")))
        await edited(
            tree,
            rows(row("gives"), row("needs"), row("plain", isolate={"a": True}, intercept={"a": {"n": 1}})),
        )
        assert SEEN == []
        fiber = tree.loader.resolve("plain").fiber
        assert fiber is not None
        plain = fiber.ctx
        assert (plain.get("a"), plain.intercepted("a")) == (None, {"n": 1})
        both: dict[str, Any] = {"isolate": {"a": "x"}}
        await edited(tree, rows(row("gives", **both), row("needs", **both), row("plain")))
        assert "+gives None" not in SEEN
        assert (plain.get("a"), plain.intercepted("a")) == (None, {})
        assert states(tree) == dict.fromkeys(["gives", "needs", "plain"], "ACTIVE")
        await edited(tree, rows(row("gives"), row("needs"), row("plain")))
        assert plain.get("a")["from"] == "gives"


@aio
async def test_two_providers_change_places(folder: Path) -> None:
    async with Tree(folder) as tree:
        x: dict[str, Any] = {"isolate": {"a": "x"}}
        await tree.load(rows(row("gives", "one"), row("gives", "two", **x), row("needs")))
        await edited(tree, rows(row("gives", "one", **x), row("gives", "two"), row("needs")))
        assert SEEN[-1] == "+needs two"
        assert not any("one" in line or "+two" in line for line in SEEN)


@aio
async def test_realms_are_as_before_when_an_edit_is_undone(folder: Path) -> None:
    async with Tree(folder) as tree:
        before = rows(row("gives"), row("needs"))
        await tree.load(before)
        edit = rows(row("gives", isolate={"a": True}), row("needs"))
        with pytest.raises(BootError, match=r"needs .*waiting for service\(s\): a"):
            await edited(tree, edit)
        assert tree.root.get("a")["from"] == "gives"
        assert states(tree) == {"gives": "ACTIVE", "needs": "ACTIVE"}


@aio
async def test_a_label_lasts_as_long_as_a_row_uses_it(folder: Path) -> None:
    async with Tree(folder) as tree:
        x: dict[str, Any] = {"isolate": {"a": "x"}}
        await tree.load(rows(row("plain", "p", **x), row("plain", "q", **x)))
        realms = tree.loader._realms
        kept = realms[("a", "x")]
        await edited(tree, rows(row("plain", "q", **x)))
        assert tree.loader._realms == {("a", "x"): kept}
        await edited(tree, rows(row("plain", "q")))
        assert tree.loader._realms == {}
