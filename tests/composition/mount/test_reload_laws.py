"""Laws of edits: the tree afterwards is the one a start would have made; one that fails changes nothing."""

import asyncio
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.errors import CompositionError
from tests.composition.layers import write
from tests.composition.tree import Tree, composition

CODE = {
    "plain": "def apply(ctx, config): ctx.provide(ctx.fiber.entry.id, config)\n",
    "gives": "def apply(ctx, config): ctx.provide('a', ctx.fiber.entry.id)\n",
    "both": "inject = ['a']\ndef apply(ctx, config): ctx.provide('b', ctx.fiber.entry.id)\n",
    "needs": "inject = ['a', 'b']\ndef apply(ctx, config): ...\n",
    "fails": "def apply(ctx, config): raise RuntimeError\n",
}
IDS = ["p", "q", "r", "s", "t"]
FIELDS = st.fixed_dictionaries(
    {"name": st.sampled_from(["plain"] * 4 + ["gives"] * 3 + ["both", "both", "needs", "fails"])},
    optional={
        "config": st.integers(0, 2),
        "disabled": st.booleans(),
        "optional": st.booleans(),
        "isolate": st.sampled_from([{"a": True}, {"a": "x"}, {"a": "y"}, {"b": "x"}]),
        "inject": st.sampled_from([["a"], ["b"]]),
    },
)
ROWS = st.dictionaries(st.sampled_from(IDS), FIELDS, max_size=5)
GROUPS = st.dictionaries(st.sampled_from(IDS), st.sampled_from(["g", "h"]), max_size=3)
GROUP_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "disabled": st.booleans(),
        "isolate": st.sampled_from([{"a": True}, {"a": "x"}]),
        "inject": st.sampled_from([["a"], ["b"]]),
    },
)


@st.composite
def trees(draw: st.DrawFn) -> str:
    """A patch that inserts some rows, a few of them in groups."""
    rows, places = draw(ROWS), draw(GROUPS)
    groups: dict[str, dict[str, Any]] = {
        name: {"id": name, "name": "cordis:group", "group": True, **draw(GROUP_FIELDS), "config": []}
        for name in ("g", "h")
    }
    top: list[dict[str, Any]] = [groups["g"]] if places else []
    if places:
        groups["g"]["config"].append(groups["h"])
    for entry_id, fields in rows.items():
        made = {"id": entry_id, **fields, "name": f"./{fields['name']}.py"}
        (groups[places[entry_id]]["config"] if entry_id in places else top).append(made)
    return json.dumps([{"insert": top}])


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("laws")
    for name, code in CODE.items():
        write(folder / f"{name}.py", textwrap.dedent(code))
    return folder


def standing(tree: Tree) -> dict[str, Any]:
    """Each row's state and config, and whose services it was given."""
    found = {}
    for entry in tree.loader.entries:
        fiber = entry.fiber if entry.is_live else None
        given = {}
        if fiber is not None and fiber.is_active:
            for service in fiber.inject:
                given[service] = fiber.ctx.get(service)
        found[entry.id] = (fiber.state.name if fiber else "", entry.row.config, given)
    return found


def held(tree: Tree) -> tuple[int, int, int]:
    kernel = tree.root.kernel
    return len(kernel.impls), kernel.events.count(), sum(len(r.fibers) for r in kernel.runtimes.values())


async def fresh(folder: Path, text: str) -> tuple[dict[str, Any], bool, tuple[int, int, int]]:
    async with Tree(folder) as tree:
        await tree.load(text)
        is_good = all(report.is_optional for report in tree.loader.audit())
        return standing(tree), is_good, held(tree)


@settings(max_examples=400)
@given(texts=st.lists(trees(), min_size=2, max_size=6))
def test_an_edited_tree_is_what_a_start_would_make_or_what_it_was(plugins: Path, texts: list[str]) -> None:
    async def check() -> None:
        async with Tree(plugins) as tree:
            await tree.load("- insert: []")
            for text in texts:
                before, had = standing(tree), held(tree)
                after, is_good, has = await fresh(plugins, text)
                try:
                    await tree.loader.reload(composition(plugins, text))
                except CompositionError:
                    assert not is_good or _is_contested(text)
                    assert (standing(tree), held(tree)) == (before, had)
                else:
                    if not _is_contested(text):
                        assert is_good
                        assert (standing(tree), held(tree)) == (after, has)
        assert tree.root.kernel.impls == {}
        assert tree.root.kernel.runtimes == {}

    asyncio.run(check())


def _is_contested(text: str) -> bool:
    """Whether an optional row may take a name from another: then the order of arrival decides."""
    return '"optional": true' in text
