"""Laws of composing: what holds for every stack of layers and every patch."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.composition.compose import Composition
from dsh.composition.dump import canonical, dump
from dsh.composition.grammar import rows_of as checked_rows
from dsh.composition.patch import Layer, apply_layers
from dsh.composition.row import Row
from dsh.composition.text.yaml import parse_yaml
from dsh.errors import CompositionError
from tests.aio import aio
from tests.composition.layers import composed, write
from tests.composition.stacks import CONFIGS, STACKS, VALUES, applied, stack_of
from tests.composition.tree import Tree

SEEN: list[tuple[str, Any]] = []
"""Id and config of each row that was activated."""


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def by_identity(rows: list[Row]) -> dict[str, Row]:
    return {row["inject"][1]: row for top in rows for row in top.walk()}


@given(STACKS)
def test_a_dump_reads_back_as_the_composed_rows(written: list[list[dict[str, Any]]]) -> None:
    rows = applied(stack_of(written))
    text = dump(composed()._replace(rows=rows))
    again = checked_rows(parse_yaml(text.encode(), "dump"), lambda said: None)
    assert repr(plain([canonical(row) for row in again])) == repr(plain([canonical(row) for row in rows]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(
        tmp_path / "p.py",
        "from tests.composition import test_laws\n"
        "def apply(ctx, config):\n    test_laws.SEEN.append((ctx.fiber.entry.id, config))\n",
    )
    return tmp_path


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(written=STACKS)
def test_what_is_dumped_is_what_is_mounted(folder: Path, written: list[list[dict[str, Any]]]) -> None:
    mounted(folder, stack_of(written, folder))


@aio
async def mounted(folder: Path, layers: list[Layer]) -> None:
    rows = applied(layers)
    document = parse_yaml(dump(composed()._replace(rows=rows)).encode(), "dump")
    expected = sorted(active(document), key=repr)
    SEEN.clear()
    async with Tree(folder) as tree:
        await tree.loader.load(Composition("test", rows, layers, []))
        assert tree.loader.audit() == []
        assert sorted(SEEN, key=repr) == expected


def active(rows: Any) -> Any:
    """Id and config of the rows of a dump that are on, as a reader of the document would say."""
    for row in rows:
        if row.get("disabled"):
            continue
        if row["name"] == "cordis:group":
            yield from active(row["config"] or [])
        else:
            yield row["id"], row.get("config")


@given(STACKS)
def test_composing_changes_no_layer_and_taking_one_away_undoes_it(
    written: list[list[dict[str, Any]]],
) -> None:
    layers = stack_of(written)
    before = repr(layers)
    for count in range(len(layers)):  # a miss of a later layer is no reason to leave out the earlier ones
        try:
            first = repr(apply_layers(layers[:count]))
            apply_layers(layers)
        except CompositionError:
            continue
        assert repr(apply_layers(layers[:count])) == first
    assert repr(layers) == before


@given(STACKS)
def test_provenance_follows_the_rows_wherever_they_stand(written: list[list[dict[str, Any]]]) -> None:
    layers = stack_of(written)
    rows = applied(layers)
    steps: list[dict[str, str]] = []
    for count in range(1, len(layers) + 1):
        tops = applied(layers[:count])
        steps.append({row["inject"][1]: repr(plain(canonical(row))) for row in tops})
    for row in by_identity(rows).values():
        assert row.origin == row["inject"][0]
    for top in rows:
        seen = [step.get(top["inject"][1]) for step in steps]
        changed = [
            layers[n].label
            for n in range(1, len(layers))
            if seen[n - 1] is not None and seen[n] != seen[n - 1]
        ]
        assert top.patched == changed


@given(STACKS)
def test_what_a_patch_records_is_what_reached_the_row(written: list[list[dict[str, Any]]]) -> None:
    rows = applied(stack_of(written))
    for row in by_identity(rows).values():
        for change in row.changes:
            n = int(change.layer.removeprefix("layer"))
            assert n >= int(row.origin.removeprefix("layer"))
            assert row.id in [element.get("id") for element in written[n]]
            assert set(change.fields) <= {"insert", "config", "merge", "disabled"}


# -- merge ---------------------------------------------------------------------------------------------


def rfc_7386(target: Any, patch: Any) -> Any:
    """The algorithm of the standard's section 2."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = rfc_7386(made.get(key), value)
    return made


def merged(config: Any, *patches: dict[str, Any]) -> Any:
    base = json.dumps([{"insert": [{"id": "a", "name": "p", "config": config}]}])
    made = composed(base, *(json.dumps([{"id": "a", "merge": patch}]) for patch in patches))
    return plain(made.rows[0].config)


@given(VALUES, CONFIGS)
def test_merge_is_that_of_the_standard(config: Any, patch: dict[str, Any]) -> None:
    assert repr(merged(config, patch)) == repr(plain(rfc_7386(config, patch)))


@given(VALUES, CONFIGS)
def test_merging_twice_is_merging_once(config: Any, patch: dict[str, Any]) -> None:
    assert merged(config, patch, patch) == merged(config, patch)


@given(VALUES, CONFIGS)
def test_null_deletes_at_any_depth(config: Any, patch: dict[str, Any]) -> None:
    def check(patch: dict[str, Any], result: Any) -> None:
        for key, value in patch.items():
            if value is None:
                assert key not in result
            elif isinstance(value, dict):
                check(value, result[key])
            else:
                assert plain(result[key]) == value

    check(patch, merged(config, patch))


@given(CONFIGS)
def test_an_empty_merge_changes_nothing(config: dict[str, Any]) -> None:
    assert merged(config, {}) == config


LEAF = st.sampled_from([1, "x", [1], True])
SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "k": LEAF,
        "l": st.fixed_dictionaries(
            {}, optional={"k": LEAF, "l": st.dictionaries(st.sampled_from("mn"), LEAF)}
        ),
    },
)


@given(SHAPED, SHAPED, SHAPED)
def test_where_nothing_is_deleted_and_shapes_agree_patches_can_be_joined_before_they_are_applied(
    config: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert merged(config, first, second) == merged(config, merged(first, second))


def test_where_shapes_disagree_they_cannot() -> None:
    config, first, second = {"k": {"l": 1}}, {"k": 1}, {"k": {"m": 2}}
    assert merged(config, first, second) == {"k": {"m": 2}}
    assert merged(config, merged(first, second)) == {"k": {"l": 1, "m": 2}}
