"""The patch algorithm: what each element does, what it misses, and who changed what."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.patch import apply_layers
from dsh.errors import CompositionError
from tests.composition.layers import composed, layer, rows_of

M = "- insert: [{id: m, name: p, config: {cmd: a, env: {K: 1}, t: 5}}]"
GROUP = "- insert: [{id: g, name: cordis:group, group: true, config: [{id: c, name: p}]}]"


def test_a_row_patch_replaces_the_whole_config() -> None:
    assert rows_of(M, "- {id: m, config: {cmd: b}}")[0].config == {"cmd": "b"}


def test_null_clears_a_field() -> None:
    row = rows_of(M, "- {id: m, disabled: true}", "- {id: m, disabled: null, config: null}")[0]
    assert (row.disabled, row.config) == (None, None)


def test_the_later_layer_wins_field_by_field() -> None:
    row = rows_of(M, "- {id: m, disabled: true, inject: [a]}", "- {id: m, disabled: false}")[0]
    assert (row.disabled, row["inject"]) == (False, ["a"])


def test_inserts_append_at_top_level_or_to_a_group() -> None:
    rows = rows_of(GROUP, "- insert: [{id: t, name: p}]\n- id: g\n  insert: [{id: d, name: p}]")
    assert [row.id for row in rows] == ["g", "t"]
    assert [row.id for row in rows[0].children] == ["c", "d"]


def test_an_insert_makes_a_list_of_a_group_s_missing_config() -> None:
    rows = rows_of(
        "- insert: [{id: g, name: cordis:group, group: true}]\n- {id: g, insert: [{id: d, name: p}]}"
    )
    assert [row.id for row in rows[0].children] == ["d"]


def test_children_of_a_group_can_be_patched_by_id() -> None:
    assert rows_of(GROUP, "- {id: c, disabled: true}")[0].children[0].disabled is True


def test_rows_inserted_earlier_in_the_list_can_be_patched_later_in_it() -> None:
    assert rows_of("- insert: [{id: a, name: p}]\n- {id: a, disabled: true}")[0].disabled is True


@pytest.mark.parametrize(
    "text",
    [
        "- {id: g, config: [{id: new, name: p}]}\n- {id: new, disabled: true}",
        "- insert: [{id: h, name: p}]\n- {id: h, name: '', config: [{id: new, name: p}], group: true}\n"
        "- {id: new, disabled: true}",
        "- insert: [{id: h, name: cordis:group, config: [{id: new, name: p}]}]\n- {id: new, disabled: true}",
    ],
)
def test_rows_of_a_replaced_group_config_cannot_be_patched(text: str) -> None:
    made = composed(GROUP, text)
    assert [str(w) for w in made.warnings if '"new" not found' in str(w)]


def test_a_name_is_an_assertion_and_never_a_rename() -> None:
    made = composed(M, "- {id: m, name: other, config: 1}\n- {id: m, name: '', disabled: true}")
    assert (made.rows[0].name, made.rows[0].config["cmd"], made.rows[0].disabled) == ("p", "a", True)
    assert "name mismatch" in str(made.warnings[0])


@pytest.mark.parametrize("name", ["tool-bash", "dsh-tool-bash", "'@deepseek-ai/dsh-tool-bash'"])
def test_the_original_s_spelling_of_a_name_matches_ours(name: str) -> None:
    made = composed("- insert: [{id: b, name: tool-bash}]", f"- {{id: b, name: {name}, disabled: true}}")
    assert made.rows[0].disabled is True
    assert made.warnings == []


def test_an_insert_that_is_null_is_a_row_patch_and_an_empty_one_is_an_insert() -> None:
    assert rows_of(M, "- {id: m, insert: null, disabled: true}")[0].disabled is True
    assert rows_of(GROUP, "- {id: g, insert: [], disabled: true}")[0].disabled is None


def test_misses_warn_with_layer_and_closest_ids_and_change_nothing() -> None:
    made = composed(
        "- insert: [{id: added, name: p}]",
        "- {id: added, disabled: true}\n"
        "- {id: ghost, disabled: true}\n"
        "- {id: addde, disabled: true}\n"
        "- {id: added, name: wrong-name, config: {z: 1}}\n"
        "- {insert: [{id: k, name: p}], id: added}\n"
        "- {config: {q: 1}}\n"
        "- {insert: [{id: k, name: p}], id: absent-row}",
    )
    assert [str(w) for w in made.warnings] == [
        '[layer1] patch: entry "ghost" not found (line 2)',
        '[layer1] patch: entry "addde" not found (line 3; closest: "added")',
        '[layer1] patch: name mismatch for entry "added" (the patch says "wrong-name", the row is "p"),'
        " skipping (line 4)",
        '[layer1] patch insert: entry "added" is not a group (line 5)',
        "[layer1] patch: id is required for non-insert patches (line 6)",
        '[layer1] patch insert: entry "absent-row" not found (line 7)',
    ]
    assert made.rows == [{"id": "added", "name": "p", "disabled": True}]


@pytest.mark.parametrize(
    "text",
    [
        "- {id: ghost, disabled: true, require: true}",
        "- {id: m, name: wrong, require: true}",
        "- {id: m, insert: [], require: true}",
        "- {insert: [{id: k, name: p}], before: ghost, require: true}",
        "- {id: ghost, remove: true, require: true}",
    ],
)
def test_require_makes_a_miss_an_error_with_its_place(text: str) -> None:
    with pytest.raises(CompositionError, match="layer1:1:3: patch"):
        composed(M, text)


def test_thousands_of_misses_take_no_time_to_speak_of() -> None:
    rows = "- insert:\n" + "".join(f"  - {{id: row-{n}, name: p}}\n" for n in range(6_000))
    made = composed(rows, "".join(f"- {{id: rwo-{n}}}\n" for n in range(6_000)))
    assert len(made.warnings) == 6_000
    assert str(made.warnings[0]).endswith('(line 1; closest: "row-0", "row-90", "row-80")')


def test_an_id_as_long_as_a_file_has_no_like() -> None:
    made = composed(f"- insert: [{{id: {'a' * 200_000}, name: p}}]", f"- {{id: {'a' * 200_001}}}")
    assert str(made.warnings[0]).endswith("not found (line 1)")


def test_a_merge_changes_no_other_row_and_no_layer() -> None:
    first = layer(
        "base", "- insert: [{id: a, name: p, config: &c {k: {l: 1}}}, {id: b, name: p, config: *c}]"
    )
    second = layer("home", "- {id: a, merge: {k: {m: {n: 1}}}}\n- {id: a, merge: {k: {m: {o: 2}}}}")
    before = repr((first, second))
    rows, _ = apply_layers([first, second])
    assert rows[0].config == {"k": {"l": 1, "m": {"n": 1, "o": 2}}}
    assert rows[1].config == {"k": {"l": 1}}
    assert repr((first, second)) == before


def test_require_is_not_stored_in_the_row() -> None:
    assert "require" not in rows_of(M, "- {id: m, disabled: true, require: true}")[0]


def test_merge_follows_rfc_7386_and_keeps_expressions() -> None:
    row = rows_of(M, "- {id: m, merge: {t: null, env: {L: !expr cwd}, cmd: [1], new: {a: null, b: 1}}}")[0]
    assert repr(row.config) == "{'cmd': [1], 'env': {'K': 1, 'L': Expr('cwd')}, 'new': {'b': 1}}"


@pytest.mark.parametrize(
    "config", ["", ", config: null", ", config: [1]", ", config: 3", ", config: !expr cwd"]
)
def test_merge_into_what_is_no_map_starts_empty(config: str) -> None:
    assert rows_of(f"- insert: [{{id: a, name: p{config}}}]", "- {id: a, merge: {k: 1}}")[0].config == {
        "k": 1
    }


def test_remove_takes_the_row_with_its_children_and_frees_the_ids() -> None:
    made = composed(
        GROUP,
        "- {id: g, remove: true}\n- {id: c, disabled: true}\n- insert: [{id: g, name: q}, {id: c, name: q}]",
    )
    assert [(row.id, row.name) for row in made.rows] == [("g", "q"), ("c", "q")]
    assert [str(w) for w in made.warnings] == ['[layer1] patch: entry "c" not found (line 2)']


def test_inserts_can_be_placed_beside_a_row_of_the_same_list() -> None:
    base = "- insert: [{id: a, name: p}, {id: b, name: p}]"
    placed = composed(
        base, "- {insert: [{id: x, name: p}], before: b}\n- {insert: [{id: y, name: p}], after: a}"
    )
    assert [row.id for row in placed.rows] == ["a", "y", "x", "b"]
    missed = composed(base, GROUP, "- {insert: [{id: x, name: p}], before: c}")
    assert [row.id for row in missed.rows] == ["a", "b", "g", "x"]
    assert 'anchor "c" is not in the list; appended' in str(missed.warnings[0])


def test_layers_are_never_changed_so_removing_one_brings_the_default_back() -> None:
    base, override = layer("base", M), layer("home", "- {id: m, config: {cmd: b}}\n- {id: m, merge: {x: 1}}")
    before = repr((base, override))
    first, _ = apply_layers([base])
    changed, _ = apply_layers([base, override])
    again, _ = apply_layers([base])
    assert changed[0].config == {"cmd": "b", "x": 1}
    assert repr(first) == repr(again)
    assert repr((base, override)) == before


def test_origin_and_patches_are_kept_per_row() -> None:
    rows = rows_of(
        GROUP,
        M,
        "- {id: c, disabled: true}\n- {id: m, disabled: null}",
        "- {id: m, disabled: null}",
        "- {id: g, remove: true}",
    )
    assert [(row.id, row.origin, row.patched) for row in rows] == [("m", "layer1", ["layer2"])]
    rows = rows_of(GROUP, "- {id: c, disabled: true}")
    assert (rows[0].origin, rows[0].patched) == ("layer0", ["layer1"])


def test_a_patch_that_changes_nothing_leaves_no_trace() -> None:
    assert rows_of(M, "- {id: m, config: {cmd: a, env: {K: 1}, t: 5}}")[0].patched == []
    assert rows_of("- insert: [{id: a, name: p, config: {k: 1}}]", "- {id: a, config: {k: true}}")[
        0
    ].patched == ["layer1"]


ids = st.sampled_from(["a", "b", "c", "d"])
scalars = st.sampled_from([None, True, 1, "x", "no"])
configs = st.dictionaries(
    st.sampled_from(["k", "l", "m"]), scalars | st.dictionaries(ids, scalars, max_size=2)
)
elements = st.one_of(
    st.builds(lambda i, c: {"insert": [{"id": i, "name": "p", "config": c}]}, ids, configs),
    st.builds(lambda i, c: {"id": i, "config": c}, ids, configs),
    st.builds(lambda i, c: {"id": i, "merge": c}, ids, configs),
    st.builds(lambda i: {"id": i, "remove": True}, ids),
    st.builds(lambda i, d: {"id": i, "disabled": d}, ids, st.booleans()),
)


@given(st.lists(elements, max_size=8))
def test_without_extensions_the_result_is_that_of_the_written_algorithm(
    elements: list[dict[str, Any]],
) -> None:
    import json

    plain = [e for e in elements if "merge" not in e and "remove" not in e]
    expected: list[dict[str, Any]] = []
    for element in plain:
        if "insert" in element:
            expected.extend(json.loads(json.dumps(element["insert"])))
        else:
            found = [row for row in expected if row["id"] == element["id"]]
            if found:
                found[-1].update(element)
    if len({row["id"] for row in expected}) != len(expected):
        return
    assert rows_of(json.dumps(plain)) == expected


@given(configs, configs)
def test_merging_twice_is_merging_once(config: dict[str, Any], patch: dict[str, Any]) -> None:
    import json

    base = json.dumps([{"insert": [{"id": "a", "name": "p", "config": config}]}])
    merge = json.dumps([{"id": "a", "merge": patch}])
    assert rows_of(base, merge) == rows_of(base, merge, merge)


def test_groups_inside_each_other_have_a_bound() -> None:
    group = "{id: g%d, name: cordis:group, group: true, config: []}"
    texts = [f"- insert: [{group % 0}]"]
    texts += [f"- {{id: g{n}, insert: [{group % (n + 1)}]}}" for n in range(33)]
    with pytest.raises(CompositionError, match=r"layer33:1:3: more than 32 groups inside each other"):
        rows_of(*texts)
    assert rows_of(*texts[:-1])
