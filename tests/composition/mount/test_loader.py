"""Rows on the real kernel: what is mounted, what each row gets, and what is said of those that fail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.composition.compose import Composition
from dsh.composition.mount.audit import BootError
from dsh.composition.mount.loader import LOADER
from dsh.composition.patch import apply_layers
from tests.aio import aio
from tests.composition.layers import layer, write
from tests.composition.tree import Tree, group, plugin_files, row, rows

SEEN: list[Any] = []
"""What plugins of these tests record: (name, config) at activation."""

CODE = {
    "record": """
        from tests.composition.mount import test_loader
        def apply(ctx, config):
            test_loader.SEEN.append(("record", config))
    """,
    "needs": """
        from tests.composition.mount import test_loader
        inject = ["a", "b"]
        def apply(ctx, config):
            test_loader.SEEN.append(("needs", config))
    """,
    "gives": """
        def apply(ctx, config):
            ctx.provide((config or {}).get("name", "a"), (config or {}).get("value", {}))
    """,
    "fails": """
        def apply(ctx, config):
            raise RuntimeError("it broke\\nbadly")
    """,
    "strict": """
        import msgspec
        from tests.composition.mount import test_loader
        class Config(msgspec.Struct, forbid_unknown_fields=True):
            k: int = 5
        def apply(ctx, config):
            test_loader.SEEN.append(("strict", config.k))
    """,
    "late": """
        import asyncio
        async def apply(ctx, config):
            for _ in range(5):
                await asyncio.sleep(0)
            ctx.provide("a", {"n": 1})
    """,
    "intercepted": """
        from tests.composition.mount import test_loader
        def apply(ctx, config):
            test_loader.SEEN.append(("intercepted", ctx.intercepted("fs")))
    """,
    "raises": "raise ValueError('at import')",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    SEEN.clear()
    with plugin_files(tmp_path, CODE):
        yield tmp_path


@aio
async def test_rows_get_their_config_and_the_loader_is_a_service(folder: Path) -> None:
    async with Tree(folder) as tree:
        assert await tree.load(rows(row("record", config={"k": [1, {"a": None}]}))) == []
        assert SEEN == [("record", {"k": [1, {"a": None}]})]
        assert tree.root.get(LOADER) is not None


@aio
async def test_order_of_rows_has_no_meaning_and_all_start_at_once(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(rows(row("needs"), row("late"), row("gives", config={"name": "b"})))
        assert found == []
        assert [name for name, _ in SEEN] == ["needs"]


@aio
async def test_pending_failed_and_wrong_rows_are_all_reported_in_one_line_each(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(
            rows(
                row("needs"),
                row("fails"),
                row("strict", config={"k": []}),
                row("strict", "s2", config={"k": "no"}),
            )
        )
        assert found[0] == "needs (./needs.py): pending (waiting for service(s): a, b)"
        assert found[1].startswith("fails (./fails.py): RuntimeError: it broke badly (")
        assert found[1].endswith("fails.py:3)")
        at = f"{folder}/layer0.yml:1:"
        assert found[2].startswith(f"strict (./strict.py): {at}")
        assert found[2].endswith(": invalid config: expected integer but got array (at k)")
        assert found[3].startswith(f"s2 (./strict.py): {at}")
        assert found[3].endswith(": invalid config: expected integer but got string (at k)")
        with pytest.raises(BootError) as caught:
            tree.loader.require_active()
        assert str(caught.value).splitlines() == [
            "3 entries did not activate:",
            *found[1:],
            "1 more waits for services that did not come: needs (a, b)",
        ]
        assert caught.value.exit_code == 3


@aio
async def test_one_bad_row_and_nothing_is_mounted(folder: Path) -> None:
    async with Tree(folder) as tree:
        with pytest.raises(BootError) as caught:
            await tree.load(
                rows(row("record"), row("raises"), row("absent"), {"id": "x", "name": "cordis:nope"})
            )
        lines = str(caught.value).splitlines()
        assert lines[0] == "3 plugins failed to load:"
        at = f"{folder}/layer0.yml:1:"
        assert lines[1].startswith(f"raises (./raises.py): {at}80: failed to import: ValueError: at import (")
        assert "raises.py:1)" in lines[1]
        assert lines[2].startswith(
            f"absent (./absent.py): {at}121: plugin file not found: {folder}/absent.py"
        )
        assert lines[3].startswith(
            f"x (cordis:nope): {at}157: there is no built-in 'cordis:nope' (built-ins: "
        )
        assert SEEN == []
        assert tree.root.kernel.runtimes == {}


@aio
async def test_the_name_of_a_disabled_row_is_not_resolved(folder: Path) -> None:
    async with Tree(folder) as tree:
        off = {"id": "off", "name": "no-such-plugin", "disabled": True}
        assert await tree.load(rows(off, row("record"))) == []


@pytest.mark.parametrize("child_off", [False, True])
@pytest.mark.parametrize("outer_off", [False, True])
@pytest.mark.parametrize("inner_off", [False, True])
@pytest.mark.parametrize("is_marked", [False, True])
@aio
async def test_disabled_stops_a_row_and_everything_inside(
    folder: Path, child_off: bool, outer_off: bool, inner_off: bool, is_marked: bool
) -> None:
    async with Tree(folder) as tree:
        inner = group("inner", row("record", disabled=child_off), disabled=inner_off)
        outer = group("outer", inner, disabled=outer_off)
        if not is_marked:
            del outer["group"], inner["group"]
        assert await tree.load(rows(outer)) == []
        assert bool(SEEN) == (not (child_off or inner_off or outer_off))
        mounted = {entry.id for entry in tree.loader.entries if entry.fiber is not None}
        assert ("outer" in mounted) == (is_marked or not outer_off)


@aio
async def test_rows_of_a_group_that_does_not_come_up_are_reported(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(rows(group("g", row("record"), inject=["web"])))
        assert found == [
            "g (cordis:group): pending (waiting for service(s): web)",
            "record (./record.py): not mounted, since g is not active",
        ]


@aio
async def test_a_row_can_ask_for_more_services_as_one_name_or_a_list_or_map(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(
            rows(
                row("record", inject=["x"]),
                row("record", "r2", inject={"y": {"n": 1}}),
                row("record", "r3", inject=[]),
                row("record", "r4", inject="xyz"),
            )
        )
        assert found == [
            "record (./record.py): pending (waiting for service(s): x)",
            "r2 (./record.py): pending (waiting for service(s): y)",
            "r4 (./record.py): pending (waiting for service(s): xyz)",
        ]


@aio
async def test_private_realms_hide_a_service_and_labels_share_it(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(
            rows(
                group("private", row("gives", "g1"), row("record", "r1", inject=["a"]), isolate={"a": True}),
                row("gives", "g2", isolate={"a": "shared"}),
                row("record", "r2", inject=["a"], isolate={"a": "shared"}),
                row("record", "r3", inject=["a"]),
            )
        )
        assert found == ["r3 (./record.py): pending (waiting for service(s): a)"]


@aio
async def test_intercepts_reach_the_row_and_what_is_inside_a_group(folder: Path) -> None:
    async with Tree(folder) as tree:
        inner = row("intercepted", intercept={"fs": {"b": 2}})
        assert await tree.load(rows(group("g", inner, intercept={"fs": {"a": 1}}))) == []
        assert SEEN == [("intercepted", {"a": 1, "b": 2})]


@aio
async def test_expressions_are_evaluated_with_the_facts_of_the_start(folder: Path) -> None:
    async with Tree(folder, {"TOKEN": "x: y # z\n- k"}) as tree:
        text = (
            "- insert:\n    - id: r\n      name: ./record.py\n      config:\n        t: !expr env.TOKEN\n"
            "        u: !expr get(env, 'UNSET')\n        h: !expr home('s')\n        f: !expr here('x.txt')\n"
            "        w: [!expr cwd, !expr profile]\n"
        )
        assert await tree.load(text) == []
        assert SEEN[0][1] == {
            "t": "x: y # z\n- k", "h": str(folder / "home/s"), "f": str(folder / "x.txt"),
            "w": ["/ws", "test"],
        }  # fmt: skip


@aio
async def test_here_follows_the_file_each_expression_is_written_in(folder: Path) -> None:
    base = layer(
        "/one/base.yml", rows(row("record", config={})).replace("./record.py", str(folder / "record.py"))
    )
    other = layer("/two/patch.yml", "- {id: record, merge: {p: !expr here('x')}}")
    made, _ = apply_layers([base, other])
    async with Tree(folder) as tree:
        await tree.loader.load(Composition("t", made, [], []))
        assert SEEN[0][1] == {"p": "/two/x"}


@aio
async def test_an_absent_value_takes_the_schema_s_default(folder: Path) -> None:
    async with Tree(folder) as tree:
        assert (
            await tree.load("- insert: [{id: s, name: ./strict.py, config: {k: !expr 'get(env, \"K\")'}}]")
            == []
        )
        assert SEEN == [("strict", 5)]


@aio
async def test_a_failing_expression_fails_its_row_and_names_everything(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load("- insert: [{id: r, name: ./record.py, config: {a: {b: !expr env.TOKEN}}}]")
        assert found == [
            f"r (./record.py): {folder}/layer0.yml:1:55: !expr env.TOKEN: a.b: "
            "the environment variable TOKEN is not set"
        ]


@aio
async def test_disabled_takes_an_expression_once_and_only_booleans(folder: Path) -> None:
    text = "- insert: [{id: r, name: ./record.py, disabled: !expr %s}]"
    for expression, runs in (
        ("platform == 'win32'", True),
        ("platform != 'win32'", False),
        ("None", True),
    ):
        SEEN.clear()
        async with Tree(folder) as tree:
            assert await tree.load(text % f'"{expression}"') == []
            assert bool(SEEN) is runs
    async with Tree(folder) as tree:
        with pytest.raises(BootError, match="disabled must give true, false or None, not a string"):
            await tree.load(text % "\"'x'\"")


@aio
async def test_a_service_read_without_inject_is_refused_before_anything_is_mounted(folder: Path) -> None:
    async with Tree(folder) as tree:
        with pytest.raises(BootError) as caught:
            await tree.load(
                rows(row("record")),
                "- insert: [{id: r, name: ./gives.py, config: {v: !expr 'svc.a.n if False else 1'}}]",
            )
        assert 'layer1.yml:1:50: row "r" reads service "a" it does not inject' in str(caught.value)
        assert SEEN == []


class Words:
    """Stands in for the launcher's arguments."""

    def expression_data(self) -> list[str]:
        return ["a", "b"]


