"""The dump: loadable, with provenance, never a value of the environment."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.compose import Composition
from dsh.composition.dump import canonical, dump
from dsh.composition.grammar import rows_of as checked_rows
from dsh.composition.row import Row
from dsh.composition.text.yaml import parse_yaml
from dsh.composition.value import Map, Mark, Seq
from dsh.errors import CompositionError
from tests.composition.layers import composed
from tests.composition.test_patch import elements

EMPTY = Composition("x", [], [], [])


def loaded(text: str) -> Any:
    return parse_yaml(text.encode(), "dump")


def test_an_empty_tree_is_an_empty_list() -> None:
    assert dump(EMPTY) == "[]\n"
    assert loaded(dump(EMPTY)) == []


def test_keys_have_their_canonical_order() -> None:
    made = composed(
        "- insert: [{config: {b: 1, a: 2}, zeta: 1, disabled: true, name: p, inject: [x], id: a}]"
    )
    assert dump(made) == (
        "# == layer0\n- id: a\n  name: p\n  disabled: true\n  inject:\n    - x\n  zeta: 1\n"
        "  config:\n    b: 1\n    a: 2\n"
    )


def test_rows_of_one_provenance_share_a_heading() -> None:
    made = composed(
        "- insert: [{id: a, name: p}, {id: b, name: p}, {id: c, name: p}]",
        "- {id: c, disabled: true}",
        "- {id: c, disabled: false}\n- insert: [{id: d, name: p}]",
    )
    assert [line for line in dump(made).splitlines() if line.startswith("#")] == [
        "# == layer0",
        "# == layer0, patched by layer1, layer2",
        "# == layer2",
    ]


def test_a_change_inside_a_group_marks_the_group() -> None:
    made = composed(
        "- insert: [{id: g, name: cordis:group, group: true, config: [{id: c, name: p, config: {k: 1}}]}]",
        "- {id: c, config: {l: 2}}",
    )
    assert dump(made).startswith(
        "# == layer0, patched by layer1\n# -- c: the config of layer1 drops k\n- id: g\n"
    )


def test_which_layer_wins_and_what_it_drops_is_shown() -> None:
    made = composed(
        "- insert: [{id: m, name: p, config: {cmd: a, env: {K: 1}, t: 5}}]",
        "- {id: m, config: {cmd: a, env: {K: 2}}}",
        "- {id: m, config: {cmd: b}}",
        "- {id: m, disabled: true}",
        "- {id: m, disabled: false}",
    )
    assert dump(made) == (
        "# == layer0, patched by layer1, layer2, layer3, layer4\n"
        "# -- m: the config of layer1 drops t\n"
        "# -- m: the config of layer2 drops env\n"
        "- id: m\n  name: p\n  disabled: false\n  config:\n    cmd: b\n"
    )


def test_keys_that_a_later_layer_brings_back_are_not_reported() -> None:
    made = composed(
        "- insert: [{id: m, name: p, config: {a: 1, b: 1}}]",
        "- {id: m, config: {a: 2}}",
        "- {id: m, merge: {b: 3}}",
    )
    assert "drops" not in dump(made)


def test_expressions_are_printed_verbatim_and_read_back() -> None:
    texts = [
        "get(env, 'TOKEN')", "'never' if cwd == 'x' else 'ask'", "['a', *svc.w.hosts]", "{'a': cwd}",
        "cwd # no",
        "'a: b'", "env.TOKEN", "(cwd)", "1", "-1", "not cwd", "len('#')", '"double" + "d"',
    ]  # fmt: skip
    document = "\n".join(
        f"- insert: [{{id: r{n}, name: p, config: {{k: !expr {_quote(t)}}}}}]" for n, t in enumerate(texts)
    )
    made = composed(document)
    text = dump(made)
    assert [row["config"]["k"].text for row in loaded(text)] == texts
    assert "k: !expr get(env, 'TOKEN')\n" in text


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_texts_that_look_like_other_values_are_quoted() -> None:
    words = [
        "true", "null", "12", "1e3", ".5", ".inf", "~", "", "- a", "a: b", "#x", "a #b", " a", "a ", "no",
        "<<", "2024-01-01", "=", "*a", "&a", "!x", "%x", "@x", "`x", "---", "\t", "\u2028", "\x85", "\ufeff",
        "'", '"', "a\nb", "a\nb\n", "\na", " a\nb", "a\n\n", "a \nb", "\r\n", "\x1b[0m", "key:", "True",
        "../x",
    ]  # fmt: skip
    made = composed("- insert: [{id: a, name: p}]")
    made.rows[0]["config"] = words
    assert loaded(dump(made))[0]["config"] == words


def test_keys_of_any_length_read_back() -> None:
    keys = ["k" * 119, "k" * 2_000, "k\n" * 600, "k" * 1_100, "k: #" * 300]
    values: list[Any] = [{"a": 1, "b": [1, {"c": 2}]}, [1, [2]], "x\ny\n", None, {}]
    made = composed("- insert: [{id: a, name: p}]")
    made.rows[0]["config"] = dict(zip(keys, values, strict=True))
    assert loaded(dump(made))[0]["config"] == made.rows[0]["config"]


def test_long_texts_of_several_lines_are_blocks() -> None:
    made = composed("- insert: [{id: a, name: p}]")
    made.rows[0]["config"] = {"persona": "One.\n\n  Two: #3\n"}
    assert "    persona: |\n      One.\n\n        Two: #3\n" in dump(made)
    assert loaded(dump(made))[0]["config"] == {"persona": "One.\n\n  Two: #3\n"}


json_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | json_text
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: not f.is_integer()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_text, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(json_data)
def test_what_is_dumped_reads_back_to_the_same_rows(config: Any) -> None:
    row = Row(Mark("f", 1, 1))
    row.update(id="a", name="p", config=config)
    row.origin = "base"
    text = dump(EMPTY._replace(rows=[row]))
    assert repr(_plain(loaded(text))) == repr([{"id": "a", "name": "p", "config": config}])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def test_a_dump_is_a_list_of_rows_that_can_be_inserted_again() -> None:
    made = composed(
        "- insert: [{id: g, name: cordis:group, group: true,"
        " config: [{id: c, name: p, config: {k: [1, {a: []}]}}]},"
        " {id: x, name: y, config: {}}]"
    )
    document = loaded(dump(made))
    assert isinstance(document, Seq)
    assert checked_rows(document, lambda text: None) == made.rows
    assert isinstance(document[0], Map)


@given(st.lists(st.lists(elements, max_size=5), max_size=4))
def test_a_dump_of_any_stack_of_layers_is_what_would_be_mounted(stack: list[list[dict[str, Any]]]) -> None:
    try:
        made = composed(*(json.dumps(layer) for layer in stack))
    except CompositionError as error:
        assert "duplicate loader entry id" in str(error)
        return
    assert repr(_plain(loaded(dump(made)))) == repr([canonical(row) for row in made.rows])


def test_comments_stay_one_line_whatever_a_path_holds(tmp_path: Path) -> None:
    row = Row(Mark("f", 1, 1))
    row.update(id="a", name="p")
    row.origin = "/a\n- evil"
    assert loaded(dump(EMPTY._replace(rows=[row]))) == [{"id": "a", "name": "p"}]
