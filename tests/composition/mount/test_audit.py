"""What is said of rows that did not come up: each cause once and first, with its place and the remedy."""

from pathlib import Path

import pytest

from dsh.composition.compose import Composition
from dsh.composition.mount.audit import BootError, RowReport, not_active, not_loaded
from dsh.composition.patch import apply_layers
from dsh.composition.profile import shipped
from tests.aio import aio
from tests.composition.layers import layer, write
from tests.composition.tree import Tree, composition, group, row, rows


def waiting(name: str, *services: str) -> RowReport:
    return RowReport(
        name, name, f"pending (waiting for service(s): {', '.join(services)})", waits_for=services
    )


def lines(error: BootError) -> list[str]:
    return error.message.splitlines()


def test_what_only_waits_is_one_line_behind_the_causes() -> None:
    reports = [waiting("a", "x"), RowReport("b", "b", "it broke"), waiting("c", "x", "y"), waiting("d", "x")]
    assert lines(not_active(reports)) == [
        "1 entry did not activate:",
        "b (b): it broke",
        "3 more wait for services that did not come: a, d (x); c (x, y)",
    ]


def test_where_nothing_failed_the_rows_that_wait_are_the_causes() -> None:
    reports = [waiting("a", "x"), waiting("b", "y")]
    assert lines(not_active(reports)) == ["2 entries did not activate:", *map(str, reports)]


def test_one_cause_of_many_rows_is_told_once() -> None:
    cause = ImportError("no module")
    other = ImportError("another")
    reports = [RowReport(f"r{n}", "p", f"failed to import ({n})", cause) for n in range(3)]
    reports.insert(1, RowReport("x", "p", "failed to import (x)", other))
    assert lines(not_loaded(reports)) == [
        "4 plugins failed to load:",
        "r0 (p): failed to import (0); the same: r1, r2",
        "x (p): failed to import (x)",
    ]


SCHEMA = """
from typing import Literal
import msgspec
class Inner(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["on", "off"] = "on"
class Config(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    task: str
    max_steps: int = 1
    items: list[int] = []
    inner: Inner | None = None
    named: dict[str, Inner] = {}
def apply(ctx, config): ...
"""


@pytest.mark.parametrize(
    ("config", "place", "says"),
    [
        ("{}", "4:15", "missing required value (at task)"),
        ("{task: 5}", "4:22", "expected string but got integer (at task)"),
        ("{task: t, items: [1, x]}", "4:36", "expected integer but got string (at items.1)"),
        ("{task: t, inner: {mode: hush}}", "4:39", "expected on | off (at inner.mode)"),
        ("{task: t, named: {a: {mode: hush}}}", "4:43", "expected on | off (at named.a.mode)"),
        (
            "{task: !expr 'len(cwd)'}",
            "4:22",
            "expected string but got integer (at task), which comes from !expr len(cwd)",
        ),
    ],
)
@aio
async def test_a_config_that_does_not_fit_is_named_by_the_place_it_is_written_at(
    tmp_path: Path, config: str, place: str, says: str
) -> None:
    write(tmp_path / "strict.py", SCHEMA)
    async with Tree(tmp_path) as tree:
        text = f"- insert:\n    - id: s\n      name: ./strict.py\n      config: {config}\n"
        [found] = await tree.load(text)
        assert found == f"s (./strict.py): {tmp_path}/layer0.yml:{place}: invalid config: {says}"


@aio
async def test_a_config_that_is_missing_is_named_by_the_place_of_its_row(tmp_path: Path) -> None:
    write(tmp_path / "strict.py", SCHEMA)
    async with Tree(tmp_path) as tree:
        [found] = await tree.load("- insert:\n    - {id: s, name: ./strict.py}\n")
        assert f"{tmp_path}/layer0.yml:2:7: invalid config: missing required value (at task)" in found


@aio
async def test_rows_inside_a_group_that_failed_are_no_causes(tmp_path: Path) -> None:
    write(tmp_path / "bad.py", "def apply(ctx): raise ValueError('why')\n")
    async with Tree(tmp_path) as tree:
        await tree.load(rows(row("bad"), group("g", row("bad", "child"), inject=["web"])))
        with pytest.raises(BootError) as caught:
            tree.loader.require_active()
        first, cause, rest = lines(caught.value)
        assert first == "1 entry did not activate:"
        assert cause.startswith("bad (./bad.py): ValueError: why (")
        assert rest == "2 more wait for services that did not come: g (web); child (g)"


@pytest.mark.parametrize(
    ("config", "place", "says"),
    [
        ("{task: t, maxStep: 1}", "4:25", "unknown key 'maxStep' is left out (did you mean 'maxSteps'?)"),
        (
            "{task: t, zzz: 1}",
            "4:25",
            "unknown key 'zzz' is left out (known keys: task, maxSteps, items, inner",
        ),
        ("{task: t, inner: {mod: 1}}", "4:33", "unknown key 'mod' is left out (did you mean 'mode'?)"),
    ],
)
@aio
async def test_a_key_that_a_plugin_does_not_know_is_told_once_and_the_rest_of_a_user_s_row_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, config: str, place: str, says: str
) -> None:
    write(tmp_path / "strict.py", SCHEMA)
    async with Tree(tmp_path) as tree:
        text = f"- insert:\n    - id: s\n      name: ./strict.py\n      config: {config}\n"
        assert await tree.load(text) == []
        [entry] = tree.loader.entries
        assert entry.fiber is not None
        await entry.fiber.restart()
    [told] = caplog.messages
    assert told.startswith(f"s (./strict.py): {tmp_path}/layer0.yml:{place}: {says}")