@aio
async def test_service_data_needs_the_row_s_or_the_plugin_s_inject_but_for_the_arguments(
    folder: Path,
) -> None:
    async with Tree(folder) as tree:
        tree.root.provide("cmdlineArgs", Words())
        found = await tree.load(
            rows(row("late"), row("gives", config={"name": "b", "value": {"m": 2}})),
            "- insert:\n    - {id: n, name: ./needs.py, config: {v: !expr svc.b.m}}\n"
            "    - {id: r, name: ./record.py, inject: [a], config: {v: !expr svc.a.n,"
            " w: !expr svc.cmdlineArgs}}\n",
        )
        assert found == []
        assert sorted(SEEN) == [("needs", {"v": 2}), ("record", {"v": 1, "w": ["a", "b"]})]


@aio
async def test_expressions_are_evaluated_again_when_a_provider_is_replaced(folder: Path) -> None:
    async with Tree(folder) as tree:
        first = tree.root.provide("a", {"n": 1})
        await tree.load("- insert: [{id: r, name: ./record.py, inject: [a], config: {v: !expr svc.a.n}}]")
        await first()
        tree.root.provide("a", {"n": 2})
        await tree.loader.settled()
        assert SEEN == [("record", {"v": 1}), ("record", {"v": 2})]


@aio
async def test_the_original_s_spelling_and_rows_without_id_are_mounted(folder: Path) -> None:
    async with Tree(folder) as tree:
        found = await tree.load(rows({"name": "./record.py"}, {"name": "./record.py", "config": 1}))
        assert found == []
        assert [entry.id for entry in tree.loader.entries] == ["record.py-1", "record.py-2"]


