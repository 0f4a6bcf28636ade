"""What is said of rows that did not come up: each cause once and first, with its place and the remedy."""

from pathlib import Path

import pytest

from dsh.composition.audit import BootError, RowReport, not_active, not_loaded
from tests.aio import aio
from tests.composition.layers import write
from tests.composition.tree import Tree, group, row, rows


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
        ("{task: t, maxStep: 1}", "4:25", "unknown key 'maxStep' (did you mean 'maxSteps'?)"),
        (
            "{task: t, zzz: 1}",
            "4:25",
            "unknown key 'zzz' (known keys: task, maxSteps, items, inner, named)",
        ),
        ("{task: t, inner: {mode: hush}}", "4:39", "expected on | off (at inner.mode)"),
        ("{task: t, named: {a: {mode: hush}}}", "4:32", "expected on | off (at named.*.mode)"),
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