@aio
async def test_an_edit_s_unknown_keys_are_told_where_they_stand_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "strict.py", SCHEMA)

    def text(config: str) -> str:
        return f"- insert:\n    - id: s\n      name: ./strict.py\n      config: {config}\n"

    async with Tree(tmp_path) as tree:
        await tree.load(text("{task: t, maxStep: 1}"))
        await tree.loader.reload(composition(tmp_path, text("{task: t}")))
        await tree.loader.reload(composition(tmp_path, "# moved\n" + text("{task: t, maxStep: 2}")))
        await tree.loader.reload(composition(tmp_path, text("{task: t, inner: {mode: off, mod: 1}}")))
        assert tree.loader.audit() == []
    told = [message.split(": ")[1].rpartition("layer0.yml:")[2] for message in caplog.messages]
    assert told == ["4:25", "5:25", "4:44"]


@aio
async def test_a_key_that_a_plugin_does_not_know_fails_a_row_of_a_shipped_bundle_whoever_wrote_it(
    tmp_path: Path,
) -> None:
    bundle = layer(str(shipped("bundles", "base.yml")), "- insert: [{id: llm-retry, name: llm-retry}]")
    theirs = layer(str(tmp_path / "p.yml"), "- {id: llm-retry, config: {maxRetrys: 1}}")
    made, _ = apply_layers([bundle, theirs])
    async with Tree(tmp_path) as tree:
        await tree.loader.load(Composition("t", made, [], []))
        [found] = map(str, tree.loader.audit())
        assert found.startswith(f"llm-retry (llm-retry): {tmp_path}/p.yml:1:")
        assert "unknown key 'maxRetrys'" in found


@aio
async def test_an_optional_row_that_fails_or_waits_is_a_warning_also_inside_an_optional_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "bad.py", "def apply(ctx): raise ValueError('why')\n")
    write(tmp_path / "good.py", "def apply(ctx): ...\n")
    async with Tree(tmp_path) as tree:
        await tree.load(
            rows(
                row("bad", optional=True),
                group("g", row("good"), inject=["web"], optional=True),
                row("absent", optional=True),
                row("good", "g2"),
            )
        )
        tree.loader.require_active()
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith("optional row bad (./bad.py): ValueError: why")
    assert caplog.messages[1] == "optional row g (cordis:group): pending (waiting for service(s): web)"
    assert caplog.messages[2] == "optional row good (./good.py): not mounted, since g is not active"
    assert caplog.messages[3].startswith(f"optional row absent (./absent.py): {tmp_path}/layer0.yml:1:")
    assert ": plugin file not found: " in caplog.messages[3]


@aio
async def test_what_failed_inside_a_row_fails_the_start(tmp_path: Path) -> None:
    write(
        tmp_path / "out.py",
        "def inner(ctx): raise ValueError('why')\n"
        "def apply(ctx): ctx.inject([], inner); ctx.inject(['x'], inner)\n",
    )
    async with Tree(tmp_path) as tree:
        [found] = await tree.load(rows(row("out")))
        assert found.startswith("out (./out.py): inner inside it failed: ValueError: why (")


@aio
async def test_a_start_that_takes_too_long_fails_and_names_the_rows(tmp_path: Path) -> None:
    write(tmp_path / "stuck.py", "import asyncio\nasync def apply(ctx): await asyncio.Event().wait()\n")
    write(tmp_path / "good.py", "def apply(ctx): ...\n")
    async with Tree(tmp_path) as tree:
        tree.loader.bound_s = 0.02
        with pytest.raises(BootError) as caught:
            await tree.load(rows(row("good"), row("stuck")))
    assert lines(caught.value) == [
        "1 entry did not activate:",
        "stuck (./stuck.py): still loading after 0.02 s",
    ]


@aio
async def test_something_inside_a_row_that_takes_too_long_fails_the_start_by_the_name_of_the_row(
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "out.py",
        "import asyncio\nasync def inner(ctx): await asyncio.Event().wait()\n"
        "def apply(ctx): ctx.plugin(inner, name='inner')\n",
    )
    async with Tree(tmp_path) as tree:
        tree.loader.bound_s = 0.02
        with pytest.raises(BootError) as caught:
            await tree.load(rows(row("out")))
    assert lines(caught.value)[1:] == ["out (./out.py): inner inside it is still loading after 0.02 s"]


@aio
async def test_an_optional_row_that_takes_too_long_is_ended_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(
        tmp_path / "stuck.py",
        "import asyncio\nENDED = []\nasync def apply(ctx):\n    ctx.effect(lambda: lambda: ENDED.append(1))\n"
        "    while True:\n"
        "        try: await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n"
        "            if not ctx.fiber.entry.row.config: raise\n",
    )
    write(tmp_path / "late.py", "inject = {'loader': {'await': True}}\ndef apply(ctx): ...\n")
    async with Tree(tmp_path) as tree:
        tree.loader.bound_s = 0.05
        assert await tree.load(rows(row("stuck", optional=True), row("late"))) == [
            "stuck (./stuck.py): still loading after 0.05 s"
        ]
        tree.loader.require_active()
        [told] = caplog.messages
        assert told == "optional row stuck (./stuck.py): still loading after 0.05 s"
        stuck = tree.loader.resolve("stuck")
        assert (stuck.fiber, stuck.plugin.ENDED) == (None, [1])
        assert tree.loader.get_tasks() == []