@aio
async def test_an_include_mounts_another_file_s_rows_as_a_tree_of_its_own(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder / "sub/more.yml", "- {id: r, name: ../record.py, config: {k: 1}}\n- {id: x, name: no-such}")
    write(folder / "sub/cycle.yml", "- {id: c, name: cordis:include, config: {path: ./cycle.yml}}")

    include = {"id": "i", "name": "cordis:include"}
    async with Tree(folder) as tree:
        config = {
            "path": "sub/more.yml",
            "patches": [{"id": "x", "disabled": True}, {"id": "r", "config": {"k": 2}}, {"id": "ghost"}],
        }
        assert await tree.load(rows(row("record", "r", config=0), {**include, "config": config})) == []
        assert sorted(map(repr, SEEN)) == ["('record', 0)", "('record', {'k': 2})"]
        assert [entry.id for entry in tree.loader.entries] == ["r", "i", "i:r", "i:x"]
        assert '[i] patch: entry "ghost" not found' in caplog.text
    for wrong, says in (
        ({"path": "absent.yml"}, "config file not found: "),
        ({"path": "sub/x.toml"}, 'extension ".toml" not supported'),
        ({"path": "sub/cycle.yml"}, "includes itself"),
        ({}, "config.path must name a file"),
    ):
        async with Tree(folder) as tree:
            with pytest.raises(BootError, match=says):
                await tree.load(rows({**include, "config": wrong}))


@aio
async def test_a_chain_of_includes_has_a_bound(folder: Path) -> None:
    for n in range(40):
        write(folder / f"{n}.yml", f"- {{id: i, name: cordis:include, config: {{path: {n + 1}.yml}}}}")
    write(folder / "40.yml", "[]")
    include = {"id": "i", "name": "cordis:include"}
    async with Tree(folder) as tree:
        assert await tree.load(rows({**include, "config": {"path": "10.yml"}})) == []
    async with Tree(folder) as tree:
        with pytest.raises(BootError, match="more than 32 files include each other"):
            await tree.load(rows({**include, "config": {"path": "0.yml"}}))


@aio
async def test_only_groups_carry_rows(folder: Path) -> None:
    async with Tree(folder) as tree:
        with pytest.raises(BootError, match="only cordis:group carries rows"):
            await tree.load(rows(row("record", group=True, config=[])))


@pytest.mark.parametrize("declared", ["5", "''", "[5]", "[[]]", "{5: None}"])
@aio
async def test_an_inject_that_is_none_is_an_error_of_its_row(folder: Path, declared: str) -> None:
    write(folder / "odd.py", f"inject = {declared}\ndef apply(ctx): ...\n")
    async with Tree(folder) as tree:
        with pytest.raises(BootError, match=r"odd .*: inject "):
            await tree.load(rows(row("odd")))


@aio
async def test_a_row_that_takes_long_to_start_is_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder / "slow.py", "import asyncio\nasync def apply(ctx): await asyncio.sleep(0.1)\n")
    async with Tree(folder) as tree:
        tree.loader.slow_s = 0.01
        assert await tree.load(rows(row("slow"), row("record"))) == []
    assert "still starting after 0.01 s: slow (./slow.py)" in caplog.messages


@aio
async def test_disposing_the_root_leaves_nothing(folder: Path) -> None:
    async with Tree(folder) as tree:
        await tree.load(rows(group("g", row("gives")), row("record", inject=["a"])))
    assert tree.root.kernel.runtimes == {}
    assert tree.root.kernel.impls == {}
    assert tree.root.kernel.events.count() == 0
